"""How much storage artifacts use, and whether more fits: the limit of the project, then the quota of its organisation;
for shared artifacts of an app, the quota of the app.

Published artifacts count at once, before their upload, so that two uploads cannot use the same free bytes."""

from gpuaas_contract.artifacts import Artifact, ArtifactStorage
from gpuaas_contract.paths import AppPath

from gpuaas_platform.artifacts import content, rules, store, trust
from gpuaas_platform.call import Call
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import db
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy


async def present(reader: db.Reader, call: Call) -> ArtifactStorage:
    since = content.kept_since(call.site, call.now)
    bytes_used, artifact_count = await store.storage(reader, [trust.scope_of(call)], since)
    if call.project is None:
        return ArtifactStorage(bytes_used=bytes_used, artifact_count=artifact_count, limit=None)
    return ArtifactStorage(
        bytes_used=bytes_used,
        artifact_count=artifact_count,
        limit=policy_rules.limit(await policy.of_project(reader, call.project), "artifact_bytes_max"),
        org_bytes_used=await _used_by_org(reader, call, call.project.org_id),
        org_bytes_max=call.site.settings.artifact_quota_bytes or None,
    )


async def check_room(
    reader: db.Reader, call: Call, layers: policy_rules.Layers, size_bytes: int, reserved: int = 0
) -> None:
    """Refuse content over a limit; what admins share has none. `reserved`: used bytes of the same artifact."""
    since = content.kept_since(call.site, call.now)
    if isinstance(call.path, AppPath):
        app_bytes_max = call.site.settings.app_artifact_quota_bytes
        used_by_app = await store.storage_of_app(reader, call.path.app_slug, since)
        owner = f"The app {call.path.app_slug}"
        rules.check_quota(owner, app_bytes_max, present=used_by_app - reserved, asked=size_bytes)
    if call.project is None:
        return
    bytes_used, _ = await store.storage(reader, [call.project.project_id], since)
    policy_rules.check_limit(layers, "artifact_bytes_max", present=bytes_used - reserved, asked=size_bytes)
    quota_bytes = call.site.settings.artifact_quota_bytes
    if quota_bytes:
        used_by_org = await _used_by_org(reader, call, call.project.org_id)
        rules.check_quota("The organisation", quota_bytes, present=used_by_org - reserved, asked=size_bytes)


async def check_still_room(reader: db.Reader, call: Call, artifact: Artifact, layers: policy_rules.Layers) -> None:
    """Check the limits again: they may be lower now than at publication. Content that was stored before is accepted."""
    if artifact.content_checked_at is None:
        await check_room(reader, call, layers, artifact.size_bytes, reserved=artifact.size_bytes)


async def _used_by_org(reader: db.Reader, call: Call, org_id: str) -> int:
    scopes = await orgs.project_ids(reader, org_id)
    return (await store.storage(reader, scopes, content.kept_since(call.site, call.now)))[0]
