"""Let somebody into a machine. Who holds which operation is known here; `access` signs, `grants_reconcile` ends."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors
from gpuaas_contract.access import MachineAccess, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.operations import OperationHead

from gpuaas_platform.access.machines import authority
from gpuaas_platform.access.machines import certificates as access
from gpuaas_platform.access.machines import standing as grant_rules
from gpuaas_platform.allocations import service as capacity
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import store as catalog_store
from gpuaas_platform.kit import db
from gpuaas_platform.operations import fence


async def with_signing_key(call: Call, body: RequestMachineAccess) -> tuple[RequestMachineAccess, Ed25519PrivateKey]:
    """Comes before the transaction: custody may be another server."""
    return body, await authority.signing_key(call.site)


async def grant(
    tx: db.Tx, call: Call, allocation_id: str, body: RequestMachineAccess, signing_key: Ed25519PrivateKey
) -> MachineAccess:
    """A controller gets in only for an operation it holds, on a machine of that operation's instance."""
    allocation = await capacity.in_project(tx, call.in_project().project_id, allocation_id)
    if body.operation_id:
        await check_hold(tx, call, allocation, body.operation_id, body.epoch)
    elif call.caller.actor_type != "user":
        raise errors.PermissionDenied(
            "A service account enters a machine only for an operation it holds.",
            fix="Send operation_id and epoch of an operation you claimed.",
        )
    return await access.grant(tx, call, allocation, body, signing_key)


async def check_hold(tx: db.Tx, call: Call, allocation: Allocation, operation_id: str, epoch: int) -> None:
    """Refuses whoever does not hold this operation, with its newest epoch, on this machine."""
    operation = await fence.check(tx, call, operation_id, epoch)
    if operation.instance_id not in allocation.used_by_instance_ids:
        raise errors.PermissionDenied(
            "The allocation does not belong to this operation's instance.",
            details={"instance_id": operation.instance_id},
            fix="Ask for a machine of a member of this instance.",
        )
    if operation.kind in grant_rules.NEEDS_ENTITLEMENT and not await is_entitled(tx, operation):
        raise errors.NotEntitled(f"The project may no longer deploy {operation.app_slug}.")


async def is_entitled(reader: db.Reader, operation: OperationHead) -> bool:
    found = await catalog_store.entitlement(reader, operation.project_id, operation.app_slug)
    return found is not None and found.enabled
