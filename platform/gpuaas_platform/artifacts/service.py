"""Publish, verify, promote and end artifacts. `instances` uses `deployable` when an app is deployed."""

from collections.abc import AsyncIterator, Callable

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import (
    SHARED,
    Artifact,
    ArtifactQuery,
    EndArtifact,
    Envelope,
    ProjectArtifactQuery,
    PromoteArtifact,
    PublishArtifact,
    VerifyArtifact,
)
from gpuaas_contract.event_types import ArtifactChanged
from gpuaas_contract.identity import Project
from gpuaas_contract.lifecycles import ArtifactLifecycle
from gpuaas_contract.paths import AppArtifactPath, AppPath, ArtifactPath, Path, ProjectArtifactPath

from gpuaas_platform.artifacts import content, rules, signatures, storage, store, trust
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record

ArtifactCall = Call[ArtifactPath] | Call[AppArtifactPath] | Call[ProjectArtifactPath]
"""A request about one artifact of a project, of an app or of the platform."""


async def publish(tx: db.Tx, call: Call, body: PublishArtifact) -> Artifact:
    """Publish an artifact. It is immutable, so each owner can publish a name with a digest only once in a scope."""
    scope, bytes_max = trust.scope_of(call), call.site.settings.artifact_bytes_max
    app_slug = call.path.app_slug if isinstance(call.path, AppPath) else ""
    if body.size_bytes > bytes_max:
        raise errors.ArtifactTooLarge(f"The platform takes artifacts of at most {bytes_max} bytes.")
    layers = await _layers(tx, call.project)
    check_source(body, layers)
    await storage.check_room(tx, call, layers, body.size_bytes)
    await _check_digest_not_revoked(tx, scope, body.digest)
    named = await store.named(tx, scope, body.name, body.digest)
    present = next((artifact for artifact in named if artifact.app_slug == app_slug), None)
    if present is not None:
        details = {"artifact_id": present.artifact_id}
        raise errors.Conflict(f"{body.name} with this digest is already published.", details=details)
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
        app_slug=app_slug,
    )
    await store.ARTIFACTS.insert(tx, artifact)
    if body.signature is not None:
        await store.keep_signature(tx, artifact.artifact_id, body.signature)
    await _announce(tx, call, artifact)
    return artifact


async def list_artifacts(reader: db.Reader, call: Call[Path, ArtifactQuery]) -> EncodedPage[Artifact]:
    query = call.query
    shared = isinstance(query, ProjectArtifactQuery) and query.shared
    where, values = "scope = $1", [SHARED if shared else trust.scope_of(call)]
    if isinstance(call.path, AppPath):
        where, values = f"{where} AND app_slug = $2", [*values, call.path.app_slug]
    if query.name:
        where, values = f"{where} AND name = ${len(values) + 1}", [*values, query.name]
    if shared:  # in the statement: a page that is filtered after it was read shows by its token that there are more
        slugs = sorted({"", *await catalog.entitled_slugs(reader, call.in_project().project_id)})
        where, values = f"{where} AND app_slug IN ({db.marks(len(slugs), len(values) + 1)})", [*values, *slugs]
    return await paging.encoded(reader, store.ARTIFACTS, query, where, *values)


async def get(reader: db.Reader, call: ArtifactCall) -> Artifact:
    return await visible(reader, call)


async def _hidden(reader: db.Reader, project: Project | None) -> Callable[[Artifact], bool]:
    """Return which artifacts do not exist for a project: those of apps that it was never entitled to."""
    if project is None:
        return lambda artifact: False
    slugs = await catalog.entitled_slugs(reader, project.project_id)
    return lambda artifact: bool(artifact.app_slug) and artifact.app_slug not in slugs


async def own(reader: db.Reader, call: ArtifactCall) -> Artifact:
    """Return the artifact that the path names, if it belongs to the scope of the path."""
    return await _named(reader, call, trust.scope_of(call))


async def visible(reader: db.Reader, call: ArtifactCall) -> Artifact:
    """Return the artifact that the path names, if it belongs to the scope of the path or the platform shares it."""
    return await _named(reader, call, trust.scope_of(call), SHARED)


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's artifacts that are neither retired nor revoked."""
    return await store.ARTIFACTS.keys(reader, "scope = $1 AND ended_at = 0", project_id)


async def upload(call: ArtifactCall, chunks: AsyncIterator[bytes]) -> None:
    artifact = await _open_for_upload(call.site.database.reader, call)
    blobs = content.blobs(call.site)
    await blobs.take(chunks, artifact.digest, artifact.size_bytes, keep=not call.dry_run)


