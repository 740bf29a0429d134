"""Access credentials: private keys of customers, for hosts that know no other. Kept in custody, never shown again.

A controller that holds an operation asks for a delivery, naming a public key it has just made, and opens it once. What
comes back is encrypted to that key (HPKE, RFC 9180), so nobody on the way can read it."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.operations import Reason
from gpuaas_contract.wire import Label, NoBody, Page, PageQuery, Request, Timestamp, Wire

CredentialState = Literal["active", "revoked"]
PRIVATE_KEY_LENGTH_MAX = 16_384
SUITE = "hpke:x25519,hkdf-sha256,aes-256-gcm"
"""HPKE base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM; `info` is `seal_info`, `aad` is empty."""

PrivateKey = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=PRIVATE_KEY_LENGTH_MAX,
        description=f"An SSH private key without a passphrase, at most {PRIVATE_KEY_LENGTH_MAX} characters.",
    ),
]
Username = Annotated[
    str,
    msgspec.Meta(
        max_length=32,
        pattern=r"^([a-z_][a-z0-9_-]*)?(?!\n)$",
        description="A Unix user name of at most 32 characters, or empty.",
    ),
]
RecipientKey = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9+/]{43}=(?!\n)$",
        description="An X25519 public key: 32 bytes in base64.",
    ),
]


def seal_info(delivery_id: str) -> bytes:
    """Binds what is sealed to its delivery: the ciphertext of one does not open as that of another."""
    return f"gpuaas credential delivery v1\n{delivery_id}".encode()


class Credential(Wire):
    """What there is to know about a customer's key but the key."""

    credential_id: str
    org_id: str
    project_id: str
    name: str
    username: str
    """Whom to log in as; empty when the app asks for it elsewhere."""
    state: CredentialState
    version: int
    """Grows with every rotation."""
    algorithm: str
    """Of the key, as OpenSSH names it: ssh-ed25519."""
    fingerprint: str
    """Of the public key, as `ssh-keygen -l` shows it: SHA256:…"""
    public_key: str
    """OpenSSH form: what belongs into the host's authorized_keys."""
    created_by: str
    created_at: Timestamp
    rotated_at: Timestamp | None = None
    last_used_at: Timestamp | None = None
    """When a controller last opened a delivery of it."""
    last_used_for: str = ""
    """The operation it was for."""
    deliveries: int = 0
    """How often a controller asked for it."""
    deliveries_opened: int = 0
    """How many of these were opened."""
    ended_at: Timestamp | None = None
    """When it was revoked; the key is destroyed then."""


class CreateCredential(Request):
    """Hands a private key over; from here on only app controllers that need it can get it."""

    name: Label
    """Unique among the project's credentials that are not revoked."""
    private_key: PrivateKey
    username: Username = ""
    """Whom to log in as; empty when the app asks for it elsewhere."""


class RotateCredential(Request):
    """Puts another private key in the place of the present one."""

    private_key: PrivateKey
    """Takes the place of the present one, which is destroyed. The same key again changes nothing."""


class RevokeCredential(Request):
    """Destroys a credential's key."""

    reason: Reason
    """Why; told as an event and kept in the audit trail."""


class DeliverCredential(Request):
    """Asks for a customer's key, for an operation the caller holds."""

    epoch: int
    """Of the operation's lease."""
    credential_id: str
    """One that the instance's inputs, or the operation's, name."""
    recipient_key: RecipientKey
    """Made for this delivery; the private half stays in the controller's memory."""


class CredentialDelivery(Wire):
    """A key that waits to be opened, once."""

    credential: Credential
    delivery_id: str
    """Opens the key once."""
    expires_at: Timestamp
    """Five minutes after it was made; not opened by then, it is void."""


class OpenCredential(Request):
    """Opens a delivery, for an operation of the instance it was made for."""

    operation_id: str
    epoch: int
    """Of the operation's lease, which the caller holds."""


class OpenedCredential(Wire):
    """A customer's private key, readable only by whoever holds the recipient's private half."""

    delivery_id: str
    credential: Credential
    suite: str
    """How it is sealed: the HPKE suite, always the same."""
    sealed: str
    """`enc || ciphertext` of HPKE in base64; inside is the private key as it was uploaded. Empty in a dry run."""


_CREDENTIALS = "/api/v1/projects/{project_id}/credentials"

CREDENTIAL_CREATE = Endpoint(
    "access.credential.create",
    "POST",
    _CREDENTIALS,
    "Hand a private key over for apps that reach hosts with it; it is never shown again",
    permission="access.credential.create",
    request=CreateCredential,
    response=Credential,
    subject="credential_id",
    status=201,
    repeat="natural",
    errors=(errors.Sealed,),
)
CREDENTIAL_LIST = Endpoint(
    "access.credential.list",
    "GET",
    _CREDENTIALS,
    "Credentials of a project, revoked ones included, never their keys",
    permission="access.credential.read",
    request=NoBody,
    query=PageQuery,
    response=Page[Credential],
)
CREDENTIAL_GET = Endpoint(
    "access.credential.get",
    "GET",
    f"{_CREDENTIALS}/{{credential_id}}",
    "One credential",
    permission="access.credential.read",
    request=NoBody,
    response=Credential,
)
CREDENTIAL_ROTATE = Endpoint(
    "access.credential.rotate",
    "POST",
    f"{_CREDENTIALS}/{{credential_id}}/rotate",
    "Put another private key in the place of the present one",
    permission="access.credential.rotate",
    request=RotateCredential,
    response=Credential,
    subject="credential_id",
    repeat="natural",
    errors=(errors.Sealed,),
)
CREDENTIAL_REVOKE = Endpoint(
    "access.credential.revoke",
    "POST",
    f"{_CREDENTIALS}/{{credential_id}}/revoke",
    "Destroy a credential's key; deliveries not opened yet are void",
    permission="access.credential.revoke",
    request=RevokeCredential,
    response=Credential,
    subject="credential_id",
    repeat="natural",
)
CREDENTIAL_DELIVER = Endpoint(
    "access.credential.deliver",
    "POST",
    "/api/v1/projects/{project_id}/operations/{operation_id}/credential-deliveries",
    "Ask for a credential the instance was given, sealed to a key of the caller's",
    permission="access.credential.deliver",
    request=DeliverCredential,
    response=CredentialDelivery,
    subject="credential.credential_id",
    status=201,
    repeat="natural",
    errors=(errors.LeaseLost, errors.Sealed),
)
CREDENTIAL_OPEN = Endpoint(
    "access.credential.open",
    "POST",
    "/api/v1/projects/{project_id}/credential-deliveries/{delivery_id}/open",
    "Open a delivery: the sealed key, once. A second opening is refused and told as an event",
    permission="access.credential.deliver",
    request=OpenCredential,
    response=OpenedCredential,
    subject="delivery_id",
    repeat="natural",
    secret_answer=True,
    errors=(errors.LeaseLost, errors.SecretAlreadyDelivered, errors.Sealed),
)
ENDPOINTS = (
    CREDENTIAL_CREATE,
    CREDENTIAL_LIST,
    CREDENTIAL_GET,
    CREDENTIAL_ROTATE,
    CREDENTIAL_REVOKE,
    CREDENTIAL_DELIVER,
    CREDENTIAL_OPEN,
)
