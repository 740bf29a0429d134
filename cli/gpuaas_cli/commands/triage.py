"""`gpuaas triage`: from a correlation id to everything that happened under it."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.correlations import CORRELATION_GET, PART_MAX, Correlation

from gpuaas_cli import failures, output
from gpuaas_cli.client import session
from gpuaas_cli.output import Column, clock_time
from gpuaas_cli.runner import run
from gpuaas_cli.show import story, timeline

app = run.command_group()

_COLUMNS = (
    Column("TIME", lambda one: clock_time(one.at)),
    Column("SOURCE", lambda one: one.source),
    Column("WHAT", lambda one: one.what),
    Column("DETAIL", lambda one: one.detail),
)


@run.command(app)
def explain(context: typer.Context, correlation_id: Annotated[str, typer.Argument(metavar="CORRELATION_ID")]) -> int:
    """Operations, members, events and audit rows of one correlation id, in time order.

    Example: gpuaas triage cor_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    flags = run.flags_of(context)
    found = session.run(flags, lambda opened: opened.call(CORRELATION_GET, correlation_id=correlation_id))
    _say_what_is_missing(found)
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(found)))
        return failures.OK
    output.show_list(flags, timeline.entries(found), _COLUMNS, lambda one: str(one.what))
    next_commands = [f"gpuaas describe operation {operation.operation_id}" for operation in found.operations]
    print("\n".join(story.section("Next", next_commands)))
    return failures.OK


def _say_what_is_missing(found: Correlation) -> None:
    for part, permission in found.withheld.items():
        output.talk(f"{part}: not shown to you; it needs {permission}")
    for part in found.truncated:
        output.talk(f"{part}: only the first {PART_MAX} are shown")
