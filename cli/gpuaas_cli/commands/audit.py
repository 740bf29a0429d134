"""`gpuaas audit`: who did what, and who was refused."""

from typing import Annotated

import typer
from gpuaas_contract.audit import AuditRows

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session, trail
from gpuaas_cli.input import times
from gpuaas_cli.runner import run, scopes

app = run.command_group()


@app.callback()
def audit() -> None:
    """Rows are only ever added; each is chained to the one before by its hash."""


@run.command(app, "list")
def list_rows(
    context: typer.Context,
    correlation: Annotated[str, typer.Option(help="Of this correlation id.")] = "",
    actor: Annotated[str, typer.Option(help="By this user or service account, by id.")] = "",
    action: Annotated[str, typer.Option(help="Of this action; authz.deny for refusals.")] = "",
    target: Annotated[str, typer.Option(help="About this id.")] = "",
    result: Annotated[str, typer.Option(help="success or failure.")] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From then on: 2030-01-31T08:00:00Z, or 2h for two hours ago.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Up to then.")] = "",
    after: Annotated[int, typer.Option(min=0, help="Go on behind this cursor.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many rows at the most.")] = trail.LIMIT,
    platform: scopes.Platform = False,
    org: scopes.Org = "",
) -> int:
    """The audit trail of the project, of an organisation, or of everything; oldest first.

    Example: gpuaas audit list --action authz.deny --since 24h

    Example: gpuaas audit list --org acme --target inst_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    query = {"correlation_id": correlation, "actor_id": actor, "action": action, "target": target, "result": result}
    for name, text in (("since", since), ("until", until)):
        query |= {name: times.moment(text, f"--{name}").isoformat()} if text else {}

    async def work(opened: session.Session) -> AuditRows:
        scope = await scopes.find(opened, platform=platform, org=org)
        return await trail.read(opened, scope, {**query, "after": after}, limit)

    flags = run.flags_of(context)
    found = session.run(flags, work)
    kinds.show_list(flags, "audit", found.items)
    if found.more:
        output.talk(f"There may be more: the same with --after {found.cursor}")
    return failures.OK
