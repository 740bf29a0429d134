"""Collect everything with one correlation id: events, audit rows, operations with their members and log lines, node
tasks, refused requests; and links to where to read on."""

import datetime
from collections.abc import Iterator

from gpuaas_contract import errors
from gpuaas_contract.correlations import PART_MAX, CorrelatedTask, Correlation, Link, RefusedRequest
from gpuaas_contract.operations import Operation
from gpuaas_contract.paths import CorrelationPath

from gpuaas_platform.call import Call
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, links, traces
from gpuaas_platform.kit.links import Range
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.operations import log, read, service, store
from gpuaas_platform.record import correlations as record
from gpuaas_platform.record.correlations import Recorded

_AUDIT = "record.audit.read"
_TRACES_MAX = 5
"""How many traces get a link. A correlation id that many requests use has a trace of each."""


async def gather(reader: db.Reader, call: Call[CorrelationPath]) -> Correlation:
    project_id, correlation_id = call.in_project().project_id, call.path.correlation_id
    sees_audit = service.may(call, _AUDIT)
    recorded = await record.under(reader, project_id, correlation_id, with_audit=sees_audit)
    # Read one row more than is shown, to detect that there are more.
    where = "correlation_id = $1 AND project_id = $2 ORDER BY operation_id LIMIT $3"
    heads = await store.heads(reader, where, correlation_id, project_id, PART_MAX + 1)
    operations = [await read.shown(reader, head) for head in heads]
    refused = _refused(call, correlation_id, sees_audit=sees_audit)
    node_tasks = await tasks.under(reader, project_id, correlation_id, PART_MAX + 1)
    if not (recorded.events or recorded.audit or operations or refused or node_tasks):
        raise errors.NotFound(f"Nothing in this project happened under {correlation_id}.", fix=_fix(call))
    shown = operations[:PART_MAX]
    touched = dict.fromkeys(target.member_id for operation in shown for target in operation.targets)
    members = await instances.members_named(reader, list(touched)[: PART_MAX + 1])
    lines = await log.newest(reader, [operation.operation_id for operation in shown], PART_MAX + 1)
    counts = {"operations": len(operations), "members": len(members), "node_tasks": len(node_tasks), "log": len(lines)}
    return Correlation(
        correlation_id=correlation_id,
        operations=shown,
        members=members[:PART_MAX],
        events=recorded.events,
        audit=recorded.audit,
        withheld={} if sees_audit else {"audit": _AUDIT},
        truncated=[*recorded.truncated, *(part for part, count in counts.items() if count > PART_MAX)],
        refused=refused,
        node_tasks=node_tasks[:PART_MAX],
        log=lines[-PART_MAX:],
        links=_links(call, shown, refused, links.range_of([*_times(recorded, shown, refused, node_tasks)], call.now)),
    )


def _refused(call: Call[CorrelationPath], correlation_id: str, *, sees_audit: bool) -> list[RefusedRequest]:
    known = call.site.refused.under(call.in_project().project_id, correlation_id)
    return [item for item in known if sees_audit or item.actor_id == call.caller.actor_id]


def _fix(call: Call[CorrelationPath]) -> str:
    """Return what to do if nothing was found: search the logs, in the log system if its address is configured."""
    correlation_id, template = call.path.correlation_id, call.site.settings.log_url_template
    url = links.url(template, "correlation_id", correlation_id, Range(call.now - datetime.timedelta(days=1), call.now))
    where = f": {url}" if url else f" for {correlation_id}."
    return f"If it was refused earlier, or by another server, search the logs of the servers{where}"


def _links(
    call: Call[CorrelationPath], operations: list[Operation], refused: list[RefusedRequest], times: Range
) -> list[Link]:
    settings = call.site.settings
    trace_ids = [traces.trace_id_of(operation.traceparent) for operation in operations]
    trace_ids = list(dict.fromkeys([*trace_ids, *(request.trace_id for request in refused)]))
    urls = [("log", links.url(settings.log_url_template, "correlation_id", call.path.correlation_id, times))]
    urls += [
        ("trace", links.url(settings.trace_url_template, "trace_id", trace_id, times))
        for trace_id in trace_ids[:_TRACES_MAX]
    ]
    return [Link(kind="log" if kind == "log" else "trace", url=url) for kind, url in urls if url]


def _times(
    recorded: Recorded, operations: list[Operation], refused: list[RefusedRequest], node_tasks: list[CorrelatedTask]
) -> Iterator[datetime.datetime]:
    yield from (event.occurred_at for event in recorded.events)
    yield from (row.occurred_at for row in recorded.audit or ())
    yield from (request.occurred_at for request in refused)
    for operation in operations:
        yield operation.created_at
        yield operation.ended_at or operation.created_at
    for task in node_tasks:
        yield task.issued_at
        yield task.ended_at or task.issued_at
