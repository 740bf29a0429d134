"""Customers' private keys: take them in, replace them, hand each delivery out once and sealed, destroy them."""

import datetime
from dataclasses import dataclass

import msgspec
from gpuaas_contract import credentials, errors
from gpuaas_contract.credentials import Credential, CredentialDelivery, OpenedCredential
from gpuaas_contract.event_types import CredentialChanged

from gpuaas_platform.access import deliveries
from gpuaas_platform.access import values as keeping
from gpuaas_platform.access.credentials import rules, store
from gpuaas_platform.access.credentials import seal as sealing
from gpuaas_platform.access.deliveries import Delivery, FindHeld
from gpuaas_platform.call import Call
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.operations.rules import HeldOperation
from gpuaas_platform.record import service as record

replace = msgspec.structs.replace
DELIVERY_TTL = datetime.timedelta(minutes=5)
"""A delivery is opened right after it was made; one that lies around is of no use to anybody honest."""


async def create(call: Call, body: credentials.CreateCredential) -> Credential:
    """The same key under the same name again is the same credential: an answer may have been lost."""
    half = rules.public_half(body.private_key)

    async def find(tx: db.Tx) -> Credential | None:
        present = await store.active_named(tx, call.in_project().project_id, body.name)
        if present is None:
            return None
        if (present.public_key, present.username) != (half.public_key, body.username):
            raise errors.Conflict(
                f"The project has a credential {body.name} with another key or user.",
                details={"credential_id": present.credential_id},
                fix="Rotate it, or take another name.",
            )
        await _audit(tx, call, present)
        return present

    async def make(tx: db.Tx, secret_id: str) -> Credential:
        await orgs.check_exists(tx, call.in_project().project_id)
        await keeping.keep_until(tx, call.site, secret_id, keeping.FOR_EVER)
        made = _new_credential(call, body, half)
        await store.CREDENTIALS.insert(tx, made)
        await store.set_secret_id(tx, made.credential_id, secret_id)
        await _tell(tx, call, "created", made)
        await _audit(tx, call, made)
        return made

    with keeping.translated():
        return await keeping.keep(call.site, body.private_key.encode(), find, make, dry_run=call.dry_run)


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    return await store.CREDENTIALS.keys(reader, "project_id = $1 AND state = 'active'", project_id)


async def rotate(call: Call, credential_id: str, body: credentials.RotateCredential) -> Credential:
    half = rules.public_half(body.private_key)

    async def find(tx: db.Tx) -> Credential | None:
        present = await in_project(tx, call, credential_id)
        rules.check_active(present)
        if present.public_key != half.public_key:
            return None
        await _audit(tx, call, present)
        return present

    async def make(tx: db.Tx, secret_id: str) -> Credential:
        present = await in_project(tx, call, credential_id)
        await keeping.keep_until(tx, call.site, secret_id, keeping.FOR_EVER)
        await keeping.destroy(tx, await store.secret_id(tx, present.credential_id), call.now)
        await store.set_secret_id(tx, present.credential_id, secret_id)
        rotated = _with_key(replace(present, version=present.version + 1, rotated_at=call.now), half)
        await store.CREDENTIALS.save(tx, rotated)
        await _tell(tx, call, "rotated", rotated)
        await _audit(tx, call, rotated)
        return rotated

    with keeping.translated():
        return await keeping.keep(call.site, body.private_key.encode(), find, make, dry_run=call.dry_run)


async def revoke(tx: db.Tx, call: Call, credential_id: str, reason: str) -> Credential:
    present = await in_project(tx, call, credential_id)
    if present.state == "revoked":
        return present
    await keeping.destroy(tx, await store.secret_id(tx, present.credential_id), call.now)
    await store.forget_secret_id(tx, present.credential_id)
    revoked = replace(present, state="revoked", ended_at=call.now)
    await store.CREDENTIALS.save(tx, revoked)
    await _tell(tx, call, "revoked", revoked, reason=reason)
    return revoked


async def deliver(
    tx: db.Tx, call: Call, held: HeldOperation, body: credentials.DeliverCredential
) -> CredentialDelivery:
    """`held` says what the instance was given."""
    credential = await in_project(tx, call, body.credential_id)
    rules.check_given(credential.credential_id, *held.inputs)
    rules.check_active(credential)
    sealing.check_recipient(body.recipient_key)
    expires_at = call.now + DELIVERY_TTL
    delivery = Delivery(
        delivery_id=ids.new("dlv"),
        secret_id=await store.secret_id(tx, credential.credential_id),
        project_id=credential.project_id,
        instance_id=held.instance_id,
        credential_id=credential.credential_id,
        recipient_key=body.recipient_key,
        expires_at=clock.micros(expires_at),
    )
    await deliveries.add(tx, delivery)
    delivered = replace(credential, deliveries=credential.deliveries + 1)
    await store.CREDENTIALS.save(tx, delivered)
    await _tell(tx, call, "delivered", delivered, held=held, delivery_id=delivery.delivery_id)
    return CredentialDelivery(credential=delivered, delivery_id=delivery.delivery_id, expires_at=expires_at)


