"""Issue runtime secrets to controllers that have claimed an operation, open each delivery once, revoke secrets."""

import datetime
import secrets

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import SecretChanged
from gpuaas_contract.paths import InstancePath, OperationPath, RuntimeSecretPath, SealedDeliveryPath
from gpuaas_contract.secrets import IssuedSecret, IssueSecret, OpenDelivery, OpenedDelivery, RuntimeSecret, SecretState
from gpuaas_contract.wire import NoBody, PageQuery

from gpuaas_platform.access import deliveries, values
from gpuaas_platform.access.deliveries import Delivery, Outcome
from gpuaas_platform.access.secrets import rules, store
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.operations import fence
from gpuaas_platform.operations.rules import ClaimedOperation
from gpuaas_platform.record import service as record

_MINTED_BYTES = 32


async def issue(call: Call[OperationPath], body: IssueSecret) -> IssuedSecret:
    value = body.value or secrets.token_urlsafe(_MINTED_BYTES)
    expires_at = call.now + datetime.timedelta(seconds=body.ttl_s)

    async def find(tx: db.Tx) -> IssuedSecret | None:
        held = await fence.claimed(tx, call, call.path.operation_id, body.epoch)
        rules.check_purpose(held, body.purpose)
        secret = await store.issued(tx, held.instance_id, body.purpose, body.name)
        if secret is None:
            return None
        if not rules.is_good(secret, call.now):
            await end(tx, call.origin, secret, "expired")
            return None
        rules.check_same_value(secret, body, _fingerprint(call, held, body.value))
        return await _deliver(tx, call, held, secret)

    async def make(tx: db.Tx, secret_id: str) -> IssuedSecret:
        held = await fence.claimed(tx, call, call.path.operation_id, body.epoch)
        version = await store.next_version(tx, held.instance_id, body.purpose, body.name)
        secret = _new_secret(call, held, body, secret_id, version, value)
        await store.SECRETS.insert(tx, secret)
        return await _deliver(tx, call, held, secret)

    with values.translated():
        return await values.keep(call.site, value.encode(), find, make, until=expires_at, dry_run=call.dry_run)


async def open_delivery(call: Call[SealedDeliveryPath], body: OpenDelivery) -> OpenedDelivery:
    delivery, secret, value = await deliveries.open_once(call, body, _Secrets())
    return OpenedDelivery(delivery_id=delivery.delivery_id, secret=secret, value=value.decode())


async def list_secrets(reader: db.Reader, call: Call[InstancePath, PageQuery]) -> EncodedPage[RuntimeSecret]:
    instance = await instances.named(reader, call)
    return await paging.encoded(reader, store.SECRETS, call.query, "instance_id = $1", instance.instance_id)


async def of_instance(reader: db.Reader, instance_id: str) -> list[RuntimeSecret]:
    """Return all secrets of the instance, also those that have ended."""
    return await store.SECRETS.find(reader, "instance_id = $1 ORDER BY secret_id", instance_id)


async def revoke(tx: db.Tx, call: Call[RuntimeSecretPath], _: NoBody) -> RuntimeSecret:
    """Revoke a secret. The path contains its id, or the name of an issued secret."""
    instance_id, secret_id = (await instances.named(tx, call)).instance_id, call.path.secret_id
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is None:
        issued = [secret for secret in await store.all_issued(tx, instance_id) if secret.name == secret_id]
        secret = names.only(issued, secret_id, lambda secret: secret.secret_id)
    if secret is None or secret.instance_id != instance_id:
        raise errors.NotFound(f"There is no runtime secret {secret_id} of this instance.")
    return await end(tx, call.origin, secret, "revoked") if secret.state == "issued" else secret


async def end(tx: db.Tx, origin: Origin, secret: RuntimeSecret, state: SecretState, reason: str = "") -> RuntimeSecret:
    ended = msgspec.structs.replace(secret, state=state, ended_at=origin.now)
    await store.SECRETS.save(tx, ended)
    await values.destroy(tx, secret.secret_id, origin.now)
    await _announce(tx, origin, state, ended, reason=reason)
    return ended


