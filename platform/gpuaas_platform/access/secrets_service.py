"""Issue runtime secrets, hand each delivery out once, end them. Called by `instances`, which knows who holds what.

Values are in custody, which may be another server, so they move outside transactions. The database says first that a
value is going to be there and until when: whatever is interrupted, `secrets_reconcile` takes it out again.
"""

import contextlib
import datetime
import os
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import structlog
from gpuaas_contract import errors
from gpuaas_contract.event_types import SecretChanged
from gpuaas_contract.secrets import IssuedSecret, IssueSecret, OpenedDelivery, RuntimeSecret, SecretState

from gpuaas_platform.access import secrets_rules as rules
from gpuaas_platform.access import secrets_store as store
from gpuaas_platform.access.secrets_rules import HeldOperation
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import custody, db, ids
from gpuaas_platform.record import service as record

log = structlog.get_logger()

TOPIC = "secrets"
"""Wakes the loop that destroys values."""
FindHeld = Callable[[db.Reader], Awaitable[HeldOperation]]
"""Finds the operation a call names and refuses whoever does not hold it."""

_RESERVED_FOR = datetime.timedelta(seconds=60)
_RESERVED_AT_LEAST = datetime.timedelta(seconds=30)
"""With less left a reservation is not relied on: the clock of another process may be ahead."""
_VERSION = 1
"""In custody: a secret id is used for one value only."""


async def issue(call: Call, find_held: FindHeld, body: IssueSecret) -> IssuedSecret:
    secret_id, write = ids.new("sec"), call.site.database.write
    value = body.value or rules.minted(os.urandom(rules.MINTED_BYTES))

    async def begin(tx: db.Tx) -> IssuedSecret | None:
        held = await _allowed(tx, find_held, body)
        found = await _deliver_present(tx, call, held, body)
        if found is None:
            await store.reserve(tx, secret_id, call.site.clock() + _RESERVED_FOR)
        return found

    async def finish(tx: db.Tx) -> IssuedSecret:
        held = await _allowed(tx, find_held, body)
        found = await _deliver_present(tx, call, held, body)
        return found or await _deliver_new(tx, call, held, _new_secret(call, held, body, secret_id, value))

    async def rehearse(tx: db.Tx) -> IssuedSecret:
        return await begin(tx) or await finish(tx)

    if call.dry_run:
        return await write(rehearse)
    found = await write(begin)
    if found is None:
        with _custody_errors():
            await call.site.custody.put(secret_id, value.encode())
        found = await write(finish)
    return found


async def open_delivery(call: Call, find_held: FindHeld, delivery_id: str) -> OpenedDelivery:
    """The delivery counts as opened before the value leaves custody: shown at most once, whatever fails in between."""
    secret, is_first = await call.site.database.write(lambda tx: _open(tx, call, find_held, delivery_id))
    if not is_first:
        raise errors.SecretAlreadyDelivered(
            "This delivery was opened before.",
            details={"secret_id": secret.secret_id},
            fix="Issue the secret again for a new delivery of the same value; if nobody of yours opened it, revoke it.",
        )
    value = ""
    if not call.dry_run:
        with _custody_errors():
            value = (await call.site.custody.get(secret.secret_id, _VERSION)).decode()
    return OpenedDelivery(delivery_id=delivery_id, secret=secret, value=value)


async def revoke(tx: db.Tx, call: Call, instance_id: str, secret_id: str) -> RuntimeSecret:
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is None or secret.instance_id != instance_id:
        raise errors.NotFound(f"There is no runtime secret {secret_id} of this instance.")
    return await end(tx, call.origin, secret, "revoked") if secret.state == "issued" else secret


async def end_all(tx: db.Tx, origin: Origin, instance_id: str, reason: str) -> None:
    """An instance that is gone needs no secrets."""
    for secret in await store.all_issued(tx, instance_id):
        await end(tx, origin, secret, "revoked", reason)


async def end(tx: db.Tx, origin: Origin, secret: RuntimeSecret, state: SecretState, reason: str = "") -> RuntimeSecret:
    ended = msgspec.structs.replace(secret, state=state, ended_at=origin.now)
    await store.SECRETS.save(tx, ended)
    await store.destroy_now(tx, secret.secret_id, origin.now)
    await _tell(tx, origin, f"access.secret.{state}", ended, reason=reason)
    tx.wake(TOPIC)
    return ended


async def _allowed(tx: db.Tx, find_held: FindHeld, body: IssueSecret) -> HeldOperation:
    held = await find_held(tx)
    rules.check_purpose(held, body.purpose)
    return held


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
    reserved_past = call.site.clock() + _RESERVED_AT_LEAST
    if not await store.keep_until(tx, secret.secret_id, secret.expires_at, reserved_past=reserved_past):
        raise errors.Unavailable("Custody took too long to keep the value; it was given up.")
    version = await store.next_version(tx, secret.instance_id, secret.purpose, secret.name)
    secret = msgspec.structs.replace(secret, version=version)
    await store.SECRETS.insert(tx, secret)
    return await _deliver(tx, call, held, secret)


async def _deliver(tx: db.Tx, call: Call, held: HeldOperation, secret: RuntimeSecret) -> IssuedSecret:
    delivery = store.Delivery(ids.new("dlv"), secret.secret_id, secret.project_id)
    await store.add_delivery(tx, delivery)
    delivered = msgspec.structs.replace(secret, deliveries=secret.deliveries + 1)
    await store.SECRETS.save(tx, delivered)
    await _tell(tx, call.origin, "access.secret.issued", delivered, held=held, delivery_id=delivery.delivery_id)
    await _audit(tx, call, delivered, f"{held.operation_id}/{secret.secret_id}", delivery.delivery_id)
    return IssuedSecret(secret=delivered, delivery_id=delivery.delivery_id)


async def _open(tx: db.Tx, call: Call, find_held: FindHeld, delivery_id: str) -> tuple[RuntimeSecret, bool]:
    """The secret, and whether this was the first opening. A second one is put on record, so it does not raise here."""
    held = await find_held(tx)
    delivery = await store.delivery(tx, delivery_id)
    secret = await store.SECRETS.get(tx, delivery.secret_id) if delivery else None
    if delivery is None or secret is None or secret.instance_id != held.instance_id:
        raise errors.NotFound(f"There is no delivery {delivery_id} for this operation's instance.")
    if delivery.is_opened:
        await _tell(tx, call.origin, "access.secret.reopened", secret, held=held, delivery_id=delivery_id)
        await _audit(tx, call, secret, f"{delivery_id}/{secret.secret_id}", delivery_id, result="failure")
        return secret, False
    rules.check_openable(secret, call.now)
    await store.mark_opened(tx, delivery_id, call.now)
    opened = msgspec.structs.replace(secret, deliveries_opened=secret.deliveries_opened + 1)
    await store.SECRETS.save(tx, opened)
    await _tell(tx, call.origin, "access.secret.opened", opened, held=held, delivery_id=delivery_id)
    await _audit(tx, call, opened, f"{delivery_id}/{secret.secret_id}", delivery_id)
    return opened, True


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


@contextlib.contextmanager
def _custody_errors() -> Iterator[None]:
    try:
        yield
    except custody.SecretMissing as error:
        raise errors.Conflict("The secret ended meanwhile; its value is destroyed.") from error
    except custody.Unavailable as error:
        log.error("custody does not answer", why=str(error))
        raise errors.Unavailable("Custody does not answer.", fix="Issue the secret again when it does.") from error
    except custody.CustodyError as error:
        log.error("custody cannot read a value", why=str(error))
        raise errors.ApiError("The value cannot be read.") from error
