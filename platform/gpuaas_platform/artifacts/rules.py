"""Pure: the canonical name of a source, the status changes of an artifact, and whether it may be used."""

import datetime
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.artifacts import Artifact, HttpSource, LocalSource, OciSource, Source
from gpuaas_contract.lifecycles import ArtifactLifecycle, ArtifactTrust
from gpuaas_contract.trust_keys import TrustKey

TRUST_KEYS_MAX = 32
"""Limit of active trust keys per scope, because each signature is checked with each key."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"[!-~]+")
_OTHER_WAYS_UP = re.compile(r"(?i)%2e|%2f|%5c|\\")
_REFERENCE = re.compile(
    r"(?P<registry>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?)"
    r"/(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+|/)[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})|@(?P<manifest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class Reference:
    """The place of an artifact in an OCI registry."""

    registry: str
    repository: str
    manifest: str
    """A tag or a digest of a manifest; empty if the blob is requested directly."""


def canonical(source: Source) -> str:
    """Return the canonical name of a source, which is compared with policy lists."""
    if isinstance(source, HttpSource):
        if "?" in source.url or "#" in source.url:
            raise _unsound("source.url", "has no query and no fragment")
        return canonical_url(source.url)
    if isinstance(source, OciSource):
        parsed = reference(source)
        return f"{parsed.registry}/{parsed.repository}"
    return "local"


def canonical_url(url: str) -> str:
    """Return the canonical URL; refuse paths with `..` and the like, which could leave a prefix that a list allows."""
    parts = _split(url)
    if parts is None or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise _unsound("source.url", "is https:// or http://, a host and maybe a port, in ASCII without spaces")
    if parts.username is not None or parts.password is not None:
        raise _unsound("source.url", "holds no user and no password")
    if _OTHER_WAYS_UP.search(parts.path) or {".", ".."} & set(parts.path.split("/")):
        raise _unsound("source.url", "has a path without . and .. and without escaped dots and slashes")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    at = f":{parts.port}" if parts.port not in (None, _DEFAULT_PORTS[parts.scheme]) else ""
    return f"{parts.scheme}://{host}{at}{parts.path or '/'}"


def reference(source: OciSource) -> Reference:
    match = _REFERENCE.fullmatch(source.reference)
    if match is None:
        raise _unsound("source.reference", "is registry/repository, with :tag or @sha256:… if a manifest is meant")
    return Reference(match["registry"], match["repository"], match["tag"] or match["manifest"] or "")


def moved(artifact: Artifact, lifecycle: ArtifactLifecycle) -> Artifact:
    if not lifecycles.may_move(lifecycles.ARTIFACT, artifact.lifecycle, lifecycle):
        raise errors.Conflict(
            f"{artifact.name} is {artifact.lifecycle} and cannot become {lifecycle}.",
            details={"lifecycle": artifact.lifecycle},
        )
    return msgspec.structs.replace(artifact, lifecycle=lifecycle)


def verified(artifact: Artifact, signers: list[str], now: datetime.datetime) -> Artifact:
    return msgspec.structs.replace(
        _trust_moved(artifact, "verified"),
        trust_code="",
        trust_message="",
        signers=signers,
        verified_at=now,
        content_checked_at=now,
    )


def failed(artifact: Artifact, refusal: errors.ArtifactRefused) -> Artifact:
    """Return the artifact as failed, with the reason. Requests that need a verified artifact get it as their error."""
    failing = _trust_moved(artifact, "failed_verification")
    return msgspec.structs.replace(failing, trust_code=refusal.code, trust_message=refusal.message, signers=[])


def revoked(artifact: Artifact, reason: str) -> Artifact:
    return msgspec.structs.replace(_trust_moved(artifact, "revoked"), reason=reason)


def ended(artifact: Artifact, now: datetime.datetime) -> Artifact:
    """Return the artifact with the time of its end. A second end does not change the time."""
    return msgspec.structs.replace(artifact, ended_at=artifact.ended_at or now)


def ended_at(artifact: Artifact) -> datetime.datetime | None:
    """Return when the artifact ended; None if it has not. Old records without that time count from their creation."""
    if artifact.trust != "revoked" and artifact.lifecycle != "retired":
        return None
    return artifact.ended_at or artifact.created_at


def spent(unneeded_since: Mapping[str, int], before: int) -> list[str]:
    """Return the digests whose content can be deleted: unneeded since `before` or earlier. 0: still needed."""
    return [digest for digest, since in unneeded_since.items() if 0 < since <= before]


def check_open(artifact: Artifact) -> None:
    """Refuse an artifact that was retired or revoked."""
    if artifact.trust == "revoked":
        raise errors.ArtifactRevoked(f"{artifact.name} is revoked: {artifact.reason}")
    if artifact.lifecycle == "retired":
        raise errors.ArtifactRetired(f"{artifact.name} is retired: {artifact.reason}")


def check_trusted(artifact: Artifact, keys: Sequence[TrustKey]) -> None:
    """Refuse an artifact that has ended, is not verified, or was signed by no key that is still trusted."""
    check_open(artifact)
    if artifact.trust == "unverified":
        raise errors.ArtifactUnverified(f"{artifact.name} has not been verified.")
    if artifact.trust == "failed_verification":
        raise errors.BY_CODE[artifact.trust_code](artifact.trust_message)
    live, revoked = counting(keys)
    if live.isdisjoint(artifact.signers):
        raise signer_refusal(bool(revoked.intersection(artifact.signers)))


def check_promoted(artifact: Artifact, *accepted: ArtifactLifecycle) -> None:
    if artifact.lifecycle not in accepted:
        raise errors.ArtifactNotPromoted(f"{artifact.name} is {artifact.lifecycle}, not promoted.")


def counting(keys: Collection[TrustKey]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the trusted and the revoked fingerprints. A key that is revoked under one id is revoked under all ids."""
    revoked = frozenset(key.fingerprint for key in keys if key.revoked_at is not None)
    return frozenset(key.fingerprint for key in keys) - revoked, revoked


