"""Grant machine access: to a person, or to a controller that holds an operation. `reconcile` ends grants."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors
from gpuaas_contract.access import GrantQuery, MachineAccess, MachineGrant, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.paths import AllocationPath, ProjectPath

from gpuaas_platform.access.machines import authority, certificates, conditions, store
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.kit import db, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.operations import fence


async def with_signing_key(call: Call, body: RequestMachineAccess) -> tuple[RequestMachineAccess, Ed25519PrivateKey]:
    """Runs before the transaction: custody may be another server."""
    return body, await authority.signing_key(call.site)


async def grant(
    tx: db.Tx, call: Call[AllocationPath], prepared: tuple[RequestMachineAccess, Ed25519PrivateKey]
) -> MachineAccess:
    """A controller gets access only for an operation it holds, on a machine of that operation's instance."""
    body, signing_key = prepared
    allocation = await allocations.in_project(tx, call.in_project().project_id, call.path.allocation_id)
    if body.operation_id:
        await check_hold(tx, call, allocation, body.operation_id, body.epoch)
    elif call.caller.actor_type != "user":
        raise errors.PermissionDenied(
            "A service account enters a machine only for an operation it holds.",
            fix="Send operation_id and epoch of an operation you claimed.",
        )
    return await certificates.grant(tx, call, allocation, body, signing_key)


async def list_grants(reader: db.Reader, call: Call[ProjectPath, GrantQuery]) -> EncodedPage[MachineGrant]:
    asked = {name: getattr(call.query, name) for name in ("state", "allocation_id", "operation_id")}
    where, values = db.equal({"project_id": call.path.project_id, **asked})
    return await paging.encoded(reader, store.GRANTS, call.query, where, *values)


async def check_hold(tx: db.Tx, call: Call[ProjectPath], allocation: Allocation, operation_id: str, epoch: int) -> None:
    """Refuse a caller who does not hold this operation, with its newest epoch, on this machine."""
    operation = await fence.check(tx, call, operation_id, epoch)
    if operation.instance_id not in allocation.used_by_instance_ids:
        raise errors.PermissionDenied(
            "The allocation does not belong to this operation's instance.",
            details={"instance_id": operation.instance_id},
            fix="Ask for a machine of a member of this instance.",
        )
    is_entitled = await catalog.entitled(tx, [(operation.project_id, operation.app_slug)])
    if operation.kind in conditions.NEEDS_ENTITLEMENT and not is_entitled:
        raise errors.NotEntitled(f"The project may no longer deploy {operation.app_slug}.")
