"""`gpuaas events`: what happens in a project, as it happens."""

import json
from typing import Annotated

import msgspec
import typer
from gpuaas_contract.events import EVENT_LIST, Event

from gpuaas_cli import failures, kinds, lookup, output, running, session
from gpuaas_cli.flags import Flags

app = running.command_group()


@running.command(app)
def events(
    context: typer.Context,
    instance: Annotated[str, typer.Option(help="Only of this instance.")] = "",
    correlation: Annotated[str, typer.Option(help="Only with this correlation id.")] = "",
    after: Annotated[int | None, typer.Option(min=0, help="Begin behind this cursor; else with what comes.")] = None,
) -> int:
    """Follow what happens, without an end; gpuaas get events lists what did. With -o json, one line for each event.

    Example: gpuaas events --instance slurm
    """

    async def work(opened: session.Session) -> int:
        instance_id = (await lookup.instance(opened, instance)).instance_id if instance else ""
        begin = await _now(opened) if after is None else after
        told = opened.client.events(
            await opened.project_id(), after=begin, app_instance_id=instance_id, correlation_id=correlation
        )
        async for event in told:
            print(_line(opened.flags, event), flush=True)
        return failures.OK

    return session.run(running.flags_of(context), work)


async def _now(opened: session.Session) -> int:
    """The cursor behind everything that has happened: it moves on past what a filter leaves out, here all."""
    page = await opened.call(EVENT_LIST, query={"correlation_id": "-"})
    return page.cursor


def _line(flags: Flags, event: Event) -> str:
    if flags.output == "json":
        return json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
    if flags.output == "yaml":
        return f"---\n{output.encoded('yaml', msgspec.to_builtins(event))}"
    if flags.output == "name":
        return event.event_id
    return "  ".join(kinds.cells(flags, "events", event))
