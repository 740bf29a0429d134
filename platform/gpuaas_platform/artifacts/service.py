"""Publish, verify, promote and end artifacts. `instances` asks `deployable` when an app is deployed."""

from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import (
    SHARED,
    Artifact,
    ArtifactStorage,
    Envelope,
    PromoteArtifact,
    PublishArtifact,
    VerifyArtifact,
)
from gpuaas_contract.event_types import ArtifactChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.lifecycles import ArtifactLifecycle

from gpuaas_platform.artifacts import content, rules, signatures, store, trust
from gpuaas_platform.call import Call
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import db, ids, names
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy


@dataclass(frozen=True)
class Examined:
    """What a look at the content found, before the transaction that draws the conclusion."""

    refusal: errors.ArtifactRefused | None = None


async def publish(tx: db.Tx, call: Call, body: PublishArtifact) -> Artifact:
    """An artifact never changes what it is: the same name and digest are published once in each scope."""
    scope, bytes_max = trust.scope_of(call), call.site.settings.artifact_bytes_max
    if body.size_bytes > bytes_max:
        raise errors.ArtifactTooLarge(f"The platform takes artifacts of at most {bytes_max} bytes.")
    layers = await _layers(tx, call.project)
    check_source(body, layers)
    await _check_room(tx, call, layers, body.size_bytes)
    await _check_digest_not_revoked(tx, scope, body.digest)
    present = await store.named(tx, scope, body.name, body.digest)
    if present is not None:
        raise errors.Conflict(
            f"{body.name} with this digest is published already.", details={"artifact_id": present.artifact_id}
        )
    artifact = Artifact(
        artifact_id=ids.new("art"),
        scope=scope,
        name=body.name,
        digest=body.digest,
        size_bytes=body.size_bytes,
        media_type=body.media_type,
        source=body.source,
        lifecycle="published",
        trust="unverified",
        trust_code="",
        trust_message="",
        channels=[],
        signed=body.signature is not None,
        signers=[],
        reason="",
        created_by=call.caller.actor_id,
        created_at=call.now,
    )
    await store.ARTIFACTS.insert(tx, artifact)
    if body.signature is not None:
        await store.keep_signature(tx, artifact.artifact_id, body.signature)
    await _tell(tx, call, artifact)
    return artifact


async def own(reader: db.Reader, call: Call) -> Artifact:
    """The artifact the route names, if it belongs to where the route is."""
    found = await _named(reader, call, trust.scope_of(call))
    if found is None or found.scope != trust.scope_of(call):
        raise errors.NotFound
    return found


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's artifacts that are neither retired nor revoked."""
    return await store.ARTIFACTS.keys(reader, "scope = $1 AND ended_at = 0", project_id)


async def visible(reader: db.Reader, call: Call) -> Artifact:
    """The same, or one that the platform shares."""
    found = await _named(reader, call, trust.scope_of(call)) or await _named(reader, call, SHARED)
    if found is None or found.scope not in (trust.scope_of(call), SHARED):
        raise errors.NotFound
    return found


async def _named(reader: db.Reader, call: Call, scope: str) -> Artifact | None:
    """By id, digest, or a name that only one artifact of the scope has."""
    named = call.params["artifact_id"]
    found = await store.ARTIFACTS.get(reader, named)
    if found is None:
        found = names.only(await store.called(reader, scope, named), named, lambda artifact: artifact.artifact_id)
    return found


async def open_for_upload(reader: db.Reader, call: Call) -> Artifact:
    artifact = await own(reader, call)
    rules.check_open(artifact)
    if not rules.is_local(artifact):
        raise errors.Conflict(
            f"{artifact.name} comes from {rules.canonical(artifact.source)}; nothing is uploaded for it."
        )
    await _check_still_room(reader, call, artifact, await _layers(reader, call.project))
    return artifact


async def uploaded(tx: db.Tx, call: Call) -> Artifact:
    artifact = await open_for_upload(tx, call)
    return await _changed(tx, call, msgspec.structs.replace(artifact, content_checked_at=call.now))


