"""Have a machine fetch an artifact and wait until it lies there, or until it is known why not. `operation` asks."""

from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.errors import BY_CODE, ApiError, LeaseLost
from gpuaas_contract.node import TaskError
from gpuaas_contract.placements import PLACEMENT_CREATE, PLACEMENT_GET, ArtifactPlacement, FileMode, PlaceArtifact

from gpuaas_sdk.controller import deliveries
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.failures import NeedsOperator, Permanent, Temporary

_WAIT_S = 30


async def place(lease: Lease, artifact: Artifact, allocation_id: str, mode: FileMode) -> ArtifactPlacement:
    """Its time is bounded by the platform: a machine that stays silent has failed."""
    operation_id = lease.record.operation_id
    request = PlaceArtifact(allocation_id=allocation_id, operation_id=operation_id, epoch=lease.epoch, mode=mode)
    try:
        placement = await lease.call(PLACEMENT_CREATE, request, artifact_id=artifact.artifact_id)
        while placement.state == "queued":
            placement = await lease.call(
                PLACEMENT_GET,
                query={"wait_s": _WAIT_S},
                artifact_id=artifact.artifact_id,
                placement_id=placement.placement_id,
            )
    except LeaseLost:
        raise
    except ApiError as error:
        raise deliveries.refused(f"Artifact {artifact.name} goes to no machine", error) from error
    if placement.error is not None:
        raise _failure(placement, placement.error)
    return placement


def _failure(placement: ArtifactPlacement, error: TaskError) -> Temporary | Permanent:
    text = f"Artifact {placement.name} is not on {placement.node_name}: {error.code}: {error.message}"
    if error.code == "no_answer":
        return Temporary(text)
    if error.code == "disk_full":
        return NeedsOperator(text, fix=f"Make room on {placement.node_name}, then retry the operation.")
    known = BY_CODE.get(error.code)
    return Permanent(text, fix=known.default_fix if known else "")
