"""Artifacts over HTTP. A route in a project and its twin for what the platform shares have one handler."""

from collections.abc import AsyncIterator

from gpuaas_contract import artifacts, deliveries, placements, trust_keys
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.artifacts import content, service, store, trust
from gpuaas_platform.artifacts import deliveries as delivering
from gpuaas_platform.artifacts import placements as placing
from gpuaas_platform.call import Call, Routes, Source
from gpuaas_platform.kit import db

routes = Routes()


@routes.write(artifacts.PUBLISH)
@routes.write(artifacts.SHARED_PUBLISH)
async def publish(call: Call, tx: db.Tx, body: artifacts.PublishArtifact) -> artifacts.Artifact:
    return await service.publish(tx, call, body)


@routes.read(artifacts.LIST)
@routes.read(artifacts.SHARED_LIST)
async def list_artifacts(call: Call, reader: db.Reader) -> Page[artifacts.Artifact]:
    query = call.query
    shared = isinstance(query, artifacts.ProjectArtifactQuery) and query.shared
    where, values = "scope = $1", [artifacts.SHARED if shared else trust.scope_of(call)]
    if query.name:
        where, values = f"{where} AND name = $2", [*values, query.name]
    return await call.page(reader, store.ARTIFACTS, where, *values)


@routes.read(artifacts.STORAGE_GET)
@routes.read(artifacts.SHARED_STORAGE_GET)
async def get_storage(call: Call, reader: db.Reader) -> artifacts.ArtifactStorage:
    return await service.storage(reader, call)


@routes.read(artifacts.GET)
@routes.read(artifacts.SHARED_GET)
async def get(call: Call, reader: db.Reader) -> artifacts.Artifact:
    return await service.visible(reader, call)


async def _take(call: Call, chunks: AsyncIterator[bytes]) -> None:
    artifact = await service.open_for_upload(call.site.database.reader, call)
    await content.upload(call, artifact, chunks)


@routes.upload(artifacts.CONTENT_PUT, _take)
@routes.upload(artifacts.SHARED_CONTENT_PUT, _take)
async def put_content(call: Call, tx: db.Tx, _: None) -> artifacts.Artifact:
    return await service.uploaded(tx, call)


@routes.write(artifacts.SIGNATURE_PUT)
@routes.write(artifacts.SHARED_SIGNATURE_PUT)
async def put_signature(call: Call, tx: db.Tx, body: artifacts.Envelope) -> artifacts.Artifact:
    return await service.sign(tx, call, body)


@routes.prepared_write(artifacts.VERIFY, service.examine)
@routes.prepared_write(artifacts.SHARED_VERIFY, service.examine)
async def verify(call: Call, tx: db.Tx, examined: service.Examined) -> artifacts.Artifact:
    return await service.conclude(tx, call, examined)


@routes.prepared_write(artifacts.PROMOTE, service.examine_again)
@routes.prepared_write(artifacts.SHARED_PROMOTE, service.examine_again)
async def promote(call: Call, tx: db.Tx, body: artifacts.PromoteArtifact) -> artifacts.Artifact:
    return await service.promote(tx, call, body)


@routes.write(artifacts.DEPRECATE)
@routes.write(artifacts.SHARED_DEPRECATE)
async def deprecate(call: Call, tx: db.Tx, body: artifacts.EndArtifact) -> artifacts.Artifact:
    return await service.end(tx, call, "deprecated", body.reason)


@routes.write(artifacts.RETIRE)
@routes.write(artifacts.SHARED_RETIRE)
async def retire(call: Call, tx: db.Tx, body: artifacts.EndArtifact) -> artifacts.Artifact:
    return await service.end(tx, call, "retired", body.reason)


@routes.write(artifacts.REVOKE)
@routes.write(artifacts.SHARED_REVOKE)
async def revoke(call: Call, tx: db.Tx, body: artifacts.EndArtifact) -> artifacts.Artifact:
    return await service.revoke(tx, call, body.reason)


@routes.read(trust_keys.TRUST_KEY_LIST)
@routes.read(trust_keys.SHARED_TRUST_KEY_LIST)
async def list_trust_keys(call: Call, reader: db.Reader) -> Page[trust_keys.TrustKey]:
    return await call.page(reader, store.TRUST_KEYS, "scope = $1", trust.scope_of(call))


@routes.write(trust_keys.TRUST_KEY_PUT)
@routes.write(trust_keys.SHARED_TRUST_KEY_PUT)
async def put_trust_key(call: Call, tx: db.Tx, body: trust_keys.PutTrustKey) -> trust_keys.TrustKey:
    return await trust.add(tx, call, call.params["trust_key_id"], body.public_key_pem)


@routes.write(trust_keys.TRUST_KEY_REVOKE)
@routes.write(trust_keys.SHARED_TRUST_KEY_REVOKE)
async def revoke_trust_key(call: Call, tx: db.Tx, _: NoBody) -> trust_keys.TrustKey:
    return await trust.revoke(tx, call, call.params["trust_key_id"])


@routes.write(deliveries.DELIVERY_CREATE)
async def create_delivery(call: Call, tx: db.Tx, body: deliveries.CreateDelivery) -> deliveries.Delivery:
    return await delivering.create(tx, call, body)


@routes.stream(deliveries.CONTENT_GET)
async def get_content(call: Call) -> Source:
    return await delivering.open_content(call)


@routes.flow(placements.PLACEMENT_GET)
async def get_placement(call: Call, _: NoBody) -> placements.ArtifactPlacement:
    return await placing.wait_for(call, call.query.wait_s)


@routes.stream(placements.PLACED_CONTENT_GET)
async def get_placed_content(call: Call) -> Source:
    return await placing.open_content(call)
