"""Credentials: store, rotate, deliver and destroy customers' private keys. Each delivery opens once, encrypted."""

import base64
import dataclasses
import datetime

import msgspec
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from gpuaas_contract import credentials, errors
from gpuaas_contract.credentials import Credential, CredentialDelivery, OpenedCredential, seal_info
from gpuaas_contract.event_types import CredentialChanged
from gpuaas_contract.paths import CredentialPath, OperationPath, ProjectPath, SealedDeliveryPath
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.access import deliveries, values
from gpuaas_platform.access.credentials import rules, store
from gpuaas_platform.access.deliveries import Delivery, Outcome
from gpuaas_platform.call import Call
from gpuaas_platform.identity import orgs
from gpuaas_platform.kit import clock, db, ids, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.operations import fence
from gpuaas_platform.operations.rules import ClaimedOperation
from gpuaas_platform.record import service as record

replace = msgspec.structs.replace
_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
DELIVERY_TTL = datetime.timedelta(minutes=5)
"""How long a delivery can be opened. A controller opens it right after it was created."""


async def create(call: Call[ProjectPath], body: credentials.CreateCredential) -> Credential:
    """Create a credential. A repeat returns the existing one, because the first response may have been lost."""
    half = rules.public_half(body.private_key)

    async def find(tx: db.Tx) -> Credential | None:
        where = "project_id = $1 AND name = $2 AND state = 'active'"
        present = next(iter(await store.CREDENTIALS.find(tx, where, call.in_project().project_id, body.name)), None)
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
        made = _new_credential(call, body, half)
        await store.CREDENTIALS.insert(tx, made)
        await store.set_secret_id(tx, made.credential_id, secret_id)
        await _announce(tx, call, "created", made)
        await _audit(tx, call, made)
        return made

    with values.translated():
        return await values.keep(call.site, body.private_key.encode(), find, make, dry_run=call.dry_run)


