"""`gpuaas triage`: from a correlation id to everything that happened under it."""

from typing import Annotated, Any

import typer
from gpuaas_contract.errors import ApiError, NotFound, PermissionDenied
from gpuaas_contract.instances import MEMBER_LIST, Member

from gpuaas_cli import failures, kinds, output, running, session, story, triage
from gpuaas_cli.output import Column, clock_time

app = running.command_group()

_COLUMNS = (
    Column("TIME", lambda one: clock_time(one.at)),
    Column("SOURCE", lambda one: one.source),
    Column("WHAT", lambda one: one.what),
    Column("DETAIL", lambda one: one.detail),
)


@running.command(app)
def explain(context: typer.Context, correlation_id: Annotated[str, typer.Argument(metavar="CORRELATION_ID")]) -> int:
    """Operations, members, events and audit rows of one correlation id, in time order.

    Example: gpuaas triage cor_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    flags = running.flags_of(context)
    found = session.run(flags, lambda opened: _gather(opened, correlation_id))
    entries = triage.entries(found["operations"], found["members"], found["events"], found["audit"])
    if flags.output in ("json", "yaml"):
        output.show_one(flags, found, _COLUMNS, str)
        return failures.OK
    if not entries:
        raise failures.not_found(
            f"Nothing in this project carries {correlation_id}, or you may not see it", "gpuaas get operations"
        )
    output.show_list(flags, entries, _COLUMNS, lambda one: str(one.what))
    for operation in found["operations"]:
        print("\n".join(story.section("Next", [f"gpuaas describe operation {operation.operation_id}"])))
    return failures.OK


async def _gather(opened: session.Session, correlation_id: str) -> dict[str, Any]:
    filters = kinds.Filters(correlation=correlation_id, everything=True)
    found: dict[str, Any] = {}
    for plural in ("operations", "events", "audit"):
        try:
            found[plural] = await kinds.get(plural).fetch(opened, filters)
        except (PermissionDenied, NotFound) as error:
            found[plural] = []
            _say_hidden(plural, error)
    instance_ids = dict.fromkeys(operation.instance_id for operation in found["operations"])
    members: list[Member] = []
    for instance_id in instance_ids:
        members += await opened.every(MEMBER_LIST, instance_id=instance_id)
    targets = {target.member_id for operation in found["operations"] for target in operation.targets}
    found["members"] = [one for one in members if one.correlation_id == correlation_id or one.member_id in targets]
    return found


def _say_hidden(plural: str, error: ApiError) -> None:
    output.talk(f"{plural}: not shown to you ({error.code})")
