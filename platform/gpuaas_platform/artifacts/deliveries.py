"""Hand out an artifact for a task: a short-lived token for one artifact, and the content it gives access to."""

import datetime
import hmac

from gpuaas_contract import errors
from gpuaas_contract.deliveries import CONTENT_PATH, CreateDelivery, Delivery
from gpuaas_contract.event_types import ArtifactDelivery
from gpuaas_contract.paths import ArtifactDeliveryPath, ProjectArtifactPath

from gpuaas_platform.artifacts import content, service, store
from gpuaas_platform.call import Call, Source
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.record import service as record


async def create(tx: db.Tx, call: Call[ProjectArtifactPath], body: CreateDelivery) -> Delivery:
    project, artifact = call.in_project(), await service.visible(tx, call)
    await service.check_deliverable(tx, project, artifact)
    delivery_id, token = ids.new("adl"), ids.new_secret("delivery")
    delivery = Delivery(
        delivery_id=delivery_id,
        artifact_id=artifact.artifact_id,
        url=CONTENT_PATH.format(delivery_id=delivery_id),
        token=token,
        expires_at=call.now + datetime.timedelta(seconds=body.ttl_s),
        digest=artifact.digest,
        size_bytes=artifact.size_bytes,
        media_type=artifact.media_type,
    )
    await store.add_delivery(
        tx, delivery_id, project.project_id, artifact.artifact_id, ids.digest(token), delivery.expires_at
    )
    call.details.update(digest=artifact.digest, purpose=body.purpose, operation_id=body.operation_id)
    payload = ArtifactDelivery(
        delivery_id=delivery_id,
        artifact_id=artifact.artifact_id,
        digest=artifact.digest,
        purpose=body.purpose,
        operation_id=body.operation_id,
        actor_id=call.caller.actor_id,
        expires_at=delivery.expires_at,
    )
    await record.emit(tx, call.origin, "artifacts.delivery.created", payload, project)
    return delivery


async def open_content(call: Call[ArtifactDeliveryPath]) -> Source:
    """All conditions of the delivery are checked again: a key or the artifact may have been revoked since."""
    reader = call.site.database.reader
    row = await store.delivery(reader, call.path.delivery_id)
    if row is None or not hmac.compare_digest(row["token_digest"], ids.digest(_token(call))):
        raise errors.DeliveryUnknown
    if row["expires_at"] <= clock.micros(call.now):
        raise errors.DeliveryExpired
    artifact = await service.still_deliverable(reader, row["project_id"], row["artifact_id"])
    if artifact is None:
        raise errors.DeliveryUnknown
    return await content.opened(call.site, artifact)


def _token(call: Call) -> str:
    scheme, _, token = call.header(b"authorization").partition(" ")
    return token if scheme.lower() == "bearer" else ""
