"""Runtime secrets: values that an app's controller needs on its machines, stored by the platform and delivered once. A
controller issues a secret for an operation it holds and gets the id of a delivery. The holder of the operation opens
the delivery, once. No other route shows a value."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.paths import INSTANCE, OPERATION, RUNTIME_SECRET, SECRET_DELIVERY
from gpuaas_contract.wire import Id, Label, Request, Secret, Timestamp, Wire

SecretState = Literal["issued", "revoked", "expired"]
VALUE_LENGTH_MAX = 65_536
TTL_MAX_S = 365 * 86_400

Value = Annotated[
    Secret, msgspec.Meta(max_length=VALUE_LENGTH_MAX, description=f"A value has at most {VALUE_LENGTH_MAX} characters.")
]
TtlSeconds = Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)]


class RuntimeSecret(Wire):
    """A secret of an instance, without its value."""

    secret_id: str
    org_id: str
    project_id: str
    instance_id: str
    app_slug: str
    purpose: SecretPurpose
    """Purpose; one that the app's manifest declares."""
    name: str
    """Name, chosen by the app."""
    version: int
    """Grows when a secret of this purpose and name is issued again after the previous one ended."""
    state: SecretState
    fingerprint: str
    """Equal for equal values of this instance; it reveals nothing about the value."""
    operation_id: str
    """The operation it was issued for."""
    issued_by: str
    issued_at: Timestamp
    expires_at: Timestamp
    """The value is destroyed then."""
    deliveries: int
    """Number of deliveries that controllers requested."""
    deliveries_opened: int
    """Number of deliveries that were opened."""
    ended_at: Timestamp | None = None
    """When it was revoked or expired; the value is destroyed then."""


class IssueSecret(Request):
    """Stores or generates a secret, for an operation the caller holds."""

    epoch: int
    """Epoch of the operation's lease."""
    purpose: SecretPurpose
    """A purpose that the app's manifest declares."""
    name: Label
    """Name, chosen by the app. While the secret is valid, the same purpose and name mean the same secret."""
    value: Value = ""
    """Empty: the platform generates 32 random bytes, in base64url."""
    ttl_s: TtlSeconds = 3600
    """How long it is stored, at most a year."""


class IssuedSecret(Wire):
    """A secret and a delivery of it, which can be opened once."""

    secret: RuntimeSecret
    delivery_id: str
    """Use it to open the value, once."""


class OpenDelivery(Request):
    """Opens a delivery, for an operation of the same instance."""

    operation_id: Id
    epoch: int
    """Epoch of the operation's lease, which the caller holds."""


class OpenedDelivery(Wire):
    """The value of a secret, sent once."""

    delivery_id: str
    secret: RuntimeSecret
    value: str
    """Empty in a dry run."""


SECRET_ISSUE = OPERATION.row(
    "/runtime-secrets",
    "access.secret.issue",
    "Issue a secret for an operation",
    "While the secret is valid, the same purpose and name again give a new delivery of the same value.",
).post(
    IssueSecret,
    IssuedSecret,
    subject="secret.secret_id",
    status=201,
    repeat="natural",
    errors=(errors.LeaseLost, errors.NotEntitled, errors.PurposeUndeclared, errors.Sealed),
)
DELIVERY_OPEN = SECRET_DELIVERY.row(
    "/open",
    "access.secret.open",
    "Open a delivery of a secret, once",
    "A second attempt is refused and reported as an event.",
).post(
    OpenDelivery,
    OpenedDelivery,
    repeat="natural",
    secret_answer=True,
    errors=(errors.LeaseLost, errors.NotEntitled, errors.SecretAlreadyDelivered, errors.Sealed),
)
SECRET_LIST = INSTANCE.row(
    "/runtime-secrets",
    "access.secret.list",
    "List the secrets of an instance, ended ones included, without their values",
).list(RuntimeSecret, "access.secret.read")
SECRET_REVOKE = RUNTIME_SECRET.row(
    "",
    "access.secret.revoke",
    "Revoke a secret and destroy its value",
    "Deliveries that are not opened yet become void.",
).delete(RuntimeSecret, repeat="natural")
