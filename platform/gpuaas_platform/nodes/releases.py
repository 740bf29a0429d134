"""Register and approve releases of the agent, upgrade nodes to them, and send the files to agents."""

import hashlib
import io
import zipfile

import msgspec
from gpuaas_contract import errors, node
from gpuaas_contract.agents import AgentRelease, ApproveAgentRelease, NodeTask, RegisterAgentRelease, UpgradeAgent
from gpuaas_contract.paths import AgentFilePath, NodePath, Path
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.nodes import rules, signatures, store
from gpuaas_platform.nodes.tasks import service as tasks


async def register(tx: db.Tx, call: Call, body: RegisterAgentRelease) -> AgentRelease:
    """Register a signed build. Bytes that are known get the new signature, for releases that outlive their key."""
    settings, sha256 = call.site.settings, hashlib.sha256(body.content).hexdigest()
    if not zipfile.is_zipfile(io.BytesIO(body.content)):
        fix = "Build one: python -m gpuaas_agent.build OUT.pyz"
        raise errors.ValidationFailed("`content` is not an agent archive.", details={"field": "content"}, fix=fix)
    key_id = signatures.signer(settings.agent_release_keys, body.version, sha256, body.signature)
    call.details.update(version=body.version, key_id=key_id)
    known = await store.AGENT_RELEASES.get(tx, sha256)
    if known is not None:
        signed = msgspec.structs.replace(known, version=body.version, signature=body.signature, key_id=key_id)
        await store.AGENT_RELEASES.save(tx, signed)
        return signed
    release = AgentRelease(
        sha256=sha256,
        version=body.version,
        size_bytes=len(body.content),
        signature=body.signature,
        key_id=key_id,
        status="registered",
        registered_by=call.caller.actor_id,
        registered_at=call.now,
    )
    if settings.agent_release_approvals == 0:
        release = rules.approved(release, call.caller.actor_id, call.now, approvals=0)
    await store.AGENT_RELEASES.insert(tx, release)
    await store.add_file(tx, sha256, body.content)
    return release


async def approve(tx: db.Tx, call: Call[AgentFilePath], body: ApproveAgentRelease) -> AgentRelease:
    call.details["reason"] = body.reason
    release = await _release(tx, call.path.sha256)
    approvals = call.site.settings.agent_release_approvals
    approved = rules.approved(release, call.caller.actor_id, call.now, approvals=approvals)
    await store.AGENT_RELEASES.save(tx, approved)
    return approved


async def list_releases(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[AgentRelease]:
    return await paging.encoded(reader, store.AGENT_RELEASES, call.query, "1 = 1")


async def upgrade(tx: db.Tx, call: Call[NodePath], body: UpgradeAgent) -> NodeTask:
    call.details["reason"] = body.reason
    settings = call.site.settings
    rules.check_approved(await _release(tx, body.sha256), settings.agent_release_approvals)
    params = {"sha256": body.sha256, "trial_s": settings.agent_trial_s}
    return await tasks.queue_for_operator(tx, call, "agent.upgrade", params, ttl_s=settings.agent_upgrade_ttl_s)


async def agent_file(reader: db.Reader, call: Call[AgentFilePath]) -> node.AgentFile:
    sha256 = call.path.sha256
    release, content = await store.AGENT_RELEASES.get(reader, sha256), await store.file(reader, sha256)
    if release is None or content is None:
        raise errors.NotFound
    return node.AgentFile(sha256=sha256, content=content, version=release.version, signature=release.signature)


async def _release(reader: db.Reader, sha256: str) -> AgentRelease:
    release = await store.AGENT_RELEASES.get(reader, sha256)
    if release is None:
        fix = "Register it first: gpuaas agent register BUILD.pyz"
        raise errors.NotFound(f"There is no agent release {sha256}.", fix=fix)
    return release
