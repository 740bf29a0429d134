"""Pure: whether a secret may be issued, is still valid, and may be opened."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.secrets import IssueSecret, RuntimeSecret

from gpuaas_platform.operations.rules import ClaimedOperation


def check_purpose(held: ClaimedOperation, purpose: SecretPurpose) -> None:
    if purpose not in held.purposes:
        declared = ", ".join(held.purposes) or "none"
        raise errors.PurposeUndeclared(
            f"{held.app_slug} declares no secret purpose {purpose}; declared: {declared}.",
            details={"purpose": purpose, "declared": list(held.purposes)},
        )


def is_good(secret: RuntimeSecret, now: datetime.datetime) -> bool:
    return secret.state == "issued" and now < secret.expires_at


def check_same_value(secret: RuntimeSecret, asked: IssueSecret, fingerprint: str) -> None:
    """Refuse another value for an issued secret, because machines would then have different values under one name."""
    if asked.value and fingerprint != secret.fingerprint:
        until = f"{secret.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        raise errors.Conflict(
            f"{asked.purpose} {asked.name} is issued with another value, good until {until}.",
            details={"secret_id": secret.secret_id},
            fix="Revoke the secret first, or send no value to get the existing one.",
        )


def check_openable(secret: RuntimeSecret, now: datetime.datetime) -> None:
    if not is_good(secret, now):
        ended = "expired" if secret.state == "issued" else secret.state
        details = {"secret_id": secret.secret_id}
        fix = "Issue it again: that makes a new value and a new delivery."
        raise errors.Conflict(f"The secret is {ended}; its value is destroyed.", details=details, fix=fix)