class _Secrets:
    """Implements `deliveries.Delivered` for runtime secrets."""

    async def find(self, tx: db.Tx, delivery: Delivery) -> RuntimeSecret | None:
        return await store.SECRETS.get(tx, delivery.secret_id)

    async def open(
        self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: RuntimeSecret
    ) -> RuntimeSecret:
        rules.check_openable(thing, call.now)
        secret = msgspec.structs.replace(thing, deliveries_opened=thing.deliveries_opened + 1)
        await store.SECRETS.save(tx, secret)
        return secret

    async def record(
        self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: RuntimeSecret, what: Outcome
    ) -> None:
        target, result = f"{delivery.delivery_id}/{thing.secret_id}", "success" if what == "opened" else "failure"
        await _announce(tx, call.origin, what, thing, held, delivery_id=delivery.delivery_id)
        await _audit(tx, call, thing, target, delivery.delivery_id, result=result)


async def _deliver(tx: db.Tx, call: Call, held: ClaimedOperation, secret: RuntimeSecret) -> IssuedSecret:
    delivery = Delivery(ids.new("dlv"), secret.secret_id, secret.project_id, secret.instance_id)
    await deliveries.add(tx, delivery)
    delivered = msgspec.structs.replace(secret, deliveries=secret.deliveries + 1)
    await store.SECRETS.save(tx, delivered)
    await _announce(tx, call.origin, "issued", delivered, held, delivery_id=delivery.delivery_id)
    await _audit(tx, call, delivered, f"{held.operation_id}/{secret.secret_id}", delivery.delivery_id)
    return IssuedSecret(secret=delivered, delivery_id=delivery.delivery_id)


def _new_secret(
    call: Call, held: ClaimedOperation, body: IssueSecret, secret_id: str, version: int, value: str
) -> RuntimeSecret:
    return RuntimeSecret(
        secret_id=secret_id,
        org_id=held.org_id,
        project_id=held.project_id,
        instance_id=held.instance_id,
        app_slug=held.app_slug,
        purpose=body.purpose,
        name=body.name,
        version=version,
        state="issued",
        fingerprint=_fingerprint(call, held, value),
        operation_id=held.operation_id,
        issued_by=call.caller.actor_id,
        issued_at=call.now,
        expires_at=call.now + datetime.timedelta(seconds=body.ttl_s),
        deliveries=0,
        deliveries_opened=0,
    )


def _fingerprint(call: Call, held: ClaimedOperation, value: str) -> str:
    """Return a fingerprint that differs between instances, so that it does not reveal equal values of two tenants."""
    return call.site.keys.fingerprint(f"{held.instance_id}\n{value}".encode())


async def _announce(
    tx: db.Tx, origin: Origin, what: str, secret: RuntimeSecret, held: ClaimedOperation | None = None, **facts: str
) -> None:
    """Emit an event about the secret. `facts` are the event's fields that the secret does not have."""
    changed = structs.pick(SecretChanged, secret, actor_id=origin.caller.actor_id, **facts)
    about = {"app_slug": secret.app_slug, "app_instance_id": secret.instance_id}
    if held is not None:
        about["correlation_id"] = held.correlation_id
    await record.emit(tx, origin, f"access.secret.{what}", changed, secret, **about)


async def _audit(
    tx: db.Tx, call: Call, secret: RuntimeSecret, target: str, delivery_id: str, *, result: str = "success"
) -> None:
    """Write the audit row in the transaction of the change. The edge does not write it for flows."""
    details = {"purpose": secret.purpose, "name": secret.name, "version": secret.version, "delivery_id": delivery_id}
    await record.audit(tx, call.origin, call.origin.route, target, secret, result=result, details=details)
