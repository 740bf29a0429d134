"""Artifacts of the app for one operation: find them, get a token for them, place them on machines and remove them.
`Operation` calls these functions."""

from collections.abc import Collection, Mapping

import msgspec
from gpuaas_contract import artifacts
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import PROJECT_APP_GET
from gpuaas_contract.deliveries import DELIVERY_CREATE, CreateDelivery, Delivery
from gpuaas_contract.errors import BY_CODE, ApiError, LeaseLost
from gpuaas_contract.instances import Instance
from gpuaas_contract.node import TaskError
from gpuaas_contract.placements import (
    PLACEMENT_CREATE,
    PLACEMENT_GET,
    PLACEMENT_REMOVE,
    ArtifactPlacement,
    FileMode,
    PlaceArtifact,
    UnplaceArtifact,
)

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.failures import NeedsOperator, Permanent, Temporary

_WAIT_S = 30


async def find(lease: Lease, instance: Instance, name: str, version: str) -> Artifact:
    """Return the artifact that the manifest of `version` names; an empty version means the instance's version."""
    try:
        return await _with_digest(lease, name, await _digest(lease, instance, name, version))
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"Artifact {name} cannot be read", error) from error


async def deliver(lease: Lease, artifact: Artifact) -> Delivery:
    """Return the address of the artifact's content and a short-lived token to fetch it."""
    record = lease.record
    request = CreateDelivery(purpose=record.kind, operation_id=record.operation_id)
    try:
        delivery = await lease.call(DELIVERY_CREATE, request, artifact_id=artifact.artifact_id)
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"Artifact {artifact.name} cannot be delivered", error) from error
    lease.log.hide(delivery.token)
    return msgspec.structs.replace(delivery, url=f"{lease.server}{delivery.url}")


async def place(lease: Lease, artifact: Artifact, allocation_id: str, mode: FileMode) -> ArtifactPlacement:
    """Have the machine fetch the artifact and wait for the result; it fails if the machine does not respond in time."""
    operation_id = lease.record.operation_id
    request = PlaceArtifact(allocation_id=allocation_id, operation_id=operation_id, epoch=lease.epoch, mode=mode)
    try:
        placement = await _ended(lease, await lease.call(PLACEMENT_CREATE, request, artifact_id=artifact.artifact_id))
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"Artifact {artifact.name} cannot be placed", error) from error
    if placement.error is not None:
        raise _failure(placement, placement.error, "placed on")
    return placement


async def unplace(lease: Lease, artifact: Artifact, allocation_id: str) -> None:
    """Have the machine delete the artifact and wait for the result. It succeeds if the machine does not have it."""
    request = UnplaceArtifact(allocation_id=allocation_id, operation_id=lease.record.operation_id, epoch=lease.epoch)
    try:
        removal = await _ended(lease, await lease.call(PLACEMENT_REMOVE, request, artifact_id=artifact.artifact_id))
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"Artifact {artifact.name} cannot be removed", error) from error
    if removal.error is not None:
        raise _failure(removal, removal.error, "removed from")


async def with_digests(lease: Lease, wanted: Mapping[str, Collection[str]]) -> list[Artifact]:
    """Return the project's artifacts with these digests, by name. One that is not known any more is left out."""
    known: dict[str, Artifact] = {}
    for name, digests_of_name in wanted.items():
        for shared in (True, False):
            async for artifact in lease.pages(artifacts.LIST, query={"name": name, "shared": shared}):
                if artifact.digest in digests_of_name:
                    known[artifact.digest] = artifact
    return list(known.values())


async def _ended(lease: Lease, placement: ArtifactPlacement) -> ArtifactPlacement:
    while placement.state in ("queued", "removing"):
        placement = await lease.call(
            PLACEMENT_GET,
            query={"wait_s": _WAIT_S},
            artifact_id=placement.artifact_id,
            placement_id=placement.placement_id,
        )
    return placement


async def digests(lease: Lease, instance: Instance, version: str) -> dict[str, str]:
    """Return the digest of each artifact that the manifest of `version` names; empty means the instance's version."""
    if not version:
        return instance.artifacts
    try:
        app_version = await lease.call(PROJECT_APP_GET, app_slug=instance.app_slug, version=version)
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"The artifacts of {instance.app_slug} {version} cannot be read", error) from error
    return {key: reference.digest for key, reference in app_version.manifest.artifacts.items()}


async def _digest(lease: Lease, instance: Instance, name: str, version: str) -> str:
    digests_by_name = await digests(lease, instance, version)
    if name not in digests_by_name:
        known = ", ".join(sorted(digests_by_name)) or "none"
        raise Permanent(
            f"{instance.app_slug} {version or instance.app_version} has no artifact {name}; it has {known}."
        )
    return digests_by_name[name]


async def _with_digest(lease: Lease, name: str, digest: str) -> Artifact:
    """Return the project's artifact with this digest; if there is none, one that the platform shares. Several apps can
    share the same content, so one that can be delivered comes before others."""
    matches: list[Artifact] = []
    for shared in (False, True):
        async for artifact in lease.pages(artifacts.LIST, query={"name": name, "shared": shared}):
            if artifact.digest == digest and _is_usable(artifact):
                return artifact
            matches += [artifact] if artifact.digest == digest else []
    if matches:
        return matches[0]
    raise Permanent(
        f"This project has no artifact {name} with the digest {digest}.",
        fix="Publish, verify and promote the artifact first.",
    )


def _is_usable(artifact: Artifact) -> bool:
    return artifact.trust == "verified" and artifact.lifecycle in ("promoted", "deprecated")


def _failure(placement: ArtifactPlacement, error: TaskError, done: str) -> Temporary | Permanent:
    text = f"Artifact {placement.name} could not be {done} {placement.node_name}: {error.code}: {error.message}"
    if error.code == "no_answer":
        return Temporary(text)
    if error.code == "disk_full":
        return NeedsOperator(text, fix=f"Free disk space on {placement.node_name}, then retry the operation.")
    known = BY_CODE.get(error.code)
    return Permanent(text, fix=known.default_fix if known else "")
