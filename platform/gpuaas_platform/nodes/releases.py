"""Register releases of the agent, upgrade nodes to them, and send the files to agents."""

import hashlib
import io
import zipfile

from gpuaas_contract import errors, node
from gpuaas_contract.agents import AgentRelease, NodeTask, RegisterAgentRelease, UpgradeAgent
from gpuaas_contract.paths import AgentFilePath, NodePath, Path
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.nodes import store
from gpuaas_platform.nodes.tasks import service as tasks


async def register(tx: db.Tx, call: Call, body: RegisterAgentRelease) -> AgentRelease:
    sha256 = hashlib.sha256(body.content).hexdigest()
    known = await store.AGENT_RELEASES.get(tx, sha256)
    if known is not None:
        return known
    if not zipfile.is_zipfile(io.BytesIO(body.content)):
        fix = "Build one: python -m gpuaas_agent.build OUT.pyz"
        raise errors.ValidationFailed("`content` is not an agent archive.", details={"field": "content"}, fix=fix)
    release = AgentRelease(
        sha256=sha256,
        version=body.version,
        size_bytes=len(body.content),
        registered_by=call.caller.actor_id,
        registered_at=call.now,
    )
    await store.AGENT_RELEASES.insert(tx, release)
    await store.add_file(tx, sha256, body.content)
    return release


async def list_releases(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[AgentRelease]:
    return await paging.encoded(reader, store.AGENT_RELEASES, call.query, "1 = 1")


async def upgrade(tx: db.Tx, call: Call[NodePath], body: UpgradeAgent) -> NodeTask:
    call.details["reason"] = body.reason
    if await store.AGENT_RELEASES.get(tx, body.sha256) is None:
        fix = "Register it first: POST /api/v1/admin/agent-releases"
        raise errors.NotFound(f"There is no agent release {body.sha256}.", fix=fix)
    settings = call.site.settings
    params = {"sha256": body.sha256, "trial_s": settings.agent_trial_s}
    return await tasks.queue_for_operator(tx, call, "agent.upgrade", params, ttl_s=settings.agent_upgrade_ttl_s)


async def agent_file(reader: db.Reader, call: Call[AgentFilePath]) -> node.AgentFile:
    content = await store.file(reader, call.path.sha256)
    if content is None:
        raise errors.NotFound
    return node.AgentFile(sha256=call.path.sha256, content=content)
