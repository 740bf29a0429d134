"""Runtime secrets: values an app's controller needs on its machines, kept by the platform and handed out once.

A controller issues a secret for an operation it holds and gets the id of a delivery; whoever holds the operation opens
the delivery, once. Nothing else ever shows a value."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Request, Timestamp, Wire

SecretState = Literal["issued", "revoked", "expired"]
VALUE_LENGTH_MAX = 65_536
TTL_MAX_S = 365 * 86_400

Value = Annotated[
    str,
    msgspec.Meta(max_length=VALUE_LENGTH_MAX, description=f"A value has at most {VALUE_LENGTH_MAX} characters."),
]
TtlSeconds = Annotated[int, msgspec.Meta(ge=1, le=TTL_MAX_S)]


class RuntimeSecret(Wire):
    """What there is to know about a secret but its value."""

    secret_id: str
    org_id: str
    project_id: str
    instance_id: str
    app_slug: str
    purpose: SecretPurpose
    """What it is for, out of those the app's manifest declares."""
    name: str
    """What the app calls it."""
    version: int
    """Grows when a secret of this purpose and name is issued again after the one before ended."""
    state: SecretState
    fingerprint: str
    """The same for the same value of this instance; says nothing about the value."""
    operation_id: str
    """The operation it was issued for."""
    issued_by: str
    issued_at: Timestamp
    expires_at: Timestamp
    """The value is destroyed then."""
    deliveries: int
    """How often a controller asked for it."""
    deliveries_opened: int
    """How many of these were opened."""
    ended_at: Timestamp | None = None
    """When it was revoked or expired; the value is destroyed then."""


class IssueSecret(Request):
    """Has the platform keep a secret for an operation the caller holds, or make one."""

    epoch: int
    """Of the operation's lease."""
    purpose: SecretPurpose
    """One the app's manifest declares."""
    name: Label
    """What the app calls it; while it is valid, the same purpose and name mean the same secret."""
    value: Value = ""
    """Empty: the platform makes one of 32 random bytes, in base64url."""
    ttl_s: TtlSeconds = 3600
    """How long it is kept, a year at the most."""


class IssuedSecret(Wire):
    """A secret that waits to be opened, once."""

    secret: RuntimeSecret
    delivery_id: str
    """Opens the value once."""


class OpenDelivery(Request):
    """Opens a delivery, for an operation of the instance it was made for."""

    operation_id: str
    epoch: int
    """Of the operation's lease, which the caller holds."""


class OpenedDelivery(Wire):
    """The value of a secret, given once."""

    delivery_id: str
    secret: RuntimeSecret
    value: str
    """Empty in a dry run."""


SECRET_ISSUE = Endpoint(
    "access.secret.issue",
    "POST",
    "/api/v1/projects/{project_id}/operations/{operation_id}/runtime-secrets",
    "Issue a secret for an operation; asked again while it is valid, a new delivery of the same value",
    permission="access.secret.issue",
    request=IssueSecret,
    response=IssuedSecret,
    subject="secret.secret_id",
    status=201,
    repeat="natural",
    errors=(errors.LeaseLost, errors.PurposeUndeclared, errors.Sealed),
)
DELIVERY_OPEN = Endpoint(
    "access.secret.open",
    "POST",
    "/api/v1/projects/{project_id}/runtime-secret-deliveries/{delivery_id}/open",
    "Open a delivery: the value, once. A second opening is refused and told as an event",
    permission="access.secret.open",
    request=OpenDelivery,
    response=OpenedDelivery,
    subject="delivery_id",
    repeat="natural",
    secret_answer=True,
    errors=(errors.LeaseLost, errors.SecretAlreadyDelivered, errors.Sealed),
)
SECRET_LIST = Endpoint(
    "access.secret.list",
    "GET",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/runtime-secrets",
    "Secrets of an instance, ended ones included, never their values",
    permission="access.secret.read",
    request=NoBody,
    query=PageQuery,
    response=Page[RuntimeSecret],
)
SECRET_REVOKE = Endpoint(
    "access.secret.revoke",
    "DELETE",
    "/api/v1/projects/{project_id}/app-instances/{instance_id}/runtime-secrets/{secret_id}",
    "Destroy a secret's value; deliveries not opened yet are void",
    permission="access.secret.revoke",
    request=NoBody,
    response=RuntimeSecret,
    subject="secret_id",
    repeat="natural",
)
ENDPOINTS = (SECRET_ISSUE, DELIVERY_OPEN, SECRET_LIST, SECRET_REVOKE)
