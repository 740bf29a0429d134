"""Machine access: a short SSH certificate for one allocation."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import Request, Wire


class RequestMachineAccess(Request):
    public_key: str
    """OpenSSH form. The private key never leaves the caller."""
    operation_id: str = ""
    """App controllers name the operation they hold; people leave it empty."""
    epoch: int = 0
    ttl_s: int = 600
    """At most 600."""


class MachineAccess(Wire):
    grant_id: str
    certificate: str
    """OpenSSH user certificate: one principal, one source, serial bound to operation and actor."""
    serial: int
    principal: str
    host: str
    port: int
    user: str
    host_public_key: str
    """Pin it: there is no trust on first use."""
    expires_at: datetime.datetime


MACHINE_ACCESS = Endpoint(
    "access.machine.grant",
    "POST",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/machine-access",
    "Get a short certificate for an allocation's machine",
    permission="access.machine.connect",
    request=RequestMachineAccess,
    response=MachineAccess,
    status=201,
    errors=(errors.LeaseLost,),
)
ENDPOINTS = (MACHINE_ACCESS,)