async def list_credentials(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> EncodedPage[Credential]:
    return await paging.encoded(reader, store.CREDENTIALS, call.query, "project_id = $1", call.path.project_id)


async def get(reader: db.Reader, call: Call[CredentialPath]) -> Credential:
    return await _named(reader, call, call.path.credential_id)


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    return await store.CREDENTIALS.keys(reader, "project_id = $1 AND state = 'active'", project_id)


async def rotate(call: Call[CredentialPath], body: credentials.RotateCredential) -> Credential:
    half = rules.public_half(body.private_key)

    async def find(tx: db.Tx) -> Credential | None:
        present = await get(tx, call)
        rules.check_active(present)
        if present.public_key != half.public_key:
            return None
        await _audit(tx, call, present)
        return present

    async def make(tx: db.Tx, secret_id: str) -> Credential:
        present = await get(tx, call)
        await values.destroy(tx, await store.secret_id(tx, present.credential_id), call.now)
        await store.set_secret_id(tx, present.credential_id, secret_id)
        rotated = replace(present, version=present.version + 1, rotated_at=call.now, **dataclasses.asdict(half))
        await store.CREDENTIALS.save(tx, rotated)
        await _announce(tx, call, "rotated", rotated)
        await _audit(tx, call, rotated)
        return rotated

    with values.translated():
        return await values.keep(call.site, body.private_key.encode(), find, make, dry_run=call.dry_run)


async def revoke(tx: db.Tx, call: Call[CredentialPath], body: credentials.RevokeCredential) -> Credential:
    call.details["reason"] = body.reason
    present = await get(tx, call)
    if present.state == "revoked":
        return present
    await values.destroy(tx, await store.secret_id(tx, present.credential_id), call.now)
    await store.forget_secret_id(tx, present.credential_id)
    revoked = replace(present, state="revoked", ended_at=call.now)
    await store.CREDENTIALS.save(tx, revoked)
    await _announce(tx, call, "revoked", revoked, reason=body.reason)
    return revoked


async def check_custody(call: Call, body: credentials.DeliverCredential) -> credentials.DeliverCredential:
    await values.check(call.site)
    return body


async def deliver(tx: db.Tx, call: Call[OperationPath], body: credentials.DeliverCredential) -> CredentialDelivery:
    held = await fence.claimed(tx, call, call.path.operation_id, body.epoch)
    credential = await _named(tx, call, body.credential_id)
    rules.check_given(credential.credential_id, *held.inputs)
    rules.check_active(credential)
    _check_recipient(body.recipient_key)
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
    await _announce(tx, call, "delivered", delivered, held, delivery_id=delivery.delivery_id)
    return CredentialDelivery(credential=delivered, delivery_id=delivery.delivery_id, expires_at=expires_at)


async def open_delivery(call: Call[SealedDeliveryPath], body: credentials.OpenCredential) -> OpenedCredential:
    delivery, credential, key = await deliveries.open_once(call, body, _Credentials())
    sealed = _sealed(key, delivery.recipient_key, delivery.delivery_id) if key else ""
    return OpenedCredential(
        delivery_id=delivery.delivery_id, credential=credential, suite=credentials.SUITE, sealed=sealed
    )


class _Credentials:
    """Implements `deliveries.Delivered` for credentials."""

    async def find(self, tx: db.Tx, delivery: Delivery) -> Credential | None:
        return await store.CREDENTIALS.get(tx, delivery.credential_id)

    async def open(
        self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: Credential
    ) -> Credential:
        rules.check_active(thing)
        if await store.secret_id(tx, thing.credential_id) != delivery.secret_id:
            raise errors.Conflict(
                "The credential was rotated since this delivery was made.", fix="Ask for a new delivery."
            )
        count = thing.deliveries_opened + 1
        credential = replace(thing, deliveries_opened=count, last_used_at=call.now, last_used_for=held.operation_id)
        await store.CREDENTIALS.save(tx, credential)
        return credential

    async def record(
        self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: Credential, what: Outcome
    ) -> None:
        await _announce(tx, call, what, thing, held, delivery_id=delivery.delivery_id)
        await _audit(tx, call, thing, delivery.delivery_id, result="success" if what == "opened" else "failure")


async def _named(reader: db.Reader, call: Call, id_or_name: str) -> Credential:
    """Return a credential by id or name. If several have the name, the active one is returned."""
    project_id = call.in_project().project_id
    credential = await store.CREDENTIALS.get(reader, id_or_name) or await store.named(reader, project_id, id_or_name)
    if credential is None or credential.project_id != project_id:
        raise errors.NotFound(f"There is no credential {id_or_name} in this project.")
    return credential


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


def _sealed(value: bytes, recipient_key: str, delivery_id: str) -> str:
    """Encrypt a value for a public key (HPKE, RFC 9180), so that only the owner of the private key can decrypt it.

    HPKE base mode; `info` contains the delivery's id. Returns `enc || ciphertext` in base64, which the SDK decrypts."""
    recipient = X25519PublicKey.from_public_bytes(base64.b64decode(recipient_key))
    return base64.b64encode(_SUITE.encrypt(value, recipient, info=seal_info(delivery_id))).decode()


def _check_recipient(recipient_key: str) -> None:
    """Refuse a key of low order: with it, every sender would compute the same shared secret."""
    try:
        _sealed(b"", recipient_key, "")
    except ValueError as error:
        raise errors.ValidationFailed(
            "recipient_key is not an X25519 public key.", details={"field": "recipient_key"}
        ) from error


async def _announce(
    tx: db.Tx, call: Call, what: str, credential: Credential, held: ClaimedOperation | None = None, **facts: str
) -> None:
    """Emit an event about the credential. `facts` are the event's fields that the credential does not have."""
    origin, about = call.origin, {}
    if held is not None:
        facts["operation_id"] = held.operation_id
        about = {"app_slug": held.app_slug, "app_instance_id": held.instance_id, "correlation_id": held.correlation_id}
    changed = structs.pick(CredentialChanged, credential, actor_id=origin.caller.actor_id, **facts)
    await record.emit(tx, origin, f"access.credential.{what}", changed, credential, **about)


async def _audit(
    tx: db.Tx, call: Call, credential: Credential, delivery_id: str = "", *, result: str = "success"
) -> None:
    """Write the audit row in the transaction of the change. The edge does not write it for flows."""
    target = f"{delivery_id}/{credential.credential_id}".lstrip("/")
    details = {"name": credential.name, "version": credential.version, "fingerprint": credential.fingerprint}
    await record.audit(tx, call.origin, call.origin.route, target, credential, result=result, details=details)
