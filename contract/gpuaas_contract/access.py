"""Machine access: a short SSH certificate for one allocation, and the record of who got one."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.operations import Reason
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Serial, Timestamp, Wire

CERTIFICATE_S_MAX = 600
CertificateSeconds = Annotated[
    int, msgspec.Meta(ge=1, le=CERTIFICATE_S_MAX, description=f"From 1 to {CERTIFICATE_S_MAX} seconds.")
]
GrantState = Literal["active", "ended"]
"""An ended grant opens no session and holds none open."""


class RequestMachineAccess(Request):
    """Asks to enter the machine of an active allocation."""

    public_key: str
    """An Ed25519 key in OpenSSH form. The private key never leaves the caller."""
    operation_id: str = ""
    """App controllers name the operation they hold; people leave it empty."""
    epoch: int = 0
    """Of the operation's lease, for app controllers."""
    ttl_s: CertificateSeconds = CERTIFICATE_S_MAX
    """How long the certificate opens new sessions. The platform's own limit can be shorter: see `expires_at`."""


class MachineAccess(Wire):
    """A certificate and all there is to know to connect with it."""

    grant_id: str
    certificate: str
    """OpenSSH user certificate: one principal, one source, serial bound to operation and actor. Empty in a dry run."""
    serial: Serial
    """Serial number of the certificate, as sshd logs it."""
    principal: str
    """The name in the certificate that the machine lets in: the allocation's id."""
    host: str
    port: int
    user: str
    """The Unix user to log in as."""
    host_public_key: str
    """Pin it: there is no trust on first use."""
    expires_at: Timestamp
    """Until then the certificate opens new sessions."""


class MachineGrant(Wire):
    """Who may enter which machine, for what, and until when."""

    grant_id: str
    org_id: str
    project_id: str
    allocation_id: str
    node_id: str
    node_name: str
    operation_id: str
    """What it is for; empty when a person asked."""
    epoch: int
    """Of the operation's lease: the grant ends with it."""
    actor_type: Literal["user", "service_account"]
    actor_id: str
    actor_name: str
    serial: Serial
    """Serial number of the certificate, as sshd logs it."""
    source: str
    """The only address the certificate is good from."""
    state: GrantState
    granted_at: Timestamp
    expires_at: Timestamp
    """Until then the certificate opens new sessions."""
    sessions_until: Timestamp | None = None
    """When its sessions end; none for an operation, whose sessions last as long as its lease."""
    ended_at: Timestamp | None = None
    ended_by: str = ""
    """Who ended it; `platform` when what it rested on was gone."""
    end_reason: str = ""
    enforced_at: Timestamp | None = None
    """When the machine had the end: from here on it refuses the certificate and its sessions are gone."""


class GrantQuery(PageQuery):
    state: GrantState | None = None
    allocation_id: str = ""
    operation_id: str = ""


class RevokeGrant(Request):
    """Ends somebody's access to a machine."""

    reason: Reason
    """Shown with the grant and kept in the audit trail."""


MACHINE_ACCESS = Endpoint(
    "access.machine.grant",
    "POST",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/machine-access",
    "Get a short certificate for an allocation's machine",
    permission="access.machine.connect",
    request=RequestMachineAccess,
    response=MachineAccess,
    subject="grant_id",
    status=201,
    errors=(errors.LeaseLost, errors.NotEntitled, errors.Sealed),
)
GRANT_LIST = Endpoint(
    "access.machine.list",
    "GET",
    "/api/v1/projects/{project_id}/machine-grants",
    "Who may enter the project's machines, and who could before",
    permission="access.machine.read",
    request=NoBody,
    query=GrantQuery,
    response=Page[MachineGrant],
)
GRANT_REVOKE = Endpoint(
    "access.machine.revoke",
    "POST",
    "/api/v1/projects/{project_id}/machine-grants/{grant_id}/revoke",
    "End a grant: its certificate is refused and its sessions are cut within seconds",
    permission="access.machine.revoke",
    request=RevokeGrant,
    response=MachineGrant,
    subject="grant_id",
    repeat="natural",
)
ENDPOINTS = (MACHINE_ACCESS, GRANT_LIST, GRANT_REVOKE)