async def open_delivery(call: Call, find_held: FindHeld, delivery_id: str) -> OpenedCredential:
    delivery, credential, key = await deliveries.open_once(call, find_held, delivery_id, _Credentials(call))
    sealed = sealing.sealed(key, delivery.recipient_key, delivery_id) if key else ""
    return OpenedCredential(delivery_id=delivery_id, credential=credential, suite=credentials.SUITE, sealed=sealed)


async def in_project(reader: db.Reader, call: Call, credential_id: str) -> Credential:
    """By id or name. A name means the credential that is not revoked, if there is one."""
    found = await store.CREDENTIALS.get(reader, credential_id)
    if found is None:
        found = await store.named(reader, call.in_project().project_id, credential_id)
    if found is None or found.project_id != call.in_project().project_id:
        raise errors.NotFound(f"There is no credential {credential_id} in this project.")
    return found


@dataclass(frozen=True)
class _Credentials:
    """Credentials, as deliveries see them."""

    call: Call

    async def find(self, tx: db.Tx, delivery: Delivery) -> Credential | None:
        return await store.CREDENTIALS.get(tx, delivery.credential_id)

    async def open(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: Credential) -> Credential:
        rules.check_active(thing)
        if await store.secret_id(tx, thing.credential_id) != delivery.secret_id:
            raise errors.Conflict("The credential was rotated meanwhile.", fix="Ask for a new delivery.")
        opened = replace(
            thing,
            deliveries_opened=thing.deliveries_opened + 1,
            last_used_at=self.call.now,
            last_used_for=held.operation_id,
        )
        await store.CREDENTIALS.save(tx, opened)
        await _tell(tx, self.call, "opened", opened, held=held, delivery_id=delivery.delivery_id)
        await _audit(tx, self.call, opened, delivery.delivery_id)
        return opened

    async def refuse(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: Credential) -> None:
        await _tell(tx, self.call, "reopened", thing, held=held, delivery_id=delivery.delivery_id)
        await _audit(tx, self.call, thing, delivery.delivery_id, result="failure")


def _new_credential(call: Call, body: credentials.CreateCredential, half: rules.PublicHalf) -> Credential:
    project = call.in_project()
    return Credential(
        credential_id=ids.new("cred"),
        org_id=project.org_id,
        project_id=project.project_id,
        name=body.name,
        username=body.username,
        state="active",
        version=1,
        algorithm=half.algorithm,
        fingerprint=half.fingerprint,
        public_key=half.public_key,
        created_by=call.caller.actor_id,
        created_at=call.now,
    )


def _with_key(credential: Credential, half: rules.PublicHalf) -> Credential:
    return replace(credential, algorithm=half.algorithm, fingerprint=half.fingerprint, public_key=half.public_key)


async def _tell(
    tx: db.Tx,
    call: Call,
    what: str,
    credential: Credential,
    *,
    held: HeldOperation | None = None,
    delivery_id: str = "",
    reason: str = "",
) -> None:
    changed = CredentialChanged(
        credential_id=credential.credential_id,
        name=credential.name,
        version=credential.version,
        fingerprint=credential.fingerprint,
        actor_id=call.caller.actor_id,
        operation_id=held.operation_id if held else "",
        delivery_id=delivery_id,
        reason=reason,
    )
    await record.emit(
        tx,
        call.origin,
        f"access.credential.{what}",
        changed,
        org_id=credential.org_id,
        project_id=credential.project_id,
        app_slug=held.app_slug if held else "",
        app_instance_id=held.instance_id if held else "",
        correlation_id=held.correlation_id if held else "",
    )


async def _audit(
    tx: db.Tx, call: Call, credential: Credential, delivery_id: str = "", *, result: str = "success"
) -> None:
    """Flows leave their row themselves: one in the transaction of what happened."""
    target = "/".join(found for found in (delivery_id, credential.credential_id) if found)
    details = {"name": credential.name, "version": credential.version, "fingerprint": credential.fingerprint}
    await record.audit(
        tx,
        call.origin,
        call.origin.route,
        target,
        result=result,
        org_id=credential.org_id,
        project_id=credential.project_id,
        details=details,
    )
