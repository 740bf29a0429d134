"""Access credentials: private keys of customers, for hosts that accept no other key. Stored in custody, never shown
again. A controller that holds an operation asks for a delivery with a public key it has just made, and opens the
delivery once. The answer is encrypted to that public key (HPKE, RFC 9180), so no one in between can read it."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import CREDENTIAL, CREDENTIAL_DELIVERY, OPERATION, PROJECT
from gpuaas_contract.wire import Id, Label, Request, Secret, Timestamp, Wire

CredentialState = Literal["active", "revoked"]
PRIVATE_KEY_LENGTH_MAX = 16_384
SUITE = "hpke:x25519,hkdf-sha256,aes-256-gcm"
"""HPKE base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM; `info` is `seal_info`, `aad` is empty."""

PrivateKey = Annotated[
    Secret,
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
        max_length=44,
        pattern=r"^[A-Za-z0-9+/]{43}=(?!\n)$",
        description="An X25519 public key: 32 bytes in base64.",
    ),
]


def seal_info(delivery_id: str) -> bytes:
    """Bind the ciphertext to its delivery: it does not open as that of another delivery."""
    return f"gpuaas credential delivery v1\n{delivery_id}".encode()


class Credential(Wire):
    """A customer's SSH key, without the key itself."""

    credential_id: str
    org_id: str
    project_id: str
    name: str
    username: str
    """User to log in as; empty when the app gets it elsewhere."""
    state: CredentialState
    version: int
    """Grows with every rotation."""
    algorithm: str
    """Algorithm of the key, as OpenSSH names it: ssh-ed25519."""
    fingerprint: str
    """Fingerprint of the public key, as `ssh-keygen -l` shows it: SHA256:…"""
    public_key: str
    """In OpenSSH form, for the host's authorized_keys."""
    created_by: str
    created_at: Timestamp
    rotated_at: Timestamp | None = None
    last_used_at: Timestamp | None = None
    """When a controller last opened a delivery of it."""
    last_used_for: str = ""
    """The operation it was for."""
    deliveries: int = 0
    """Number of deliveries that controllers requested."""
    deliveries_opened: int = 0
    """Number of deliveries that were opened."""
    ended_at: Timestamp | None = None
    """When it was revoked; the key is destroyed then."""


class CreateCredential(Request):
    """Stores a private key that only app controllers can get."""

    name: Label
    """Unique among the project's credentials that are not revoked."""
    private_key: PrivateKey
    username: Username = ""
    """User to log in as; empty when the app gets it elsewhere."""


class RotateCredential(Request):
    """Replaces a credential's private key."""

    private_key: PrivateKey
    """Replaces the present key, which is destroyed. The same key again changes nothing."""


class RevokeCredential(Request):
    """Destroys a credential's key."""

    reason: Reason
    """Reason; sent as an event and stored in the audit trail."""


class DeliverCredential(Request):
    """Asks for a credential, for an operation that the caller holds."""

    epoch: int
    """Epoch of the operation's lease."""
    credential_id: Id
    """A credential that the inputs of the instance or the operation name."""
    recipient_key: RecipientKey
    """Public key made for this delivery; the private key stays in the controller's memory."""


class CredentialDelivery(Wire):
    """A delivery of a credential, which can be opened once."""

    credential: Credential
    delivery_id: str
    """Use it to open the key, once."""
    expires_at: Timestamp
    """Five minutes after it was made. A delivery not opened by then is void."""


class OpenCredential(Request):
    """Opens a delivery, for an operation of the same instance."""

    operation_id: Id
    epoch: int
    """Epoch of the operation's lease, which the caller holds."""


class OpenedCredential(Wire):
    """A private key, encrypted to the recipient key."""

    delivery_id: str
    credential: Credential
    suite: str
    """The HPKE suite of the encryption; always the same."""
    sealed: str
    """`enc || ciphertext` of HPKE in base64. It contains the private key as it was uploaded. Empty in a dry run."""


CREDENTIAL_CREATE = PROJECT.row(
    "/credentials",
    "access.credential.create",
    "Store a private key for apps that log in to hosts with it",
    "The key is stored in custody and never shown again. The same key under the same name again is the "
    "same credential.",
).post(CreateCredential, Credential, status=201, repeat="natural", errors=(errors.Sealed,))
CREDENTIAL_LIST = PROJECT.row(
    "/credentials", "access.credential.list", "List the credentials of a project, revoked ones included"
).list(Credential, "access.credential.read")
CREDENTIAL_GET = CREDENTIAL.row("", "access.credential.get", "Get one credential, without its key").get(
    Credential, "access.credential.read"
)
CREDENTIAL_ROTATE = CREDENTIAL.row(
    "/rotate", "access.credential.rotate", "Replace the private key of a credential"
).post(RotateCredential, Credential, repeat="natural", errors=(errors.Sealed,))
CREDENTIAL_REVOKE = CREDENTIAL.row(
    "/revoke",
    "access.credential.revoke",
    "Revoke a credential and destroy its key",
    "Deliveries that are not opened yet become void.",
).post(RevokeCredential, Credential, repeat="natural")
CREDENTIAL_DELIVER = OPERATION.row(
    "/credential-deliveries",
    "access.credential.deliver",
    "Request a delivery of a credential, encrypted to the caller's key",
    "The caller must hold an operation of an instance whose inputs name the credential.",
).post(
    DeliverCredential,
    CredentialDelivery,
    subject="credential.credential_id",
    status=201,
    repeat="natural",
    errors=(errors.LeaseLost, errors.NotEntitled, errors.Sealed),
)
CREDENTIAL_OPEN = CREDENTIAL_DELIVERY.row(
    "/open",
    "access.credential.open",
    "Open a delivery of a credential, once",
    "The answer is encrypted to the recipient key. A second attempt is refused and reported as an event.",
).post(
    OpenCredential,
    OpenedCredential,
    "access.credential.deliver",
    repeat="natural",
    secret_answer=True,
    errors=(errors.LeaseLost, errors.NotEntitled, errors.SecretAlreadyDelivered, errors.Sealed),
)
