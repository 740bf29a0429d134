"""What was recorded: events, the audit trail, usage, everything under one correlation id.

gpuaas events --instance slurm
gpuaas events --org acme
    Print new events until Ctrl-C; gpuaas get events lists past events. With -o json, one line for each event.
    --instance: Only events of this app instance.
    --correlation: Only events with this correlation id.
    --after: Begin after the event with this cursor; by default with the next new event.
gpuaas audit
    The audit trail has one row for each change and each refused request. Each row contains the hash of the row before.
gpuaas audit list --action authz.deny --since 24h
gpuaas audit list --org acme --target inst_01k9z0c5p3v2m8q7r6t5w4x3y2
    The audit trail of the project, of an organisation, or of everything.
    correlation_id --correlation: Only rows with this correlation id.
    actor_id --actor: Only rows of the user or service account with this id.
    --action: Only rows of this action; authz.deny and policy.deny are refused requests.
    --target: About this id.
    --result: success or failure.
    --since TIME: From then on: 2030-01-31T08:00:00Z, or 2h for two hours ago.
    --until TIME: Up to then.
    --after: Only rows after this cursor.
    --order: Which rows come first.
    --limit: At most this many rows.
gpuaas usage
    Apps report usage; quantities are exact decimal numbers.
gpuaas usage list --since 24h --meter gpu-time
    List usage records in the order of their start times.
gpuaas usage summary --since 2030-01-01 --until 2030-02-01
    Show usage sums per day (UTC), instance, meter and unit; by default of the last 30 days.
gpuaas usage export --csv january.csv --since 2030-01-01 --until 2030-02-01
    Write all usage records to a CSV file. If it fails, no file is written.
    --csv FILE: CSV file to write; - is stdout.
gpuaas triage cor_01k9z0c5p3v2m8q7r6t5w4x3y2
    Everything of one correlation id in time order: refused requests, operations, log lines, node tasks, events, audit
    rows.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuaas_contract.audit import AUDIT_LIST, ORG_AUDIT_LIST, PLATFORM_AUDIT_LIST, AuditRow
from gpuaas_contract.correlations import CORRELATION_GET, PART_MAX, Correlation
from gpuaas_contract.events import EVENT_LIST, ORG_EVENT_LIST, PLATFORM_EVENT_LIST, Event
from gpuaas_contract.instances import INSTANCE_GET
from gpuaas_contract.usage import USAGE_EXPORT, USAGE_LIST, USAGE_SUMMARY

from gpuaas_cli import failures, kinds, output, terminal
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import values
from gpuaas_cli.kinds.instances import AUDIT_LIMIT
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command, Field, Levels, nothing
from gpuaas_cli.show import steps, story


def _check(call: Call) -> None:
    if call["instance"] and call.level != "project":
        raise failures.usage("--instance is for a project's events", "Leave out --platform and --org")


async def _follow(call: Call) -> None:
    filters = {"correlation_id": call["correlation"]}
    if call["instance"]:
        instance = await call.session.call(INSTANCE_GET, instance_id=call["instance"])
        filters["app_instance_id"] = instance.instance_id
    path: dict[str, Any] = await call.path()
    if call.level == "project":
        path["project_id"] = await call.session.project()
    begin = call["after"]
    if begin is None:
        # Get the newest cursor: with a filter that matches nothing, the cursor moves past all events.
        begin = (await call.session.call(call.endpoint, query={"correlation_id": "-"}, **path)).cursor
    async for event in call.session.client.follow(call.endpoint, filters, after=begin, **path):
        terminal.out(_line(call.flags, event))


def _line(flags: Flags, event: Event) -> str:
    if flags.output == "json":
        return output.encoded("json", output.plain(event), indent=None)
    if flags.output == "yaml":
        return f"---\n{output.encoded('yaml', output.plain(event))}"
    if flags.output == "name":
        return event.event_id
    return "  ".join(output.cells(event, kinds.get("events").table, wide=flags.output == "wide"))


def _moment(option: str, *, day: bool = False) -> Field:
    """Return a field for a time, or for a day if `day` is set."""

    def read(_: Call, text: str) -> str:
        moment = values.moment(text, option).isoformat() if text else ""
        return moment.partition("T")[0] if day else moment

    return Field(f"{option} TIME", default="", read=read)


async def _list(call: Call) -> tuple[list[AuditRow], bool]:
    return await call.session.first(call["limit"], call.endpoint, query=call.query(), **await call.path())


def _audit_show(call: Call, result: tuple[list[AuditRow], bool]) -> None:
    rows, more = result
    call.show(rows)
    if more and rows:
        older = "There may be older rows: repeat the command with a larger --limit"
        newer = f"There may be more rows: repeat the command with --after {rows[-1].cursor}"
        output.talk(older if call["order"] == "newest" else newer)


def _filters(*, day: bool = False) -> dict[str, Field]:
    since = "Only usage that started at this time or later: 2030-01-31, or 7d for seven days ago."
    return {
        "since": replace(_moment("--since", day=day), help=since),
        "until": replace(_moment("--until", day=day), help="Only usage that started before this time."),
        "instance_id": Field("--instance", "Only usage of this app instance."),
        "meter": Field("--meter", "Only usage of this meter, such as gpu-time."),
    }


async def _instance(call: Call) -> dict[str, str]:
    named = call["instance_id"]
    return {"instance_id": (await call.session.call(INSTANCE_GET, instance_id=named)).instance_id} if named else {}


async def _usage_list(call: Call) -> Sequence[Any]:
    return await call.rows(**await _instance(call))


async def _export(call: Call) -> None:
    query = call.query(**await _instance(call))
    content = call.session.client.download(USAGE_EXPORT, query=query, project_id=await call.session.project())
    with _target(call["csv"]) as write:
        async for chunk in content:
            write(chunk)
    if call["csv"] != "-":
        output.talk(f"Written to {call['csv']}.")


@contextlib.contextmanager
def _target(path: str) -> Iterator[Callable[[bytes], object]]:
    if path == "-":
        yield terminal.copy
        return
    unfinished = Path(f"{path}.part")
    try:
        with unfinished.open("wb") as file:
            yield file.write
        unfinished.replace(path)
    except OSError as error:
        raise failures.usage(f"{path} cannot be written: {error.strerror}", "--csv FILE") from error
    finally:
        unfinished.unlink(missing_ok=True)


_ENTRIES = table("TIME SOURCE WHAT DETAIL", "what", TIME=lambda entry: steps.moment(entry.at))


def _triage_show(call: Call, result: Correlation) -> None:
    for part, permission in result.withheld.items():
        output.talk(f"{part}: not shown to you; it needs {permission}")
    for part in result.truncated:
        which = "last" if part == "log" else "first"
        output.talk(f"{part}: only the {which} {PART_MAX} are shown")
    if call.flags.structured_whole:
        output.show_data(call.flags, result)
        return
    output.show(call.flags, steps.timeline(result), _ENTRIES)
    next_commands = [f"gpuaas describe operation {operation.operation_id}" for operation in result.operations]
    if result.log:
        next_commands += [f"gpuaas op log {id_}" for id_ in dict.fromkeys(line.operation_id for line in result.log)]
    links = [f"{link.kind}: {link.url}" for link in result.links]
    terminal.out("\n".join([*story.section("Next", next_commands), *story.section("Links", links)]))


COMMANDS = {
    "events": Command(
        Levels(EVENT_LIST, PLATFORM_EVENT_LIST, ORG_EVENT_LIST),
        fields=dict.fromkeys(EVENT_LIST.query.__struct_fields__),
        extra={"after": Field(type=int, default=None)},
        check=_check,
        work=_follow,
        show=nothing,
    ),
    "audit list": Command(
        Levels(AUDIT_LIST, PLATFORM_AUDIT_LIST, ORG_AUDIT_LIST),
        fields={"result": Field(type=str, default=""), "since": _moment("--since"), "until": _moment("--until")},
        extra={"limit": Field(type=int, default=AUDIT_LIMIT)},
        work=_list,
        show=_audit_show,
    ),
    "usage list": Command(USAGE_LIST, fields=_filters(), work=_usage_list),
    "usage summary": Command(
        USAGE_SUMMARY,
        fields=_filters(day=True),
        work=_usage_list,
        table=table("DAY APP=app_slug INSTANCE=instance_id METER QUANTITY UNIT RECORDS"),
    ),
    "usage export": Command(
        USAGE_EXPORT, extra={"csv": Field(default="-")}, fields=_filters(), work=_export, show=nothing
    ),
    "triage": Command(CORRELATION_GET, show=_triage_show),
}
