"""Machine access: a short-lived SSH certificate for one allocation, and the list of who has one."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.operations import Reason
from gpuaas_contract.paths import ALLOCATION, MACHINE_GRANT, PROJECT
from gpuaas_contract.wire import Id, PageQuery, Request, Serial, Timestamp, Wire

CERTIFICATE_S_MAX = 600
CertificateSeconds = Annotated[
    int, msgspec.Meta(ge=1, le=CERTIFICATE_S_MAX, description=f"From 1 to {CERTIFICATE_S_MAX} seconds.")
]
GrantState = Literal["active", "ended"]
"""An ended grant opens no session and keeps none open."""


AccessAs = Literal["person", "root"]
AccessKind = Literal["root", "observer", "person"]
"""`root`: the allocation's user, with sudo. `person`: the person's own user, without. `observer`: a user that can only
read, for app controllers between operations."""


class RequestMachineAccess(Request):
    """Asks for a certificate to log in to an allocation's machine."""

    public_key: Annotated[str, msgspec.Meta(max_length=8192)]
    """An Ed25519 key in OpenSSH form. The private key never leaves the caller."""
    operation_id: Id = ""
    """App controllers send the operation they hold; people leave it empty."""
    instance_id: Id = ""
    """App controllers that look after an instance between operations send the instance: they log in as the observer,
    who can read and cannot change anything."""
    epoch: int = 0
    """Epoch of the operation's lease or of the stewardship, for app controllers."""
    ttl_s: CertificateSeconds = CERTIFICATE_S_MAX
    """How long the certificate opens new sessions. The platform's own limit can be shorter: see `expires_at`."""
    as_: AccessAs | None = msgspec.field(default=None, name="as")
    """`person`: log in as oneself, without sudo. `root`: as the allocation's user, with sudo; people need
    `access.machine.root`. None: `person` for people; an operation always gets `root`."""


class MachineAccess(Wire):
    """An SSH certificate for a machine, with the address, user and host key that are needed to log in."""

    grant_id: str
    certificate: str
    """OpenSSH user certificate for one principal and one source address. Empty in a dry run."""
    serial: Serial
    """Serial number of the SSH certificate; sshd on the machine logs it at each login."""
    principal: str
    """The principal in the certificate: the allocation's id; for a person, followed by `/` and the person's id; for an
    observer, after `observer/`."""
    host: str
    port: int
    user: str
    """The Unix user to log in as."""
    host_public_key: str
    """Pin this key. Do not trust a host key on first use."""
    expires_at: Timestamp
    """When the certificate expires: from then on, no new SSH session can be opened with it."""


class MachineGrant(Wire):
    """Who may log in to which machine, why, and until when."""

    grant_id: str
    org_id: str
    project_id: str
    allocation_id: str
    node_id: str
    node_name: str
    operation_id: str
    """The operation that the access was granted for; empty when a person asked for it."""
    epoch: int
    """Epoch of the operation's lease or of the stewardship; the grant ends with it."""
    actor_type: Literal["user", "service_account"]
    actor_id: str
    actor_name: str
    serial: Serial
    """Serial number of the SSH certificate; sshd on the machine logs it at each login."""
    source: str
    """The only address the certificate is valid from."""
    state: GrantState
    granted_at: Timestamp
    expires_at: Timestamp
    """When the certificate expires: from then on, no new SSH session can be opened with it."""
    sessions_until: Timestamp | None = None
    """When SSH sessions that were opened with the certificate are closed. None for an operation: its sessions last as
    long as its lease."""
    ended_at: Timestamp | None = None
    ended_by: str = ""
    """Who ended the access; `platform` if the platform did, because its reason no longer existed."""
    end_reason: str = ""
    enforced_at: Timestamp | None = None
    """When the machine applied the end: it refuses the certificate, and its sessions are closed."""
    session_id: str = ""
    """The session in which it was granted. The grant ends when this session, or the key it was made with, is revoked.
    Empty in grants of earlier releases."""
    access: AccessKind = "root"
    """As whom it lets the actor log in. Grants of earlier releases are all `root`."""
    instance_id: str = ""
    """The instance whose steward got the access; empty for other access."""


class GrantQuery(PageQuery):
    state: GrantState | None = None
    allocation_id: str = ""
    operation_id: str = ""


class RevokeGrant(Request):
    """Ends a person's or controller's access to a machine."""

    reason: Reason
    """Shown with the grant and kept in the audit trail."""


MACHINE_ACCESS = ALLOCATION.row(
    "/machine-access",
    "access.machine.grant",
    "Get an SSH certificate for an allocation's machine",
    "The certificate works for one machine and one source address, for at most ten minutes. Service "
    "accounts need an operation they hold, or an instance that they look after, whose machines they can only read; "
    "people need none, and log in as themselves. With `dry_run=true` the "
    "answer has no certificate.",
).post(
    RequestMachineAccess,
    MachineAccess,
    "access.machine.connect",
    status=201,
    errors=(errors.LeaseLost, errors.NotEntitled, errors.Sealed, errors.AccountPending, errors.AgentTooOld),
)
GRANT_LIST = PROJECT.row(
    "/machine-grants", "access.machine.list", "List who may log in to the project's machines, ended access included"
).list(MachineGrant, "access.machine.read", query=GrantQuery)
GRANT_REVOKE = MACHINE_GRANT.row(
    "/revoke",
    "access.machine.revoke",
    "End access to a machine",
    "The machine refuses the certificate and closes its sessions within seconds. `enforced_at` shows when.",
).post(RevokeGrant, MachineGrant, repeat="natural")
