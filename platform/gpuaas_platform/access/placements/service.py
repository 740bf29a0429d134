"""Put an artifact on a machine, for a controller that may enter it. `artifacts` keeps the record, the node fetches."""

from gpuaas_contract.node import FETCH_TASK
from gpuaas_contract.paths import ProjectArtifactPath
from gpuaas_contract.placements import ArtifactPlacement, PlaceArtifact

from gpuaas_platform.access.machines import rules as access_rules
from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.allocations import service as capacity
from gpuaas_platform.artifacts import placements
from gpuaas_platform.artifacts import service as artifacts
from gpuaas_platform.call import Call
from gpuaas_platform.kit import db
from gpuaas_platform.nodes.tasks import service as tasks


async def place(tx: db.Tx, call: Call[ProjectArtifactPath], body: PlaceArtifact) -> ArtifactPlacement:
    """Asks what a delivery asks of the artifact and what a machine grant asks of the caller."""
    project, artifact = call.in_project(), await artifacts.visible(tx, call)
    allocation = await capacity.in_project(tx, project.project_id, body.allocation_id)
    await grants.check_hold(tx, call, allocation, body.operation_id, body.epoch)
    access_rules.check_open(allocation)
    await artifacts.check_deliverable(tx, project, artifact)
    placement = await placements.begin(tx, call, artifact, allocation, body)
    await _queue(tx, call, placement, allocation.username_on_node)
    return placement


async def _queue(tx: db.Tx, call: Call, placement: ArtifactPlacement, user: str) -> None:
    params: dict[str, object] = {
        "placement_id": placement.placement_id,
        "allocation_id": placement.allocation_id,
        "user": user,
        "digest": placement.digest,
        "size_bytes": placement.size_bytes,
        "mode": placement.mode,
    }
    ttl_s = int((placement.expires_at - call.now).total_seconds())
    about = (placement.node_id, FETCH_TASK, placement.placement_id)
    await tasks.queue(tx, call.site, call.origin, *about, params, ttl_s=ttl_s)
