"""`gpuaas usage`: what was used, as the apps report it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from gpuaas_contract.usage import USAGE_EXPORT, USAGE_LIST, USAGE_SUMMARY

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import times
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run

app = run.command_group()

Since = Annotated[
    str, typer.Option(metavar="TIME", help="Started then or later: 2030-01-31, or 7d for seven days ago.")
]
Until = Annotated[str, typer.Option(metavar="TIME", help="Started before.")]
OfInstance = Annotated[str, typer.Option("--instance", help="Only of this instance.")]
Meter = Annotated[str, typer.Option(help="Only of this meter.")]

_DAY = (
    Column("DAY", lambda one: one.day.isoformat()),
    Column("APP", lambda one: one.app_slug),
    Column("INSTANCE", lambda one: one.instance_id),
    Column("METER", lambda one: one.meter),
    Column("QUANTITY", lambda one: one.quantity),
    Column("UNIT", lambda one: one.unit),
    Column("RECORDS", lambda one: str(one.records)),
)


@app.callback()
def usage() -> None:
    """Apps report usage; quantities are exact decimal numbers."""


@run.command(app, "list")
def list_records(
    context: typer.Context, since: Since = "", until: Until = "", instance: OfInstance = "", meter: Meter = ""
) -> int:
    """Usage records by the time they started.

    Example: gpuaas usage list --since 24h --meter gpu-time
    """

    async def work(opened: session.Session) -> Any:
        return await opened.every(USAGE_LIST, query=await _query(opened, since, until, instance, meter))

    flags = run.flags_of(context)
    kinds.show_list(flags, "usage", session.run(flags, work))
    return failures.OK


@run.command(app)
def summary(
    context: typer.Context, since: Since = "", until: Until = "", instance: OfInstance = "", meter: Meter = ""
) -> int:
    """Exact sums per day (UTC), instance, meter and unit; of the last 30 days if nothing is said.

    Example: gpuaas usage summary --since 2030-01-01 --until 2030-02-01
    """

    async def work(opened: session.Session) -> Any:
        asked = await _query(opened, since, until, instance, meter)
        days = {name: text.partition("T")[0] for name, text in asked.items() if name in ("since", "until")}
        return await opened.every(USAGE_SUMMARY, query={**asked, **days})

    flags = run.flags_of(context)
    output.show_list(flags, session.run(flags, work), _DAY, lambda one: str(one.day))
    return failures.OK


@run.command(app)
def export(
    context: typer.Context,
    csv: Annotated[str, typer.Option("--csv", metavar="FILE", help="Where to write it; - is stdout.")] = "-",
    since: Since = "",
    until: Until = "",
    instance: OfInstance = "",
    meter: Meter = "",
) -> int:
    """All records as a CSV file; it is there whole or not at all.

    Example: gpuaas usage export --csv january.csv --since 2030-01-01 --until 2030-02-01
    """

    async def work(opened: session.Session) -> None:
        asked = await _query(opened, since, until, instance, meter)
        content = opened.client.download(USAGE_EXPORT, query=asked, project_id=await opened.project_id())
        with _target(csv) as file:
            async for chunk in content:
                file.write(chunk)

    session.run(run.flags_of(context), work)
    if csv != "-":
        output.talk(f"Written to {csv}.")
    return failures.OK


@contextlib.contextmanager
def _target(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdout.buffer
        return
    unfinished = Path(f"{path}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except OSError as error:
        raise failures.usage(f"{path} cannot be written: {error.strerror}", "--csv FILE") from error
    finally:
        unfinished.unlink(missing_ok=True)


async def _query(opened: session.Session, since: str, until: str, instance: str, meter: str) -> dict[str, str]:
    query = {"meter": meter} if meter else {}
    for name, text in (("since", since), ("until", until)):
        query |= {name: times.moment(text, f"--{name}").isoformat()} if text else {}
    if instance:
        query["instance_id"] = (await lookup.instance(opened, instance)).instance_id
    return query
