"""End machine access: on the record at once, on the machine as soon as its agent hears of it, live sessions included.

The agent gets the complete set of serials its sshd has to refuse (`ssh.trust`), again and again until it has it.
"""

import datetime
import functools

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.access import MachineGrant
from gpuaas_contract.event_types import MachineAccessEnded

from gpuaas_platform.access.machines import store
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

_RETRY_AFTER = datetime.timedelta(seconds=15)


async def revoke(tx: db.Tx, call: Call, grant_id: str, reason: str) -> MachineGrant:
    grant = await store.GRANTS.get(tx, grant_id)
    if grant is None or grant.project_id != call.in_project().project_id:
        raise errors.NotFound(f"There is no machine grant {grant_id} in this project.")
    if grant.state == "ended":
        return grant
    ended = await end(tx, call.origin, grant, reason)
    await tell_node(tx, call.site, call.origin, ended.node_id)
    return ended


async def end(tx: db.Tx, origin: Origin, grant: MachineGrant, reason: str) -> MachineGrant:
    """On the record; the caller tells the node, once for all that end together."""
    ended = msgspec.structs.replace(
        grant, state="ended", ended_at=origin.now, ended_by=origin.caller.actor_id, end_reason=reason
    )
    await store.GRANTS.save(tx, ended)
    await record.emit(
        tx,
        origin,
        "access.machine.ended",
        MachineAccessEnded(
            grant_id=ended.grant_id,
            allocation_id=ended.allocation_id,
            operation_id=ended.operation_id,
            actor_id=ended.actor_id,
            serial=ended.serial,
            ended_by=ended.ended_by,
            reason=reason,
        ),
        org_id=ended.org_id,
        project_id=ended.project_id,
    )
    return ended


async def tell_node(tx: db.Tx, site: Site, origin: Origin, node_id: str) -> None:
    params: dict[str, object] = {
        "user_ca_public_keys": await ssh_trust.public_keys(tx, site),
        "revoked_serials": await store.refused_serials(tx, node_id, origin.now),
    }
    await store.expect(tx, node_id, await tasks.queue(tx, site, origin, node_id, "ssh.trust", node_id, params))


async def settle(site: Site) -> None:
    """See which nodes have heard, and tell those again that have not."""
    expected = await store.expected(site.database.reader)
    states = await tasks.states(site.database.reader, [task_id for _, task_id, _ in expected])
    for node_id, task_id, _ in expected:
        if states.get(task_id) != "queued":
            await site.database.write(functools.partial(_settle_one, site, node_id))


async def _settle_one(site: Site, node_id: str, tx: db.Tx) -> None:
    origin = system_origin(site.clock())
    found = {node: (task_id, retry_at) for node, task_id, retry_at in await store.expected(tx)}
    task_id, retry_at = found.get(node_id, ("", 0))
    state = (await tasks.states(tx, [task_id])).get(task_id, "forgotten")
    if state == "succeeded" or await _is_gone(tx, node_id):
        await _note_enforced(tx, node_id, origin.now)
    elif state != "queued" and not retry_at:
        await store.retry_at(tx, node_id, origin.now + _RETRY_AFTER)
    elif state != "queued" and retry_at <= clock.micros(origin.now):
        await tell_node(tx, site, origin, node_id)


async def _note_enforced(tx: db.Tx, node_id: str, now: datetime.datetime) -> None:
    for grant in await store.not_enforced(tx, node_id):
        await store.GRANTS.save(tx, msgspec.structs.replace(grant, enforced_at=now))
    await store.heard(tx, node_id)


async def _is_gone(reader: db.Reader, node_id: str) -> bool:
    node = await nodes.by_id(reader, node_id)
    return node is None or node.admin_state == "retired"
