"""`gpuaas events`: what happens in a project, an organisation or on the platform, as it happens."""

import json
from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.events import EVENT_LIST, ORG_EVENT_LIST, PLATFORM_EVENT_LIST, Event, Events
from gpuaas_contract.wire import NoBody

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.runner import run, scopes

app = run.command_group()

_RECORDS: dict[scopes.Level, Endpoint[NoBody, Events]] = {
    "project": EVENT_LIST,
    "org": ORG_EVENT_LIST,
    "platform": PLATFORM_EVENT_LIST,
}


@run.command(app)
def events(
    context: typer.Context,
    instance: Annotated[str, typer.Option(help="Only of this instance.")] = "",
    correlation: Annotated[str, typer.Option(help="Only with this correlation id.")] = "",
    after: Annotated[int | None, typer.Option(min=0, help="Begin behind this cursor; else with what comes.")] = None,
    platform: scopes.Platform = False,
    org: scopes.Org = "",
) -> int:
    """Follow what happens, without an end; gpuaas get events lists what did. With -o json, one line for each event.

    Example: gpuaas events --instance slurm

    Example: gpuaas events --org acme
    """
    if instance and (platform or org):
        raise failures.usage("--instance is for a project's events", "Leave out --platform and --org")

    async def work(opened: session.Session) -> int:
        scope = await scopes.find(opened, platform=platform, org=org)
        record, filters = _RECORDS[scope.level], {"correlation_id": correlation}
        if instance:
            filters["app_instance_id"] = (await lookup.instance(opened, instance)).instance_id
        begin = await _now(opened, record, scope.path) if after is None else after
        async for event in opened.client.follow(record, filters, after=begin, **scope.path):
            print(_line(opened.flags, event), flush=True)
        return failures.OK

    return session.run(run.flags_of(context), work)


async def _now(opened: session.Session, record: Endpoint[NoBody, Events], path: dict[str, Any]) -> int:
    """The cursor behind everything that has happened: it moves on past what a filter leaves out, here all."""
    page = await opened.call(record, query={"correlation_id": "-"}, **path)
    return page.cursor


def _line(flags: Flags, event: Event) -> str:
    if flags.output == "json":
        return json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
    if flags.output == "yaml":
        return f"---\n{output.encoded('yaml', msgspec.to_builtins(event))}"
    if flags.output == "name":
        return event.event_id
    return "  ".join(kinds.cells(flags, "events", event))
