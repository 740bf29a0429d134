"""Pure: what a statement contains. A member without a report is never stated as clean."""

from collections.abc import Sequence

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.access import MachineGrant
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Leftover, Operation, Target
from gpuaas_contract.placements import ArtifactPlacement
from gpuaas_contract.secrets import RuntimeSecret
from gpuaas_contract.statements import STATED_KINDS, StatedMember, StatedPart

_RECORDS = Leftover(
    what="operations, events, usage records and the audit trail",
    why="they are the record of what happened, and are kept",
)


def check_stated(operation: Operation) -> None:
    """Refuse an operation that removes nothing, or that has not ended."""
    if operation.kind not in STATED_KINDS:
        kinds = " or ".join(sorted(STATED_KINDS))
        fix = f"Choose a {kinds} of the instance: gpuaas get operations"
        raise errors.StatementUnavailable(f"Only a {kinds} has a statement; this is a {operation.kind}.", fix=fix)
    if operation.status not in lifecycles.ENDED_OPERATION:
        raise errors.StatementUnavailable(
            f"The {operation.kind} has not ended: it is {operation.status}.",
            fix=f"gpuaas op wait {operation.operation_id}",
        )


def member(target: Target, present: Member) -> StatedMember:
    return StatedMember(
        member_id=present.member_id,
        component_key=present.component_key,
        node_name=present.node_name,
        allocation_id=present.allocation_id,
        status=present.status,
        removed=target.removed,
        left=_left_on_machine(target, present),
        evidence=target.evidence,
    )


def machine_access(grants: Sequence[MachineGrant]) -> StatedPart:
    """`grants` are those of the app's controllers on the machines of the members."""
    left = [
        Leftover(what=f"certificate {grant.serial} of {grant.actor_name} for {grant.node_name}", why=_why_open(grant))
        for grant in grants
        if grant.enforced_at is None
    ]
    return StatedPart(what="machine access of the app", removed=len(grants) - len(left), left=left)


def runtime_secrets(secrets: Sequence[RuntimeSecret]) -> StatedPart:
    left = [
        Leftover(what=f"{secret.purpose} {secret.name}", why="the instance still exists, or ended seconds ago")
        for secret in secrets
        if secret.state == "issued"
    ]
    return StatedPart(what="runtime secrets", removed=len(secrets) - len(left), left=left)


def placed_artifacts(placements: Sequence[ArtifactPlacement]) -> StatedPart:
    """State which artifacts are on machines, and how many were removed. The same content is one file on a machine."""
    files = {(placement.allocation_id, placement.digest) for placement in placements}
    kept = {(item.allocation_id, item.digest): item for item in placements if item.state == "placed"}
    left = [
        Leftover(
            what=f"{placement.name} on {placement.node_name}",
            why=f"the file {placement.path} is removed when the allocation is released",
        )
        for placement in kept.values()
    ]
    return StatedPart(what="artifacts on machines", removed=len(files) - len(kept), left=left)


def allocations(instance_id: str, used: Sequence[Allocation]) -> StatedPart:
    left = [
        Leftover(what=f"{allocation.node_name} ({allocation.allocation_id})", why=_why_kept(instance_id, allocation))
        for allocation in used
        if allocation.status != "released"
    ]
    return StatedPart(what="allocations", removed=len(used) - len(left), left=left)


def records() -> StatedPart:
    return StatedPart(what="records", removed=0, left=[_RECORDS])


def _left_on_machine(target: Target, present: Member) -> list[Leftover]:
    everything = f"everything of the role {present.component_key} on {present.node_name}"
    if present.status not in lifecycles.GONE_MEMBER:
        why = f"the member is {present.status}: {target.error or present.status_reason or 'it was not removed'}"
        return [*target.left, Leftover(what=everything, why=why)]
    if target.removed or target.left:
        return target.left
    why = present.status_reason or "the app's controller reported nothing about the machine"
    return [Leftover(what=everything, why=f"not known to be removed: {why}")]


def _why_open(grant: MachineGrant) -> str:
    if grant.state == "active":
        return f"it ends within seconds after the operation, and at {grant.expires_at:%Y-%m-%d %H:%M:%S} UTC at latest"
    return f"it ended ({grant.end_reason or 'expired'}), but the machine has not confirmed it yet"


def _why_kept(instance_id: str, allocation: Allocation) -> str:
    if instance_id in allocation.used_by_instance_ids:
        return "the instance still has a member on it"
    return f"it belongs to the project, not to the app: gpuaas allocation release {allocation.node_name}"
