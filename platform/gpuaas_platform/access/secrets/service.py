"""Issue runtime secrets to controllers that hold an operation, open each delivery once, end them."""

import datetime
import os
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import SecretChanged
from gpuaas_contract.paths import InstancePath, OperationPath, RuntimeSecretPath, SealedDeliveryPath
from gpuaas_contract.secrets import (
    IssuedSecret,
    IssueSecret,
    OpenDelivery,
    OpenedDelivery,
    RuntimeSecret,
    SecretState,
)
from gpuaas_contract.wire import NoBody, PageQuery

from gpuaas_platform.access import deliveries, values
from gpuaas_platform.access.deliveries import Delivery
from gpuaas_platform.access.secrets import rules, store
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.operations import fence
from gpuaas_platform.operations.rules import HeldOperation
from gpuaas_platform.record import service as record


async def issue(call: Call[OperationPath], body: IssueSecret) -> IssuedSecret:
    value = body.value or rules.minted(os.urandom(rules.MINTED_BYTES))

    async def find(tx: db.Tx) -> IssuedSecret | None:
        held = await fence.held(tx, call, call.path.operation_id, body.epoch)
        rules.check_purpose(held, body.purpose)
        return await _deliver_present(tx, call, held, body)

    async def make(tx: db.Tx, secret_id: str) -> IssuedSecret:
        held = await fence.held(tx, call, call.path.operation_id, body.epoch)
        return await _deliver_new(tx, call, held, _new_secret(call, held, body, secret_id, value))

    with values.translated():
        return await values.keep(call.site, value.encode(), find, make, dry_run=call.dry_run)


async def open_delivery(call: Call[SealedDeliveryPath], body: OpenDelivery) -> OpenedDelivery:
    delivery, secret, value = await deliveries.open_once(call, body, _Secrets(call))
    return OpenedDelivery(delivery_id=delivery.delivery_id, secret=secret, value=value.decode())


async def list_secrets(reader: db.Reader, call: Call[InstancePath, PageQuery]) -> EncodedPage[RuntimeSecret]:
    instance = await instances.named(reader, call)
    return await paging.encoded(reader, store.SECRETS, call.query, "instance_id = $1", instance.instance_id)


async def revoke(tx: db.Tx, call: Call[RuntimeSecretPath], _: NoBody) -> RuntimeSecret:
    """The path has the id, or the name of an issued secret."""
    instance_id, secret_id = (await instances.named(tx, call)).instance_id, call.path.secret_id
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is None:
        issued = [secret for secret in await store.all_issued(tx, instance_id) if secret.name == secret_id]
        secret = names.only(issued, secret_id, lambda secret: secret.secret_id)
    if secret is None or secret.instance_id != instance_id:
        raise errors.NotFound(f"There is no runtime secret {secret_id} of this instance.")
    return await end(tx, call.origin, secret, "revoked") if secret.state == "issued" else secret


async def end_all(tx: db.Tx, origin: Origin, instance_id: str, reason: str) -> None:
    """Revoke every issued secret of an instance."""
    for secret in await store.all_issued(tx, instance_id):
        await end(tx, origin, secret, "revoked", reason)


async def end(tx: db.Tx, origin: Origin, secret: RuntimeSecret, state: SecretState, reason: str = "") -> RuntimeSecret:
    ended = msgspec.structs.replace(secret, state=state, ended_at=origin.now)
    await store.SECRETS.save(tx, ended)
    await values.destroy(tx, secret.secret_id, origin.now)
    await _announce(tx, origin, f"access.secret.{state}", ended, reason=reason)
    return ended


@dataclass(frozen=True)
class _Secrets:
    """Runtime secrets, as deliveries see them."""

    call: Call

    async def find(self, tx: db.Tx, delivery: Delivery) -> RuntimeSecret | None:
        return await store.SECRETS.get(tx, delivery.secret_id)

    async def open(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: RuntimeSecret) -> RuntimeSecret:
        rules.check_openable(thing, self.call.now)
        secret = msgspec.structs.replace(thing, deliveries_opened=thing.deliveries_opened + 1)
        await store.SECRETS.save(tx, secret)
        await self._record(tx, held, delivery, secret, "opened")
        return secret

    async def refuse(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: RuntimeSecret) -> None:
        await self._record(tx, held, delivery, thing, "reopened", result="failure")

    async def _record(
        self, tx: db.Tx, held: HeldOperation, delivery: Delivery, secret: RuntimeSecret, what: str, **result: str
    ) -> None:
        delivery_id = delivery.delivery_id
        await _announce(tx, self.call.origin, f"access.secret.{what}", secret, held=held, delivery_id=delivery_id)
        await _audit(tx, self.call, secret, f"{delivery_id}/{secret.secret_id}", delivery_id, **result)


