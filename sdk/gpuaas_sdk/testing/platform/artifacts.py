"""Versions and artifacts of an app in the fake platform. An artifact is promoted immediately. It is fetched with the
token of a delivery, or placed on a machine that has it immediately."""

import datetime
import hashlib
import secrets

from gpuaas_contract.artifacts import Artifact, LocalSource
from gpuaas_contract.catalog import AppVersion, Manifest
from gpuaas_contract.deliveries import CONTENT_PATH, CreateDelivery, Delivery
from gpuaas_contract.errors import DeliveryUnknown, NotFound
from gpuaas_contract.lifecycles import PlacementState
from gpuaas_contract.node import TaskError
from gpuaas_contract.placements import ArtifactPlacement, PlaceArtifact, UnplaceArtifact
from msgspec.structs import replace

from gpuaas_sdk.testing.platform import rows
from gpuaas_sdk.testing.platform.records import Records
from gpuaas_sdk.testing.platform.runtime import Runtime

MEDIA_TYPE = "application/octet-stream"
PLACEMENT_TTL = datetime.timedelta(seconds=120)


class Artifacts:
    """Artifacts by id, with their content, deliveries and placements."""

    def __init__(self, records: Records, runtime: Runtime) -> None:
        self.by_id: dict[str, Artifact] = {}
        self.placements: dict[str, ArtifactPlacement] = {}
        self.failures: list[TaskError] = []
        """The errors with which the next placements fail, one per placement."""
        self._records = records
        self._runtime = runtime
        self._versions: dict[str, AppVersion] = {}
        self._contents: dict[str, bytes] = {}
        self._deliveries: dict[str, Delivery] = {}

    def add_version(self, manifest: Manifest) -> None:
        """Publish a version of the app."""
        self._records.manifests[manifest.version] = manifest
        self._versions[manifest.version] = AppVersion(
            app_slug=manifest.slug,
            version=manifest.version,
            display_name=manifest.display_name,
            summary=manifest.summary,
            state="published",
            manifest=manifest,
            created_at=self._records.clock(),
        )

    def version(self, name: str) -> AppVersion:
        """Return the version, or raise `NotFound`."""
        if name not in self._versions:
            raise NotFound(f"This project has no version {name} of the app.")
        return self._versions[name]

    def put(self, name: str, content: bytes) -> Artifact:
        """Store a promoted artifact."""
        now = self._records.clock()
        artifact = Artifact(
            artifact_id=self._records.new_id("art"),
            scope=self._records.project_id,
            name=name,
            digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
            size_bytes=len(content),
            media_type=MEDIA_TYPE,
            source=LocalSource(),
            lifecycle="promoted",
            trust="verified",
            trust_code="",
            trust_message="",
            channels=["stable"],
            signed=True,
            signers=[],
            reason="",
            created_by="test",
            created_at=now,
            content_checked_at=now,
            verified_at=now,
        )
        self.by_id[artifact.artifact_id] = artifact
        self._contents[artifact.artifact_id] = content
        return artifact

    def named(self, name: str) -> list[Artifact]:
        """Return the artifacts of this name; without a name all of them."""
        return [artifact for artifact in self.by_id.values() if name in ("", artifact.name)]

    def deliver(self, artifact_id: str, request: CreateDelivery) -> Delivery:
        """Return a delivery with a token that fetches the content."""
        artifact, delivery_id = self._artifact(artifact_id), self._records.new_id("adl")
        delivery = Delivery(
            delivery_id=delivery_id,
            artifact_id=artifact_id,
            url=CONTENT_PATH.format(delivery_id=delivery_id),
            token=secrets.token_urlsafe(16),
            expires_at=self._records.clock() + datetime.timedelta(seconds=request.ttl_s),
            digest=artifact.digest,
            size_bytes=artifact.size_bytes,
            media_type=artifact.media_type,
        )
        self._deliveries[delivery_id] = delivery
        return delivery

    def content(self, delivery_id: str, token: str) -> bytes:
        """Return the bytes of a delivery, or raise `DeliveryUnknown`."""
        delivery = self._deliveries.get(delivery_id)
        if delivery is None or not secrets.compare_digest(delivery.token, token):
            raise DeliveryUnknown()
        return self._contents[delivery.artifact_id]

    def place(self, artifact_id: str, request: PlaceArtifact) -> ArtifactPlacement:
        """Place the artifact. The returned placement is `queued`; the next read returns its result."""
        queued = replace(self._begun(artifact_id, request), mode=request.mode)
        self.placements[queued.placement_id] = self._ended(queued)
        return queued

    def unplace(self, artifact_id: str, request: UnplaceArtifact) -> ArtifactPlacement:
        """Remove the artifact. The returned removal is `removing`; the next read returns its result."""
        draft = replace(self._begun(artifact_id, request), state="removing")
        placed = [item for item in self.placements.values() if item.state == "placed" and _is_same_file(item, draft)]
        removing = replace(placed[-1], state="removing", error=None, ended_at=None) if placed else draft
        now = self._records.clock()
        if self.failures:
            state: PlacementState = "placed" if placed else "failed"
            ended = replace(removing, state=state, error=self.failures.pop(0), ended_at=now)
        else:
            ended = replace(removing, state="removed", ended_at=now)
            self.placements |= {item.placement_id: replace(item, state="removed") for item in placed}
        self.placements[removing.placement_id] = ended
        return removing

    def _begun(self, artifact_id: str, request: PlaceArtifact | UnplaceArtifact) -> ArtifactPlacement:
        artifact, operation = self._artifact(artifact_id), self._runtime.claimed(request.operation_id, request.epoch)
        targets = [target.allocation_id for target in operation.targets]
        self._records.check_machine(operation.instance_id, request.allocation_id, targets)
        now, location = self._records.clock(), rows.place(request.allocation_id)
        return ArtifactPlacement(
            placement_id=self._records.new_id("plc"),
            org_id=operation.org_id,
            project_id=operation.project_id,
            artifact_id=artifact_id,
            name=artifact.name,
            digest=artifact.digest,
            size_bytes=artifact.size_bytes,
            mode="0644",
            allocation_id=request.allocation_id,
            node_id=location["node_id"],
            node_name=location["node_name"],
            operation_id=request.operation_id,
            actor_id="test",
            state="queued",
            correlation_id=operation.correlation_id,
            created_at=now,
            expires_at=now + PLACEMENT_TTL,
        )

    def placement(self, placement_id: str) -> ArtifactPlacement:
        """Return the placement, or raise `NotFound`."""
        if placement_id not in self.placements:
            raise NotFound()
        return self.placements[placement_id]

    def _ended(self, placement: ArtifactPlacement) -> ArtifactPlacement:
        now = self._records.clock()
        if self.failures:
            return replace(placement, state="failed", error=self.failures.pop(0), ended_at=now)
        path = f"/var/lib/gpuaas/artifacts/{placement.allocation_id}/{placement.digest.replace(':', '/')}"
        return replace(placement, state="placed", path=path, ended_at=now)

    def _artifact(self, artifact_id: str) -> Artifact:
        if artifact_id not in self.by_id:
            raise NotFound(f"There is no artifact {artifact_id} in this project.")
        return self.by_id[artifact_id]


def _is_same_file(placement: ArtifactPlacement, other: ArtifactPlacement) -> bool:
    """Return whether both are the same content on the same machine: it is one file there."""
    return (placement.allocation_id, placement.digest) == (other.allocation_id, other.digest)