async def uploaded(tx: db.Tx, call: ArtifactCall, _: None) -> Artifact:
    artifact = await _open_for_upload(tx, call)
    return await _changed(tx, call, msgspec.structs.replace(artifact, content_checked_at=call.now))


async def _named(reader: db.Reader, call: ArtifactCall, *scopes: str) -> Artifact:
    """Return the artifact with this id, digest or unique name, from the first of the scopes that has a match."""
    named, is_hidden = call.path.artifact_id, await _hidden(reader, call.project)
    artifact = await store.ARTIFACTS.get(reader, named)
    for scope in scopes:
        if artifact is None:
            called = await store.called(reader, scope, named)
            matches = [match for match in called if _is_of_path(call, match) and not is_hidden(match)]
            artifact = names.only(matches, named, lambda artifact: artifact.artifact_id)
    if artifact is None or artifact.scope not in scopes or not _is_of_path(call, artifact) or is_hidden(artifact):
        raise errors.NotFound
    return artifact


def _is_of_path(call: ArtifactCall, artifact: Artifact) -> bool:
    """Return whether the artifact is of the app that the path names, if it names one."""
    return not isinstance(call.path, AppPath) or artifact.app_slug == call.path.app_slug


async def _open_for_upload(reader: db.Reader, call: ArtifactCall) -> Artifact:
    artifact = await own(reader, call)
    rules.check_open(artifact)
    if not rules.is_local(artifact):
        raise errors.Conflict(
            f"{artifact.name} comes from {rules.canonical(artifact.source)}; nothing is uploaded for it."
        )
    await storage.check_still_room(reader, call, artifact, await _layers(reader, call.project))
    return artifact


async def _check_uploaded(reader: db.Reader, artifact: Artifact) -> None:
    """Refuse a local artifact whose content was never uploaded in its scope. The store may have it nevertheless, from
    another project: a digest is no secret, so a project must not get the content by publishing the digest."""
    if rules.is_local(artifact) and not await store.was_uploaded(reader, artifact.scope, artifact.digest):
        raise errors.ArtifactContentMissing(f"The content of {artifact.name} was not uploaded.")


async def sign(tx: db.Tx, call: ArtifactCall, envelope: Envelope) -> Artifact:
    """Save a signature. A verified artifact stays verified; the new signature counts after the next verification."""
    artifact = await own(tx, call)
    rules.check_open(artifact)
    if await store.signature(tx, artifact.artifact_id) == envelope:
        return artifact
    await store.keep_signature(tx, artifact.artifact_id, envelope)
    return await _changed(tx, call, msgspec.structs.replace(artifact, signed=True))


async def examine(call: ArtifactCall, body: VerifyArtifact) -> errors.ArtifactRefused | None:
    """The slow part of a verification. Wrong content is returned, to be recorded; an unreachable source raises."""
    reader = call.site.database.reader
    artifact = await own(reader, call)
    rules.check_open(artifact)
    layers = await _layers(reader, call.project)
    check_source(artifact, layers)
    await storage.check_still_room(reader, call, artifact, layers)
    try:
        await _check_uploaded(reader, artifact)
        await content.examine(call, artifact, layers, body.source_token)
    except errors.ArtifactRefused as refusal:
        return refusal
    return None


async def conclude(tx: db.Tx, call: ArtifactCall, wrong_content: errors.ArtifactRefused | None) -> Artifact:
    artifact = await own(tx, call)
    rules.check_open(artifact)
    try:
        if wrong_content is not None:
            raise wrong_content
        envelope = await store.signature(tx, artifact.artifact_id)
        signed = signatures.signed(envelope, artifact.digest, await trust.keys_for(tx, artifact.scope))
    except errors.ArtifactRefused as refusal:
        return await _changed(tx, call, rules.failed(artifact, refusal))
    return await _changed(tx, call, rules.verified(artifact, signed.signers, call.now))


async def examine_again(call: ArtifactCall, body: PromoteArtifact) -> PromoteArtifact:
    """The slow part of a promotion: check that the content is still the content that was verified."""
    reader = call.site.database.reader
    artifact = await own(reader, call)
    layers = await _layers(reader, call.project)
    await _check_usable(reader, artifact, artifact.scope, layers)
    rules.moved(artifact, "promoted")
    await _check_uploaded(reader, artifact)
    await content.examine(call, artifact, layers, body.source_token)
    return body


async def promote(tx: db.Tx, call: ArtifactCall, body: PromoteArtifact) -> Artifact:
    artifact = await own(tx, call)
    await _check_usable(tx, artifact, artifact.scope, await _layers(tx, call.project))
    promoted = rules.moved(artifact, "promoted")
    channels = list(dict.fromkeys([*artifact.channels, body.channel]))
    return await _changed(tx, call, msgspec.structs.replace(promoted, channels=channels, content_checked_at=call.now))


