"""End machine access: in the database at once; on the machine, including open SSH sessions, by its agent's next task.

The task `ssh.trust` has all serials that the machine's sshd must refuse. It is repeated until it succeeds.
"""

import datetime
import functools

import msgspec
import structlog
from gpuaas_contract import errors
from gpuaas_contract.access import MachineGrant, RevokeGrant
from gpuaas_contract.event_types import MachineAccessEnded
from gpuaas_contract.paths import MachineGrantPath

from gpuaas_platform.access.machines import store
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.kit import clock, db, structs
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

log = structlog.get_logger()

_RETRY_AFTER = datetime.timedelta(seconds=15)
_AT_ONCE = 1
"""A time in the past, for serials that no task has sent yet."""


async def revoke(tx: db.Tx, call: Call[MachineGrantPath], body: RevokeGrant) -> MachineGrant:
    call.details["reason"] = body.reason
    grant = await store.GRANTS.get(tx, call.path.grant_id)
    if grant is None or grant.project_id != call.path.project_id:
        raise errors.NotFound(f"There is no machine grant {call.path.grant_id} in this project.")
    if grant.state == "ended":
        return grant
    ended = await end(tx, call.origin, grant, body.reason)
    await send(tx, call.site, call.origin, ended.node_id, ended.project_id)
    return ended


async def end(tx: db.Tx, origin: Origin, grant: MachineGrant, reason: str) -> MachineGrant:
    """Record that a grant ended. The caller then calls `send` once per node, for all grants that ended on it."""
    ended = msgspec.structs.replace(
        grant, state="ended", ended_at=origin.now, ended_by=origin.caller.actor_id, end_reason=reason
    )
    await store.GRANTS.save(tx, ended)
    payload = structs.pick(MachineAccessEnded, ended, reason=reason)
    await record.emit(tx, origin, "access.machine.ended", payload, ended)
    return ended


async def end_all(tx: db.Tx, origin: Origin, reason: str) -> int:
    """End every grant and have a new SSH authority made, which all nodes then trust instead of the present one.

    This is for a restore. Certificates that were signed since the backup are unknown, so they cannot be refused by
    their serials. A new authority refuses them too. Return the number of grants."""
    grants = await store.active(tx)
    for grant in grants:
        await end(tx, origin, grant, reason)
    await ssh_trust.remove_authority(tx)
    for node_id in await nodes.enrolled_ids(tx):
        await store.expect(tx, store.Sent(node_id, "", _AT_ONCE))
    return len(grants)


async def send(tx: db.Tx, site: Site, origin: Origin, node_id: str, project_id: str = "") -> None:
    """Queue the task that gives the node its complete set of revoked serials.

    With `project_id`, people of the project find the task by its correlation id."""
    params = {
        "user_ca_public_keys": await ssh_trust.public_keys(tx, site),
        "revoked_serials": await store.refused_serials(tx, node_id, origin.now),
    }
    task_id = await tasks.queue(tx, site, origin, node_id, "ssh.trust", node_id, params, project_id=project_id)
    await store.expect(tx, store.Sent(node_id, task_id))


async def follow_up(site: Site) -> None:
    """Record which nodes now refuse the revoked serials, and send the serials again to nodes where the task failed.

    Each node has its own transaction, so that a failure for one node does not delay the others."""
    for sent, _ in await _due(site.database.reader, site.clock()):
        try:
            await site.database.write(functools.partial(_follow_up, site, sent.node_id))
        except db.Unavailable:
            raise
        except Exception:
            log.exception("machine_access.follow_up_failed", node_id=sent.node_id)


async def _follow_up(site: Site, node_id: str, tx: db.Tx) -> None:
    origin = system_origin(site.clock())
    for sent, state in await _due(tx, origin.now, node_id):
        node = await nodes.by_id(tx, node_id)
        if state == "succeeded" or node is None or node.admin_state == "retired":
            where = "node_id = $1 AND refused_until > 0 AND state = 'ended' AND is_enforced = 0"
            for grant in await store.GRANTS.find(tx, where, node_id):
                await store.GRANTS.save(tx, msgspec.structs.replace(grant, enforced_at=origin.now))
            await store.forget_sent(tx, node_id)
        elif sent.retry_at:
            await send(tx, site, origin, node_id)
        else:
            await store.expect(tx, sent._replace(retry_at=clock.micros(origin.now + _RETRY_AFTER)))


async def _due(reader: db.Reader, now: datetime.datetime, node_id: str = "") -> list[tuple[store.Sent, str]]:
    """Return the sent serials that need a write now, with the state of their task. Empty `node_id`: of all nodes."""
    expected = await store.expected(reader, node_id)
    states = await tasks.states(reader, [sent.task_id for sent in expected])
    ended = [(sent, states.get(sent.task_id, "forgotten")) for sent in expected]
    return [
        (sent, state)
        for sent, state in ended
        if state == "succeeded" or (state != "queued" and sent.retry_at <= clock.micros(now))
    ]
