"""`gpuaas get`: list things of any kind, or show one.

gpuaas get members --instance slurm
gpuaas get operations -o json
    List the resources of a kind, or show one of them.

    KIND is one of orgs, projects, users, sessions, bindings, service-accounts, nodes, agent-releases, allocations,
    grants, credentials, ssh-keys, apps, entitlements, app-requests, app-offers, artifacts, trust-keys,
    instances, members, operations, controllers, events, audit, usage;
    singular and short forms (inst, alloc, op, sa) work too.
    Of roles, holds and secrets those of one instance are listed: gpuaas get secrets INSTANCE; gpuaas get members
    INSTANCE works too.
    kind KIND
    name NAME
    --instance: Only of this instance: members, operations, events, usage…
    --correlation: Only with this correlation id: operations, events, audit.
    everything --all -a: Also list deleted and ended resources.
"""

from typing import Any

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.runner import SWITCH, Call, Command, Field


def _kind(call: Call) -> kinds.Kind:
    kind = kinds.find(call["kind"])
    if kind is None:
        known = [item.plural for item in kinds.KINDS]
        hint = failures.hint(call["kind"], known) or f"; there is {', '.join(known)}"
        raise failures.usage(f"There is no kind {call['kind']!r}{hint}", "gpuaas get --help")
    if kind.of_instance and kind.plural != "members" and not (call["instance"] or call["name"]):
        again = f"gpuaas get {kind.plural} INSTANCE"
        raise failures.usage(f"Name the instance whose {kind.plural} you want", again)
    return kind


async def _get(call: Call) -> Any:
    kind, instance, name = _kind(call), call["instance"], call["name"]
    if kind.of_instance and kind.plural != "members" and not instance:
        instance, name = name, ""
    # A resource that the user names is shown even if it is gone.
    filters = kinds.Filters(instance, call["correlation"], call["everything"] or bool(name))
    if not name:
        return await _list(call, kind, filters)
    if kind.getting is not None:
        parameter = kind.getting.path.rpartition("{")[2].rstrip("}")
        path: dict[str, Any] = {parameter: name}
        return await call.session.call(kind.getting, **path)
    rows = await kind.fetch(call.session, filters)
    matching = [row for row in rows if name in (getattr(row, attribute) for attribute in kind.known_by)]
    if matching:
        # Several resources, also gone ones, can have the same node: take the newest.
        return matching[-1]
    if kind.plural == "members":
        return await _list(call, kind, kinds.Filters(instance=name))
    hint = failures.hint(name, {str(getattr(row, kind.known_by[0])) for row in rows})
    raise failures.not_found(f"There is no {kind.plural.removesuffix('s')} {name}{hint}", f"gpuaas get {kind.plural}")


async def _list(call: Call, kind: kinds.Kind, filters: kinds.Filters) -> list[Any]:
    rows = await kind.fetch(call.session, filters)
    return [row for row in rows if filters.correlation in ("", getattr(row, "correlation_id", filters.correlation))]


def _show(call: Call, result: Any) -> None:
    kind = _kind(call)
    output.show(call.flags, result, kind.table)
    if kind.if_empty and not result and not call.flags.structured:
        output.talk(f"  next: {kind.if_empty}")


COMMANDS = {
    "get": Command(
        extra={"name": Field(default=""), "everything": SWITCH},
        check=_kind,
        work=_get,
        show=_show,
    )
}
