"""Whose signatures count: keys of the platform for everything, keys of a project for its own artifacts."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import SHARED
from gpuaas_contract.event_types import TrustKeyChanged
from gpuaas_contract.trust_keys import TrustKey
from gpuaas_contract.wire import Label, Wire

from gpuaas_platform.artifacts import rules, signatures, store
from gpuaas_platform.call import Call
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


def scope_of(call: Call) -> str:
    """What the route is about: a project, or what the platform shares."""
    return call.project.project_id if call.project is not None else SHARED


async def tell(tx: db.Tx, call: Call, kind: str, payload: Wire) -> None:
    """An event of what the route is about; what the platform shares belongs to no organisation."""
    project = call.project
    org_id, project_id = (project.org_id, project.project_id) if project is not None else ("", "")
    await record.emit(tx, call.origin, kind, payload, org_id=org_id, project_id=project_id)


async def keys_for(reader: db.Reader, scope: str) -> list[TrustKey]:
    return await store.trust_keys(reader, (scope, SHARED))


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's trust keys that are not revoked."""
    keys = await store.TRUST_KEYS.find(reader, "scope = $1", project_id)
    return [key.trust_key_id for key in keys if key.revoked_at is None]


async def add(tx: db.Tx, call: Call, trust_key_id: str, public_key_pem: str) -> TrustKey:
    """Only people decide this: no service account holds the permission, and the check here does not rest on that."""
    _check_person(call)
    _check_id(trust_key_id)
    scope, fingerprint = scope_of(call), signatures.fingerprint(public_key_pem)
    known = await store.trust_keys(tx, (scope, scope))
    present = next((key for key in known if key.trust_key_id == trust_key_id), None)
    if present is not None and present.fingerprint == fingerprint and present.revoked_at is None:
        return present
    rules.check_new_key(trust_key_id, fingerprint, known)
    key = TrustKey(
        trust_key_id=trust_key_id,
        scope=scope,
        fingerprint=fingerprint,
        public_key_pem=public_key_pem,
        created_by=call.caller.actor_id,
        created_at=call.now,
    )
    await store.TRUST_KEYS.insert(tx, key)
    await _tell(tx, call, key)
    return key


async def revoke(tx: db.Tx, call: Call, trust_key_id: str) -> TrustKey:
    """It stays on the list: a key that was revoked is told apart from one that was never known."""
    _check_person(call)
    present = await store.TRUST_KEYS.get(tx, f"{scope_of(call)}/{trust_key_id}")
    if present is None:
        raise errors.NotFound(f"There is no trust key {trust_key_id} here.")
    if present.revoked_at is not None:
        return present
    revoked = msgspec.structs.replace(present, revoked_at=call.now, revoked_by=call.caller.actor_id)
    await store.TRUST_KEYS.save(tx, revoked)
    await _tell(tx, call, revoked)
    return revoked


def _check_id(trust_key_id: str) -> None:
    try:
        msgspec.convert(trust_key_id, Label)
    except msgspec.ValidationError as error:
        raise errors.ValidationFailed(
            "A trust key's id has 1 to 63 letters, digits, dots, hyphens or underscores.",
            details={"field": "trust_key_id"},
        ) from error


def _check_person(call: Call) -> None:
    if call.caller.actor_type != "user":
        raise errors.PermissionDenied(
            "Only a person decides whose signatures count.",
            fix="Sign in as a person who holds artifacts.trust_key.change.",
        )


async def _tell(tx: db.Tx, call: Call, key: TrustKey) -> None:
    call.details["fingerprint"] = key.fingerprint
    payload = TrustKeyChanged(
        trust_key_id=key.trust_key_id, fingerprint=key.fingerprint, revoked=key.revoked_at is not None
    )
    await tell(tx, call, "artifacts.trust_key.changed", payload)
