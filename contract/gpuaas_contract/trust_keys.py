"""Trust keys: the public keys whose signatures verify artifacts, in a project and for shared artifacts."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract.artifacts import NO_QUERY, own_and_shared
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.paths import Path, ProjectPath, ProjectTrustKeyPath, TrustKeyPath
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire


class TrustKey(Wire):
    """A public key whose signatures on artifacts are trusted."""

    trust_key_id: str
    scope: str
    """A project id, or `platform`."""
    fingerprint: str
    """SHA-256 of the key. Keys are compared by this, not by id."""
    public_key_pem: str
    created_by: str
    created_at: Timestamp
    revoked_at: Timestamp | None = None
    revoked_by: str = ""

    @property
    def trust_key_ref(self) -> str:
        return f"{self.scope}/{self.trust_key_id}"


class PutTrustKey(Request):
    """Trusts the signatures of a key."""

    public_key_pem: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    """Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of at least 2048 bits."""


TRUST_KEY_LIST, SHARED_TRUST_KEY_LIST = own_and_shared(
    "trust_key",
    "list",
    "GET",
    "trust-keys",
    "List trusted keys, revoked ones included",
    NoBody,
    Page[TrustKey],
    params=(ProjectPath, Path),
    permission="artifacts.trust_key.read",
    shared_permission="artifacts.shared.read",
    query=(PageQuery, PageQuery),
)
TRUST_KEY_PUT, SHARED_TRUST_KEY_PUT = own_and_shared(
    "trust_key",
    "put",
    "PUT",
    "trust-keys/{trust_key_id}",
    "Trust a public key",
    PutTrustKey,
    TrustKey,
    params=(ProjectTrustKeyPath, TrustKeyPath),
    query=NO_QUERY,
    permission="artifacts.trust_key.change",
    repeat="natural",
    subject="trust_key_id",
    description="A key never changes, and cannot be trusted again after it was revoked.",
)
TRUST_KEY_REVOKE, SHARED_TRUST_KEY_REVOKE = own_and_shared(
    "trust_key",
    "revoke",
    "DELETE",
    "trust-keys/{trust_key_id}",
    "Revoke a trusted key",
    NoBody,
    TrustKey,
    params=(ProjectTrustKeyPath, TrustKeyPath),
    query=NO_QUERY,
    permission="artifacts.trust_key.change",
    repeat="natural",
    subject="trust_key_id",
    description="Artifacts that only this key signed are refused from now on.",
)
ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    TRUST_KEY_LIST,
    TRUST_KEY_PUT,
    TRUST_KEY_REVOKE,
    SHARED_TRUST_KEY_LIST,
    SHARED_TRUST_KEY_PUT,
    SHARED_TRUST_KEY_REVOKE,
)