async def _deliver_present(tx: db.Tx, call: Call, held: HeldOperation, body: IssueSecret) -> IssuedSecret | None:
    secret = await store.issued(tx, held.instance_id, body.purpose, body.name)
    if secret is None:
        return None
    if not rules.is_good(secret, call.now):
        await end(tx, call.origin, secret, "expired")
        return None
    rules.check_same_value(secret, body, _fingerprint(call, held, body.value))
    return await _deliver(tx, call, held, secret)


async def _deliver_new(tx: db.Tx, call: Call, held: HeldOperation, secret: RuntimeSecret) -> IssuedSecret:
    await values.keep_until(tx, call.site, secret.secret_id, secret.expires_at)
    version = await store.next_version(tx, secret.instance_id, secret.purpose, secret.name)
    secret = msgspec.structs.replace(secret, version=version)
    await store.SECRETS.insert(tx, secret)
    return await _deliver(tx, call, held, secret)


async def _deliver(tx: db.Tx, call: Call, held: HeldOperation, secret: RuntimeSecret) -> IssuedSecret:
    delivery = Delivery(ids.new("dlv"), secret.secret_id, secret.project_id, secret.instance_id)
    await deliveries.add(tx, delivery)
    delivered = msgspec.structs.replace(secret, deliveries=secret.deliveries + 1)
    await store.SECRETS.save(tx, delivered)
    await _announce(tx, call.origin, "access.secret.issued", delivered, held=held, delivery_id=delivery.delivery_id)
    await _audit(tx, call, delivered, f"{held.operation_id}/{secret.secret_id}", delivery.delivery_id)
    return IssuedSecret(secret=delivered, delivery_id=delivery.delivery_id)


def _new_secret(call: Call, held: HeldOperation, body: IssueSecret, secret_id: str, value: str) -> RuntimeSecret:
    return RuntimeSecret(
        secret_id=secret_id,
        org_id=held.org_id,
        project_id=held.project_id,
        instance_id=held.instance_id,
        app_slug=held.app_slug,
        purpose=body.purpose,
        name=body.name,
        version=1,
        state="issued",
        fingerprint=_fingerprint(call, held, value),
        operation_id=held.operation_id,
        issued_by=call.caller.actor_id,
        issued_at=call.now,
        expires_at=call.now + datetime.timedelta(seconds=body.ttl_s),
        deliveries=0,
        deliveries_opened=0,
    )


def _fingerprint(call: Call, held: HeldOperation, value: str) -> str:
    """Differs between instances, so that equal values of two tenants cannot be recognised."""
    return call.site.keys.fingerprint(f"{held.instance_id}\n{value}".encode())


async def _announce(
    tx: db.Tx,
    origin: Origin,
    kind: str,
    secret: RuntimeSecret,
    *,
    held: HeldOperation | None = None,
    delivery_id: str = "",
    reason: str = "",
) -> None:
    actor_id = origin.caller.actor_id
    changed = structs.pick(SecretChanged, secret, actor_id=actor_id, delivery_id=delivery_id, reason=reason)
    await record.emit(
        tx,
        origin,
        kind,
        changed,
        secret,
        app_slug=secret.app_slug,
        app_instance_id=secret.instance_id,
        correlation_id=held.correlation_id if held else "",
    )


async def _audit(
    tx: db.Tx, call: Call, secret: RuntimeSecret, target: str, delivery_id: str, *, result: str = "success"
) -> None:
    """A flow writes its audit row itself, in the transaction of the change."""
    details = {"purpose": secret.purpose, "name": secret.name, "version": secret.version, "delivery_id": delivery_id}
    await record.audit(tx, call.origin, call.origin.route, target, secret, result=result, details=details)