async def sign(tx: db.Tx, call: Call, envelope: Envelope) -> Artifact:
    """What was verified stays so; the new signature counts once it is verified itself."""
    artifact = await own(tx, call)
    rules.check_open(artifact)
    if await store.signature(tx, artifact.artifact_id) == envelope:
        return artifact
    await store.keep_signature(tx, artifact.artifact_id, envelope)
    return await _changed(tx, call, msgspec.structs.replace(artifact, signed=True))


async def examine(call: Call, body: VerifyArtifact) -> Examined:
    """The slow part of verifying. What is wrong with the content is an outcome; a source out of reach is none."""
    reader = call.site.database.reader
    artifact = await own(reader, call)
    rules.check_open(artifact)
    layers = await _layers(reader, call.project)
    check_source(artifact, layers)
    await _check_still_room(reader, call, artifact, layers)
    try:
        await content.examine(call, artifact, layers, body.source_token)
    except errors.ArtifactRefused as refusal:
        return Examined(refusal)
    return Examined()


async def conclude(tx: db.Tx, call: Call, examined: Examined) -> Artifact:
    artifact = await own(tx, call)
    rules.check_open(artifact)
    try:
        if examined.refusal is not None:
            raise examined.refusal
        envelope = await store.signature(tx, artifact.artifact_id)
        signers = signatures.signers(envelope, artifact.digest, await trust.keys_for(tx, artifact.scope))
    except errors.ArtifactRefused as refusal:
        return await _changed(tx, call, rules.failed(artifact, refusal))
    return await _changed(tx, call, rules.verified(artifact, signers, call.now))


async def examine_again(call: Call, body: PromoteArtifact) -> PromoteArtifact:
    """The slow part of promoting: the content must still be what was verified."""
    reader = call.site.database.reader
    artifact = await own(reader, call)
    layers = await _layers(reader, call.project)
    await _check_usable(reader, artifact, artifact.scope, layers)
    rules.moved(artifact, "promoted")
    await content.examine(call, artifact, layers, body.source_token)
    return body


async def promote(tx: db.Tx, call: Call, body: PromoteArtifact) -> Artifact:
    artifact = await own(tx, call)
    await _check_usable(tx, artifact, artifact.scope, await _layers(tx, call.project))
    promoted = rules.moved(artifact, "promoted")
    channels = list(dict.fromkeys([*artifact.channels, body.channel]))
    return await _changed(tx, call, msgspec.structs.replace(promoted, channels=channels, content_checked_at=call.now))


async def end(tx: db.Tx, call: Call, lifecycle: ArtifactLifecycle, reason: str) -> Artifact:
    """Deprecate or retire."""
    artifact = await own(tx, call)
    moved = msgspec.structs.replace(rules.moved(artifact, lifecycle), reason=reason)
    return await _changed(tx, call, rules.ended(moved, call.now) if lifecycle == "retired" else moved)


async def revoke(tx: db.Tx, call: Call, reason: str) -> Artifact:
    artifact = await own(tx, call)
    return await _changed(tx, call, rules.ended(rules.revoked(artifact, reason), call.now))


async def deployable(reader: db.Reader, project: Project, name: str, digest: str) -> Artifact:
    """The artifact a deploy may use now: the project's own, else the platform's; or the reason why not."""
    layers = await policy.of_project(reader, project)
    refusals: list[errors.ApiError] = []
    for scope in (project.project_id, SHARED):
        artifact = await store.named(reader, scope, name, digest)
        if artifact is None:
            continue
        try:
            await _check_usable(reader, artifact, project.project_id, layers)
            rules.check_deployable(artifact)
        except errors.ApiError as refusal:
            refusals.append(refusal)
        else:
            return artifact
    raise refusals[0] if refusals else errors.ArtifactUnknown(f"There is no artifact {name} with {digest}.")


async def check_deliverable(reader: db.Reader, project: Project, artifact: Artifact) -> None:
    layers = await policy.of_project(reader, project)
    await _check_usable(reader, artifact, project.project_id, layers)
    rules.check_deliverable(artifact)


