"""Trust keys: the public keys whose signatures verify artifacts, in a project and for shared artifacts."""

from typing import Annotated

import msgspec

from gpuaas_contract.artifacts import shared
from gpuaas_contract.paths import PROJECT, TRUST_KEY, TrustKeyPath
from gpuaas_contract.wire import Path, Request, Timestamp, Wire


class TrustKey(Wire):
    """A public key whose signatures on artifacts are trusted."""

    trust_key_id: str
    scope: str
    """Where the key is trusted: a project id, or `platform` for every project."""
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
    """Trusts a public key: its signatures on artifacts are accepted."""

    public_key_pem: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    """Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of at least 2048 bits."""


TRUST_KEY_LIST = PROJECT.row(
    "/trust-keys", "artifacts.trust_key.list", "List trusted keys, revoked ones included"
).list(TrustKey, "artifacts.trust_key.read")
TRUST_KEY_PUT = TRUST_KEY.row(
    "",
    "artifacts.trust_key.put",
    "Trust a public key",
    "A key never changes, and cannot be trusted again after it was revoked.",
).put(PutTrustKey, TrustKey, "artifacts.trust_key.change")
TRUST_KEY_REVOKE = TRUST_KEY.row(
    "",
    "artifacts.trust_key.revoke",
    "Revoke a trusted key",
    "Artifacts that only this key signed are refused from now on.",
).delete(TrustKey, "artifacts.trust_key.change", repeat="natural")
SHARED_TRUST_KEY_LIST = shared(TRUST_KEY_LIST, Path)
SHARED_TRUST_KEY_PUT = shared(TRUST_KEY_PUT, TrustKeyPath)
SHARED_TRUST_KEY_REVOKE = shared(TRUST_KEY_REVOKE, TrustKeyPath)
