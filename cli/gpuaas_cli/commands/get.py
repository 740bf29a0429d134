"""`gpuaas get`: list things of any kind, or show one."""

from typing import Annotated, Any

import typer

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.runner import run


@run.alone()
def get(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND")],
    name: Annotated[str, typer.Argument(metavar="NAME")] = "",
    instance: Annotated[str, typer.Option(help="Only of this instance: members, operations, events, usage…")] = "",
    correlation: Annotated[str, typer.Option(help="Only with this correlation id: operations, events, audit.")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also what is gone.")] = False,
) -> None:
    """List things, or show one.

    KIND is one of orgs, projects, users, sessions, bindings, service-accounts, nodes, agent-releases, allocations,
    grants, credentials, ssh-keys, apps, entitlements, artifacts, trust-keys, instances, members, operations,
    controllers, events, audit, usage; singular and short forms (inst, alloc, op, sa) work too.
    Of roles, holds and secrets those of one instance are listed: gpuaas get secrets INSTANCE; gpuaas get members
    INSTANCE works too.

    Example: gpuaas get members --instance slurm

    Example: gpuaas get operations -o json
    """
    flags = run.flags_of(context)
    wanted = kinds.find(kind)
    if wanted is None:
        known = ", ".join(item.plural for item in kinds.KINDS)
        raise failures.usage(f"There is no kind {kind!r}; there is {known}", "gpuaas get --help")
    if wanted.of_instance and not instance and wanted.plural != "members":
        if not name:
            again = f"gpuaas get {wanted.plural} INSTANCE"
            raise failures.usage(f"Name the instance whose {wanted.plural} you want", again)
        instance, name = name, ""
    # What was named is shown even if it is gone.
    filters = kinds.Filters(instance, correlation, everything or bool(name))
    result = session.run(flags, lambda connection: _find(connection, wanted, filters, name))
    output.show(flags, result, wanted.table)


async def _list(connection: session.Session, kind: kinds.Kind, filters: kinds.Filters) -> list[Any]:
    rows = await kind.fetch(connection, filters)
    return [row for row in rows if filters.correlation in ("", getattr(row, "correlation_id", filters.correlation))]


async def _find(connection: session.Session, kind: kinds.Kind, filters: kinds.Filters, name: str) -> Any:
    if not name:
        return await _list(connection, kind, filters)
    if kind.getting is not None:
        parameter = kind.getting.path.rpartition("{")[2].rstrip("}")
        path: dict[str, Any] = {parameter: name}
        return await connection.call(kind.getting, **path)
    rows = await kind.fetch(connection, filters)
    matching = [row for row in rows if name in (getattr(row, attribute) for attribute in kind.known_by)]
    if matching:
        # Things that are gone keep their node; the newest is the one people mean.
        return matching[-1]
    if kind.plural == "members":
        return await _list(connection, kind, kinds.Filters(instance=name))
    hint = failures.hint(name, {str(getattr(row, kind.known_by[0])) for row in rows})
    raise failures.not_found(f"There is no {kind.plural.removesuffix('s')} {name}{hint}", f"gpuaas get {kind.plural}")
