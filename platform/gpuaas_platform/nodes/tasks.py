"""Tasks operators give to a node itself: say what you are, how you are, run another agent."""

import hashlib
import io
import zipfile

from gpuaas_contract import errors
from gpuaas_contract.agents import AgentRelease, NodeTask, RegisterAgentRelease, UpgradeAgent

from gpuaas_platform.allocations import store
from gpuaas_platform.call import Call
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import admin as node_admin
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import store as node_store


async def register_release(tx: db.Tx, call: Call, body: RegisterAgentRelease) -> AgentRelease:
    sha256 = hashlib.sha256(body.content).hexdigest()
    known = await node_store.AGENT_RELEASES.get(tx, sha256)
    if known is not None:
        return known
    if not zipfile.is_zipfile(io.BytesIO(body.content)):
        raise errors.ValidationFailed(
            "`content` is not an agent archive.",
            details={"field": "content"},
            fix="Build one: python -m gpuaas_agent.build OUT.pyz",
        )
    release = AgentRelease(
        sha256=sha256,
        version=body.version,
        size_bytes=len(body.content),
        registered_by=call.caller.actor_id,
        registered_at=call.now,
    )
    await node_store.AGENT_RELEASES.insert(tx, release)
    await node_store.add_agent_file(tx, sha256, body.content)
    return release


async def upgrade_agent(tx: db.Tx, call: Call, node_id: str, body: UpgradeAgent) -> NodeTask:
    call.details["reason"] = body.reason
    if await node_store.AGENT_RELEASES.get(tx, body.sha256) is None:
        raise errors.NotFound(
            f"There is no agent release {body.sha256}.", fix="Register it first: POST /api/v1/admin/agent-releases"
        )
    settings = call.site.settings
    params: dict[str, object] = {"sha256": body.sha256, "trial_s": settings.agent_trial_s}
    return await _queue(tx, call, node_id, "agent.upgrade", params, ttl_s=settings.agent_upgrade_ttl_s)


async def inspect(tx: db.Tx, call: Call, node_id: str, kind: str) -> NodeTask:
    return await _queue(tx, call, node_id, kind, {}, ttl_s=call.site.settings.task_ttl_s)


async def wait_for(call: Call, node_id: str, task_id: str, wait_s: float) -> NodeTask:
    """The task, as soon as it has ended or the time is up."""
    node_id = (await node_admin.node(call.site.database.reader, node_id)).node_id

    async def look() -> NodeTask:
        return await _task(call.site.database.reader, node_id, task_id)

    return await call.site.hub.poll(store.task_topic(task_id), wait_s, look, lambda found: found.state != "queued")


async def _queue(tx: db.Tx, call: Call, node_id: str, kind: str, params: dict[str, object], *, ttl_s: int) -> NodeTask:
    found = await node_admin.node(tx, node_id)
    if found.admin_state == "retired":
        raise errors.Conflict(f"Node {found.name} is retired and takes no tasks.")
    task_id = await nodes.queue_task(tx, call.site, call.origin, found.node_id, kind, "", params, ttl_s=ttl_s)
    return await _task(tx, found.node_id, task_id)


async def _task(reader: db.Reader, node_id: str, task_id: str) -> NodeTask:
    found = await node_store.task_of(reader, node_id, task_id)
    if found is None:
        raise errors.NotFound(f"Node {node_id} has no task {task_id}.")
    return found