async def deprecate(tx: db.Tx, call: ArtifactCall, body: EndArtifact) -> Artifact:
    return await _changed(tx, call, await _moved(tx, call, "deprecated", body.reason))


async def retire(tx: db.Tx, call: ArtifactCall, body: EndArtifact) -> Artifact:
    return await _changed(tx, call, rules.ended(await _moved(tx, call, "retired", body.reason), call.now))


async def revoke(tx: db.Tx, call: ArtifactCall, body: EndArtifact) -> Artifact:
    artifact = await own(tx, call)
    return await _changed(tx, call, rules.ended(rules.revoked(artifact, body.reason), call.now))


async def deployable(reader: db.Reader, project: Project, name: str, digest: str) -> Artifact:
    """Return the artifact that a deploy may use now: the project's own, else the platform's. Raise if there is none."""
    layers = await policy.of_project(reader, project)
    refusals: list[errors.ApiError] = []
    own, is_hidden = await store.named(reader, project.project_id, name, digest), await _hidden(reader, project)
    for artifact in [*own, *await store.named(reader, SHARED, name, digest)]:
        if is_hidden(artifact):
            continue
        try:
            await _check_usable(reader, artifact, project.project_id, layers)
            rules.check_promoted(artifact, "promoted")
        except errors.ApiError as refusal:
            refusals.append(refusal)
        else:
            return artifact
    raise refusals[0] if refusals else errors.ArtifactUnknown(f"There is no artifact {name} with {digest}.")


async def check_deliverable(reader: db.Reader, project: Project, artifact: Artifact) -> None:
    """Refuse an artifact that must not be delivered. Deprecated ones are still delivered, for running instances."""
    await _check_usable(reader, artifact, project.project_id, await policy.of_project(reader, project))
    rules.check_promoted(artifact, "promoted", "deprecated")


async def _moved(reader: db.Reader, call: ArtifactCall, lifecycle: ArtifactLifecycle, reason: str) -> Artifact:
    return msgspec.structs.replace(rules.moved(await own(reader, call), lifecycle), reason=reason)


async def still_deliverable(reader: db.Reader, project_id: str, artifact_id: str) -> Artifact | None:
    """Check again an artifact that was delivered before, and return it; None if it or the project no longer exists."""
    project = await orgs.project_by_id(reader, project_id)
    artifact = await store.ARTIFACTS.get(reader, artifact_id)
    if project is None or artifact is None:
        return None
    await check_deliverable(reader, project, artifact)
    return artifact


def check_source(artifact: Artifact | PublishArtifact, layers: policy_rules.Layers) -> None:
    verdict = policy_rules.verdict(layers, "artifact_source", rules.canonical(artifact.source))
    if not verdict.allowed:
        raise errors.ArtifactSourceDenied(
            f"Artifacts may not come from {verdict.value}: {verdict.rule}.",
            details={"layer": verdict.layer, "rule": verdict.rule, "source": verdict.value},
        )


async def _check_usable(reader: db.Reader, artifact: Artifact, scope: str, layers: policy_rules.Layers) -> None:
    """Refuse an artifact that is not trusted. Called at each promotion, deploy and delivery, because trust can end."""
    rules.check_trusted(artifact, await trust.keys_for(reader, artifact.scope))
    await _check_digest_not_revoked(reader, scope, artifact.digest)
    check_source(artifact, layers)


async def _check_digest_not_revoked(reader: db.Reader, scope: str, digest: str) -> None:
    revoked = await store.revoked(reader, scope, digest)
    if revoked is not None:
        raise errors.ArtifactRevoked(f"This digest was revoked as {revoked.name}: {revoked.reason}")


async def _layers(reader: db.Reader, project: Project | None) -> policy_rules.Layers:
    return await policy.of_project(reader, project) if project is not None else await policy.of_platform(reader)


async def _changed(tx: db.Tx, call: Call, artifact: Artifact) -> Artifact:
    await store.ARTIFACTS.save(tx, artifact)
    await _announce(tx, call, artifact)
    return artifact


async def _announce(tx: db.Tx, call: Call, artifact: Artifact) -> None:
    call.details.update(digest=artifact.digest, lifecycle=artifact.lifecycle, trust=artifact.trust)
    if artifact.reason:
        call.details["reason"] = artifact.reason
    changed = structs.pick(ArtifactChanged, artifact, code=artifact.trust_code)
    await record.emit(tx, call.origin, "artifacts.artifact.changed", changed, call.owner)