def signer_refusal(was_revoked: bool) -> errors.ArtifactRefused:
    if was_revoked:
        return errors.ArtifactSignerRevoked("The only trusted key that signed the artifact was revoked.")
    return errors.ArtifactSignerUnknown("No trusted key of this project or the platform signed the artifact.")


def check_quota(owner: str, quota_bytes: int, *, present: int, asked: int) -> None:
    """Refuse an artifact with which an organisation or an app would use more than its quota; 0: no quota."""
    if quota_bytes and present + asked > quota_bytes:
        raise errors.StorageQuotaExceeded(
            f"{owner} may store {quota_bytes} bytes of artifacts; it uses {present}, and {asked} more were requested.",
            details={"max": quota_bytes, "present": present, "asked": asked},
        )


def check_new_key(trust_key_id: str, fingerprint: str, known: Sequence[TrustKey]) -> None:
    """Refuse an id that was used before, a key that was revoked under any id, and a key over the limit."""
    if any(key.trust_key_id == trust_key_id for key in known):
        fix = "Take another id; a key never changes."
        raise errors.Conflict(
            f"The trust key id {trust_key_id} is used already, or was used by a revoked key.", fix=fix
        )
    live, revoked_ones = counting(known)
    if fingerprint in revoked_ones:
        raise errors.Conflict(
            "This trust key was revoked and cannot be trusted again.",
            fix="Make a new key pair and sign the artifacts with the new key.",
        )
    if len(live) >= TRUST_KEYS_MAX:
        raise errors.Conflict(
            f"There are {TRUST_KEYS_MAX} trust keys already, which is the limit.",
            fix="Revoke a trust key that is not used.",
        )


def is_local(artifact: Artifact) -> bool:
    return isinstance(artifact.source, LocalSource)


def _trust_moved(artifact: Artifact, trust: ArtifactTrust) -> Artifact:
    if not lifecycles.may_move(lifecycles.ARTIFACT_TRUST, artifact.trust, trust):
        raise errors.Conflict(f"{artifact.name} is {artifact.trust} and cannot become {trust}.")
    return msgspec.structs.replace(artifact, trust=trust)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if _URL.fullmatch(url) and parts.port != 0 else None
    except ValueError:
        return None


def _unsound(field: str, rule: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"The field `{field}` {rule}.", details={"field": field})
