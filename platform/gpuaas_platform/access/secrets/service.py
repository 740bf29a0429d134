"""Issue runtime secrets, hand each delivery out once, end them. Called by `instances`, which knows who holds what."""

import datetime
import os
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import SecretChanged
from gpuaas_contract.secrets import IssuedSecret, IssueSecret, OpenedDelivery, RuntimeSecret, SecretState

from gpuaas_platform.access import deliveries
from gpuaas_platform.access import values as keeping
from gpuaas_platform.access.deliveries import Delivery, FindHeld
from gpuaas_platform.access.secrets import rules, store
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import db, ids, names
from gpuaas_platform.operations.rules import HeldOperation
from gpuaas_platform.record import service as record


async def issue(call: Call, find_held: FindHeld, body: IssueSecret) -> IssuedSecret:
    value = body.value or rules.minted(os.urandom(rules.MINTED_BYTES))

    async def find(tx: db.Tx) -> IssuedSecret | None:
        held = await find_held(tx)
        rules.check_purpose(held, body.purpose)
        return await _deliver_present(tx, call, held, body)

    async def make(tx: db.Tx, secret_id: str) -> IssuedSecret:
        held = await find_held(tx)
        return await _deliver_new(tx, call, held, _new_secret(call, held, body, secret_id, value))

    with keeping.translated():
        return await keeping.keep(call.site, value.encode(), find, make, dry_run=call.dry_run)


async def open_delivery(call: Call, find_held: FindHeld, delivery_id: str) -> OpenedDelivery:
    _, secret, value = await deliveries.open_once(call, find_held, delivery_id, _Secrets(call))
    return OpenedDelivery(delivery_id=delivery_id, secret=secret, value=value.decode())


async def revoke(tx: db.Tx, call: Call, instance_id: str, secret_id: str) -> RuntimeSecret:
    """By id, or by the name of one that is issued."""
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is None:
        issued = [found for found in await store.all_issued(tx, instance_id) if found.name == secret_id]
        secret = names.only(issued, secret_id, lambda found: found.secret_id)
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
    await keeping.destroy(tx, secret.secret_id, origin.now)
    await _tell(tx, origin, f"access.secret.{state}", ended, reason=reason)
    return ended


@dataclass(frozen=True)
class _Secrets:
    """Runtime secrets, as deliveries see them."""

    call: Call

    async def find(self, tx: db.Tx, delivery: Delivery) -> RuntimeSecret | None:
        return await store.SECRETS.get(tx, delivery.secret_id)

    async def open(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: RuntimeSecret) -> RuntimeSecret:
        rules.check_openable(thing, self.call.now)
        opened = msgspec.structs.replace(thing, deliveries_opened=thing.deliveries_opened + 1)
        await store.SECRETS.save(tx, opened)
        await self._record(tx, held, delivery, opened, "opened")
        return opened

    async def refuse(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: RuntimeSecret) -> None:
        await self._record(tx, held, delivery, thing, "reopened", result="failure")

    async def _record(
        self, tx: db.Tx, held: HeldOperation, delivery: Delivery, secret: RuntimeSecret, what: str, **result: str
    ) -> None:
        delivery_id = delivery.delivery_id
        await _tell(tx, self.call.origin, f"access.secret.{what}", secret, held=held, delivery_id=delivery_id)
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
    await keeping.keep_until(tx, call.site, secret.secret_id, secret.expires_at)
    version = await store.next_version(tx, secret.instance_id, secret.purpose, secret.name)
    secret = msgspec.structs.replace(secret, version=version)
    await store.SECRETS.insert(tx, secret)
    return await _deliver(tx, call, held, secret)


async def _deliver(tx: db.Tx, call: Call, held: HeldOperation, secret: RuntimeSecret) -> IssuedSecret:
    delivery = Delivery(ids.new("dlv"), secret.secret_id, secret.project_id, secret.instance_id)
    await deliveries.add(tx, delivery)
    delivered = msgspec.structs.replace(secret, deliveries=secret.deliveries + 1)
    await store.SECRETS.save(tx, delivered)
    await _tell(tx, call.origin, "access.secret.issued", delivered, held=held, delivery_id=delivery.delivery_id)
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
    """Of this instance only: equal values of two tenants do not show as equal."""
    return call.site.keys.fingerprint(f"{held.instance_id}\n{value}".encode())


async def _tell(
    tx: db.Tx,
    origin: Origin,
    kind: str,
    secret: RuntimeSecret,
    *,
    held: HeldOperation | None = None,
    delivery_id: str = "",
    reason: str = "",
) -> None:
    changed = SecretChanged(
        secret_id=secret.secret_id,
        purpose=secret.purpose,
        name=secret.name,
        version=secret.version,
        actor_id=origin.caller.actor_id,
        delivery_id=delivery_id,
        reason=reason,
    )
    await record.emit(
        tx,
        origin,
        kind,
        changed,
        org_id=secret.org_id,
        project_id=secret.project_id,
        app_slug=secret.app_slug,
        app_instance_id=secret.instance_id,
        correlation_id=held.correlation_id if held else "",
    )


async def _audit(
    tx: db.Tx, call: Call, secret: RuntimeSecret, target: str, delivery_id: str, *, result: str = "success"
) -> None:
    """Flows leave their row themselves: one in the transaction of what happened."""
    await record.audit(
        tx,
        call.origin,
        call.origin.route,
        target,
        result=result,
        org_id=secret.org_id,
        project_id=secret.project_id,
        details={
            "purpose": secret.purpose,
            "name": secret.name,
            "version": secret.version,
            "delivery_id": delivery_id,
        },
    )
