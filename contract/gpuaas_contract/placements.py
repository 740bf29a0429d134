"""Artifact placements: an artifact copied to a machine, for an operation."""

from typing import Literal

from gpuaas_contract import errors
from gpuaas_contract.artifacts import FETCHING_ERRORS, HANDING_OUT_ERRORS
from gpuaas_contract.lifecycles import PlacementState
from gpuaas_contract.node import TaskError
from gpuaas_contract.paths import ARTIFACT, PLACED_CONTENT, PLACEMENT
from gpuaas_contract.wire import Label, Query, Request, Timestamp, WaitSeconds, Wire

FileMode = Literal["0600", "0644", "0700", "0755"]


class PlaceArtifact(Request):
    """Copies an artifact to a machine, for an operation the caller holds."""

    allocation_id: Label
    """Allocation whose machine gets the artifact; one of the operation's instance."""
    operation_id: Label
    """Id of an operation that the caller has claimed."""
    epoch: int
    """Epoch number of the caller's claim on the operation. The platform refuses a number that is not the newest."""
    mode: FileMode = "0644"
    """Mode of the file on the machine; root owns it."""


class UnplaceArtifact(Request):
    """Removes an artifact from a machine, for an operation the caller holds."""

    allocation_id: Label
    """Allocation from whose machine the artifact is removed; one of the operation's instance."""
    operation_id: Label
    """Id of an operation that the caller has claimed."""
    epoch: int
    """Epoch number of the caller's claim on the operation. The platform refuses a number that is not the newest."""


class ArtifactPlacement(Wire):
    """An artifact on one machine, until it is removed or its allocation is released."""

    placement_id: str
    org_id: str
    project_id: str
    artifact_id: str
    name: str
    digest: str
    size_bytes: int
    mode: FileMode
    allocation_id: str
    node_id: str
    node_name: str
    operation_id: str
    actor_id: str
    state: PlacementState
    """A placed artifact is `removed` at the request of a controller, or with the release of its allocation. If its
    removal fails, it is `placed` as before, with the error. A removal from a machine on which it was not placed begins
    as `removing`."""
    correlation_id: str
    created_at: Timestamp
    expires_at: Timestamp
    """Deadline: a placement or removal not done by then has failed."""
    ended_at: Timestamp | None = None
    path: str = ""
    """Path of the artifact on the machine; empty until it is placed."""
    error: TaskError | None = None
    """Why the artifact could not be placed or removed: an error code of the platform or of the agent."""


class PlacementQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for the placement to end."""


PLACEMENT_CREATE = ARTIFACT.row(
    "/placements",
    "artifacts.placement.create",
    "Copy an artifact to a machine",
    "For an artifact of the project or a shared one, on a machine of the operation's instance. The node downloads it.",
).post(
    PlaceArtifact,
    ArtifactPlacement,
    "artifacts.artifact.place",
    status=202,
    errors=(*HANDING_OUT_ERRORS, errors.LeaseLost, errors.NotEntitled),
)
PLACEMENT_REMOVE = ARTIFACT.row(
    "/removals",
    "artifacts.placement.remove",
    "Remove an artifact from a machine",
    "The node deletes the file. It succeeds if the file is not there. A revoked artifact can be removed.",
).post(
    UnplaceArtifact,
    ArtifactPlacement,
    "artifacts.artifact.place",
    status=202,
    errors=(errors.LeaseLost, errors.NotEntitled),
)
PLACEMENT_GET = PLACEMENT.row(
    "", "artifacts.placement.get", "Get one artifact placement, optionally waiting for its end"
).get(ArtifactPlacement, "artifacts.artifact.read", query=PlacementQuery)
PLACED_CONTENT_GET = PLACED_CONTENT.row(
    "",
    "node.artifact.content",
    "Download the content of a placement",
    "The connection is closed if the content does not match the published digest.",
).get(bytes, audience="node", media_type="application/octet-stream", errors=FETCHING_ERRORS)
