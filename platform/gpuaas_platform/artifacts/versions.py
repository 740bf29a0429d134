"""Register and publish app versions, and compare their manifests with the published artifacts.

Shared artifacts are compared only. A project may also publish an artifact for itself, so an artifact that is not shared
is a warning; a digest that is shared under another name is a mistake, because a deploy looks for name and digest.
Artifacts of other apps refuse nothing: their publishers could stop this app."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import SHARED
from gpuaas_contract.catalog import AppVersion, ArtifactRef, CheckedVersion, Manifest, PublishVersion
from gpuaas_contract.paths import AppVersionPath

from gpuaas_platform.artifacts import rules as artifact_rules
from gpuaas_platform.artifacts import store, trust
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.kit import db


async def register(tx: db.Tx, call: Call, manifest: Manifest) -> CheckedVersion:
    """Register a version. It cannot be corrected later, so a manifest that contradicts an artifact is refused."""
    for name, ref in manifest.artifacts.items():
        await _check(tx, manifest.slug, name, ref)
    warnings = await _warnings(tx, manifest)
    return _checked(await catalog.register(tx, call, manifest), warnings)


async def publish(tx: db.Tx, call: Call[AppVersionPath], body: PublishVersion) -> CheckedVersion:
    published = await catalog.publish(tx, call, body)
    return _checked(published, await _warnings(tx, published.manifest))


def _checked(version: AppVersion, warnings: list[str]) -> CheckedVersion:
    return CheckedVersion(**msgspec.structs.asdict(version), warnings=warnings)


async def _warnings(reader: db.Reader, manifest: Manifest) -> list[str]:
    return [warning for name, ref in manifest.artifacts.items() if (warning := await _warning(reader, name, ref))]


async def _warning(reader: db.Reader, name: str, ref: ArtifactRef) -> str:
    """Return why projects cannot use a shared artifact yet; empty if they can."""
    why: list[str] = []
    for artifact in await store.named(reader, SHARED, name, ref.digest):
        try:
            artifact_rules.check_trusted(artifact, await trust.keys_for(reader, SHARED))
            artifact_rules.check_promoted(artifact, "promoted")
        except errors.ApiError as refusal:
            why.append(f"artifacts.{name}: {refusal.message} {refusal.fix}".rstrip())
        else:
            return ""
    return (
        why[0]
        if why
        else (
            f"artifacts.{name}: no shared artifact has this name and the digest {ref.digest}. A project cannot deploy "
            f"before it is published, for all projects or in the project: gpuaas artifact publish {name} --file FILE"
        )
    )


async def _check(reader: db.Reader, app_slug: str, name: str, ref: ArtifactRef) -> None:
    """Refuse a reference that can never fit an artifact of this app or of the platform itself."""
    with_digest = await store.with_digest(reader, SHARED, ref.digest)
    known = [artifact for artifact in with_digest if artifact.app_slug in ("", app_slug)]
    same = [artifact for artifact in known if artifact.name == name]
    if known and not same:
        others = ", ".join(sorted({artifact.name for artifact in known}))
        raise _contradiction(name, f"{ref.digest} is published as {others}; the key must be the published name")
    types = sorted({artifact.media_type for artifact in same})
    if ref.media_type and types and ref.media_type not in types:
        raise _contradiction(name, f"the artifact has the media type {', '.join(types)}, not {ref.media_type}")


def _contradiction(name: str, why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(
        f"The manifest and the artifact do not fit: artifacts.{name}: {why}.",
        details={"field": f"artifacts.{name}"},
        fix="Correct the manifest before you register it: a version never changes.",
    )
