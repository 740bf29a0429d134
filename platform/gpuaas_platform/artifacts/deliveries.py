"""Artifact deliveries: issue a short-lived token for one artifact, and return the content for that token."""

import datetime
import hmac

from gpuaas_contract import errors
from gpuaas_contract.deliveries import CONTENT_PATH, CreateDelivery, Delivery
from gpuaas_contract.event_types import ArtifactDelivery
from gpuaas_contract.paths import ArtifactDeliveryPath, ProjectArtifactPath

from gpuaas_platform.artifacts import content, service, store
from gpuaas_platform.call import Call, Source
from gpuaas_platform.kit import clock, db, ids, structs
from gpuaas_platform.record import service as record

end_all = store.end_deliveries
"""Delete all deliveries: after a restore, a link that was used since the backup would work again."""


async def create(tx: db.Tx, call: Call[ProjectArtifactPath], body: CreateDelivery) -> Delivery:
    project, artifact = call.in_project(), await service.visible(tx, call)
    await service.check_deliverable(tx, project, artifact)
    delivery_id, token = ids.new("adl"), ids.new_secret("delivery")
    url, expires_at = CONTENT_PATH.format(delivery_id=delivery_id), call.now + datetime.timedelta(seconds=body.ttl_s)
    delivery = structs.pick(Delivery, artifact, delivery_id=delivery_id, url=url, token=token, expires_at=expires_at)
    await store.add_delivery(tx, delivery, project.project_id, ids.digest(token))
    purpose = {"purpose": body.purpose, "operation_id": body.operation_id}
    call.details.update(digest=artifact.digest, **purpose)
    payload = structs.pick(ArtifactDelivery, delivery, actor_id=call.caller.actor_id, **purpose)
    await record.emit(tx, call.origin, "artifacts.delivery.created", payload, project)
    return delivery


async def open_content(call: Call[ArtifactDeliveryPath]) -> Source:
    """Open the content. Check all conditions again, because a trust key or the artifact may have been revoked since."""
    reader = call.site.database.reader
    row = await store.delivery(reader, call.path.delivery_id)
    scheme, _, token = call.header(b"authorization").partition(" ")
    token = token if scheme.lower() == "bearer" else ""
    if row is None or not hmac.compare_digest(row["token_digest"], ids.digest(token)):
        raise errors.DeliveryUnknown
    if row["expires_at"] <= clock.micros(call.now):
        raise errors.DeliveryExpired
    artifact = await service.still_deliverable(reader, row["project_id"], row["artifact_id"])
    if artifact is None:
        raise errors.DeliveryUnknown
    return await content.opened(call.site, artifact)
