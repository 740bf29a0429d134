"""`gpuaas get`: list things of any kind, or show one."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def get(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND")],
    name: Annotated[str, typer.Argument(metavar="NAME")] = "",
    instance: Annotated[str, typer.Option(help="Only of this instance: members, operations, events, usage…")] = "",
    correlation: Annotated[str, typer.Option(help="Only with this correlation id: operations, events, audit.")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also what is gone.")] = False,
) -> int:
    """List things, or show one.

    KIND is one of orgs, projects, users, sessions, bindings, service-accounts, nodes, agent-releases, allocations,
    grants, credentials, ssh-keys, apps, entitlements, artifacts, trust-keys, instances, members, operations,
    controllers, events, audit, usage; singular and short forms (inst, alloc, op, sa) work too.
    Of roles, holds and secrets those of one instance are listed: gpuaas get secrets INSTANCE.

    Example: gpuaas get members --instance slurm

    Example: gpuaas get operations -o json
    """
    flags = run.flags_of(context)
    wanted = kinds.find(kind)
    if wanted is None:
        known = ", ".join(one.plural for one in kinds.KINDS)
        raise failures.usage(f"There is no kind {kind!r}; there is {known}", "gpuaas get --help")
    if wanted.of_instance and not instance:
        if not name:
            raise failures.usage(f"Say of which instance: {wanted.plural}", f"gpuaas get {wanted.plural} INSTANCE")
        instance, name = name, ""
    # What was named is shown even if it is gone.
    filters = kinds.Filters(instance, correlation, everything or bool(name))
    if not name:
        rows = session.run(flags, lambda opened: _fetch(opened, wanted, filters))
        output.show_list(flags, rows, wanted.columns, wanted.name)
        return failures.OK
    found = session.run(flags, lambda opened: _find(opened, wanted, filters, name))
    output.show_one(flags, found, wanted.columns, wanted.name)
    return failures.OK


async def _fetch(opened: session.Session, kind: kinds.Kind, filters: kinds.Filters) -> Sequence[Any]:
    return await kind.fetch(opened, filters)


async def _find(opened: session.Session, kind: kinds.Kind, filters: kinds.Filters, name: str) -> Any:
    if kind.find is not None:
        return await kind.find(opened, name)
    matching = [one for one in await kind.fetch(opened, filters) if name in kind.answers_to(one)]
    if not matching:
        raise failures.not_found(f"There is no {kind.plural.rstrip('s')} {name}", f"gpuaas get {kind.plural}")
    # Things that are gone keep their node; the newest is the one people mean.
    return matching[-1]