async def storage(reader: db.Reader, call: Call) -> ArtifactStorage:
    bytes_used, artifact_count = await _stored(reader, call)
    limit = None
    if call.project is not None:
        limit = policy_rules.limit(await policy.of_project(reader, call.project), "artifact_bytes_max")
    return ArtifactStorage(bytes_used=bytes_used, artifact_count=artifact_count, limit=limit)


async def _stored(reader: db.Reader, call: Call) -> tuple[int, int]:
    return await store.storage(reader, trust.scope_of(call), content.kept_since(call.site, call.now))


async def _check_room(reader: db.Reader, call: Call, layers: policy_rules.Layers, size_bytes: int) -> None:
    """Room is taken when something is published: so no two uploads can take the same. What is shared has no limit."""
    if call.project is not None:
        bytes_used, _ = await _stored(reader, call)
        policy_rules.check_limit(layers, "artifact_bytes_max", present=bytes_used, asked=size_bytes)


async def _check_still_room(reader: db.Reader, call: Call, artifact: Artifact, layers: policy_rules.Layers) -> None:
    """The limit may be lower than when it was published. What is here already stays."""
    if call.project is not None and artifact.content_checked_at is None:
        bytes_used, _ = await _stored(reader, call)
        others, asked = bytes_used - artifact.size_bytes, artifact.size_bytes
        policy_rules.check_limit(layers, "artifact_bytes_max", present=others, asked=asked)


async def still_deliverable(reader: db.Reader, project_id: str, artifact_id: str) -> Artifact | None:
    """Asked again of what was handed out before; None when it, or the project, is gone."""
    project = await identity_store.PROJECTS.get(reader, project_id)
    artifact = await store.ARTIFACTS.get(reader, artifact_id)
    if project is None or artifact is None:
        return None
    await check_deliverable(reader, project, artifact)
    return artifact


def check_source(artifact: Artifact | PublishArtifact, layers: policy_rules.Layers) -> None:
    found = policy_rules.verdict(layers, "artifact_source", rules.canonical(artifact.source))
    if not found.allowed:
        raise errors.ArtifactSourceDenied(
            f"Artifacts may not come from {found.value}: {found.rule}.",
            details={"layer": found.layer, "rule": found.rule, "source": found.value},
        )


async def _check_usable(reader: db.Reader, artifact: Artifact, scope: str, layers: policy_rules.Layers) -> None:
    """Asked anew each time it is promoted, deployed or delivered: trust is a thing of the moment."""
    rules.check_trusted(artifact, await trust.keys_for(reader, artifact.scope))
    await _check_digest_not_revoked(reader, scope, artifact.digest)
    check_source(artifact, layers)


async def _check_digest_not_revoked(reader: db.Reader, scope: str, digest: str) -> None:
    found = await store.revoked(reader, (scope, SHARED), digest)
    if found is not None:
        raise errors.ArtifactRevoked(f"This digest was revoked as {found.name}: {found.reason}")


async def _layers(reader: db.Reader, project: Project | None) -> policy_rules.Layers:
    return await policy.of_project(reader, project) if project is not None else await policy.of_platform(reader)


async def _changed(tx: db.Tx, call: Call, artifact: Artifact) -> Artifact:
    await store.ARTIFACTS.save(tx, artifact)
    await _tell(tx, call, artifact)
    return artifact


async def _tell(tx: db.Tx, call: Call, artifact: Artifact) -> None:
    call.details.update(digest=artifact.digest, lifecycle=artifact.lifecycle, trust=artifact.trust)
    if artifact.reason:
        call.details["reason"] = artifact.reason
    changed = ArtifactChanged(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        digest=artifact.digest,
        lifecycle=artifact.lifecycle,
        trust=artifact.trust,
        channels=artifact.channels,
        code=artifact.trust_code,
        reason=artifact.reason,
    )
    await trust.tell(tx, call, "artifacts.artifact.changed", changed)
