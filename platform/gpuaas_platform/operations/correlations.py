"""Collect everything with one correlation id: events, audit rows, operations and their members, refused requests."""

from gpuaas_contract import errors
from gpuaas_contract.correlations import PART_MAX, Correlation, RefusedRequest
from gpuaas_contract.paths import CorrelationPath

from gpuaas_platform.call import Call
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import read, service, store
from gpuaas_platform.record import correlations as record

_AUDIT = "record.audit.read"


async def gather(reader: db.Reader, call: Call[CorrelationPath]) -> Correlation:
    project_id, correlation_id = call.in_project().project_id, call.path.correlation_id
    sees_audit = service.may(call, _AUDIT)
    recorded = await record.under(reader, project_id, correlation_id, with_audit=sees_audit)
    # Read one row more than is shown, to detect that there are more.
    where = "correlation_id = $1 AND project_id = $2 ORDER BY operation_id LIMIT $3"
    heads = await store.heads(reader, where, correlation_id, project_id, PART_MAX + 1)
    operations = [await read.shown(reader, head) for head in heads]
    refused = _refused(call, correlation_id, sees_audit=sees_audit)
    if not (recorded.events or recorded.audit or operations or refused):
        fix = f"If it was refused earlier, or by another server, search the logs of the servers for {correlation_id}."
        raise errors.NotFound(f"Nothing in this project happened under {correlation_id}.", fix=fix)
    shown = operations[:PART_MAX]
    touched = dict.fromkeys(target.member_id for operation in shown for target in operation.targets)
    members = await instances.members_named(reader, list(touched)[: PART_MAX + 1])
    counts = {"operations": len(operations), "members": len(members)}
    return Correlation(
        correlation_id=correlation_id,
        operations=shown,
        members=members[:PART_MAX],
        events=recorded.events,
        audit=recorded.audit,
        withheld={} if sees_audit else {"audit": _AUDIT},
        truncated=[*recorded.truncated, *(part for part, count in counts.items() if count > PART_MAX)],
        refused=refused,
    )


def _refused(call: Call[CorrelationPath], correlation_id: str, *, sees_audit: bool) -> list[RefusedRequest]:
    known = call.site.refused.under(call.in_project().project_id, correlation_id)
    return [item for item in known if sees_audit or item.actor_id == call.caller.actor_id]
