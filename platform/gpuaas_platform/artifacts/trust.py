"""Trust keys: keys of the platform count for all artifacts, keys of a project for artifacts of the project."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import SHARED
from gpuaas_contract.event_types import TrustKeyChanged
from gpuaas_contract.paths import Path, ProjectTrustKeyPath, TrustKeyPath
from gpuaas_contract.trust_keys import PutTrustKey, TrustKey
from gpuaas_contract.wire import Label, NoBody, PageQuery

from gpuaas_platform.artifacts import rules, signatures, store
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import cards
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.record import service as record

TrustKeyCall = Call[TrustKeyPath] | Call[ProjectTrustKeyPath]


def scope_of(call: Call) -> str:
    """Return the scope of the path: a project id, or `SHARED` for the platform."""
    return call.project.project_id if call.project is not None else SHARED


async def keys_for(reader: db.Reader, scope: str) -> list[TrustKey]:
    """Return the trust keys of the scope and of the platform, including revoked keys."""
    return await store.TRUST_KEYS.find(reader, "scope IN ($1, $2)", scope, SHARED)


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's trust keys that are not revoked."""
    keys = await store.TRUST_KEYS.find(reader, "scope = $1", project_id)
    return [key.trust_key_id for key in keys if key.revoked_at is None]


async def list_keys(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[TrustKey]:
    return await paging.encoded(reader, store.TRUST_KEYS, call.query, "scope = $1", scope_of(call))


async def add(tx: db.Tx, call: TrustKeyCall, body: PutTrustKey) -> TrustKey:
    """Add a trust key. Refuse service accounts explicitly, although none of their roles has the permission."""
    trust_key_id, public_key_pem = call.path.trust_key_id, body.public_key_pem
    _check_person(call)
    try:
        msgspec.convert(trust_key_id, Label)
    except msgspec.ValidationError as error:
        message = "A trust key's id has 1 to 63 letters, digits, dots, hyphens or underscores."
        raise errors.ValidationFailed(message, details={"field": "trust_key_id"}) from error
    scope, fingerprint = scope_of(call), signatures.fingerprint(public_key_pem)
    known = await store.TRUST_KEYS.find(tx, "scope = $1", scope)
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
    await _announce(tx, call, key)
    return key


async def revoke(tx: db.Tx, call: TrustKeyCall, _: NoBody) -> TrustKey:
    """Revoke a trust key. It stays in the list, so that a revoked key can be distinguished from an unknown key."""
    trust_key_id = call.path.trust_key_id
    _check_person(call)
    present = await store.TRUST_KEYS.get(tx, f"{scope_of(call)}/{trust_key_id}")
    if present is None:
        raise errors.NotFound(f"There is no trust key {trust_key_id} here.")
    if present.revoked_at is not None:
        return present
    revoked = msgspec.structs.replace(present, revoked_at=call.now, revoked_by=call.caller.actor_id)
    await store.TRUST_KEYS.save(tx, revoked)
    await _announce(tx, call, revoked)
    if revoked.scope == SHARED:
        live, _revoked = rules.counting(await keys_for(tx, SHARED))
        await cards.distrust(tx, call.origin, live)
    return revoked


def _check_person(call: Call) -> None:
    if call.caller.actor_type != "user":
        fix = "Sign in as a person who holds artifacts.trust_key.change."
        raise errors.PermissionDenied("Only a person can change trust keys.", fix=fix)


async def _announce(tx: db.Tx, call: Call, key: TrustKey) -> None:
    call.details["fingerprint"] = key.fingerprint
    payload = structs.pick(TrustKeyChanged, key, revoked=key.revoked_at is not None)
    await record.emit(tx, call.origin, "artifacts.trust_key.changed", payload, call.owner)
