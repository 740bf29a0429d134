"""Placements: an artifact put on a machine, for an operation whose holder asks for it."""

from typing import Literal

from gpuaas_contract import errors
from gpuaas_contract.artifacts import FETCHING_ERRORS, HANDING_OUT_ERRORS
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import PlacementState
from gpuaas_contract.node import TaskError
from gpuaas_contract.wire import Label, NoBody, Query, Request, Timestamp, WaitSeconds, Wire

FileMode = Literal["0600", "0644", "0700", "0755"]


class PlaceArtifact(Request):
    """Has an artifact put on a machine, for an operation the caller holds."""

    allocation_id: Label
    """The machine: one of the operation's instance."""
    operation_id: Label
    """What it is for: an operation the caller holds."""
    epoch: int
    """Of the operation's lease."""
    mode: FileMode = "0644"
    """Of the file on the machine, which belongs to root."""


class ArtifactPlacement(Wire):
    """An artifact's content on one machine, for as long as the machine's allocation lasts."""

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
    correlation_id: str
    created_at: Timestamp
    expires_at: Timestamp
    """Not on the machine by then, it has failed."""
    ended_at: Timestamp | None = None
    path: str = ""
    """Where it lies on the machine, once it is placed."""
    error: TaskError | None = None
    """Why it failed: a code of the platform or of the machine's agent."""


class PlacementQuery(Query):
    wait_s: WaitSeconds = 0
    """How long to wait for the placement to end."""


PLACEMENT_CREATE = Endpoint(
    "artifacts.placement.create",
    "POST",
    "/api/v1/projects/{project_id}/artifacts/{artifact_id}/placements",
    "Put an artifact on a machine of an operation the caller holds: the project's own or a shared one",
    permission="artifacts.artifact.place",
    request=PlaceArtifact,
    response=ArtifactPlacement,
    subject="placement_id",
    status=202,
    errors=(*HANDING_OUT_ERRORS, errors.LeaseLost, errors.NotEntitled),
)
PLACEMENT_GET = Endpoint(
    "artifacts.placement.get",
    "GET",
    "/api/v1/projects/{project_id}/artifacts/{artifact_id}/placements/{placement_id}",
    "How far a placement is: wait for its end with wait_s",
    permission="artifacts.artifact.read",
    request=NoBody,
    query=PlacementQuery,
    response=ArtifactPlacement,
)
PLACED_CONTENT_GET = Endpoint(
    "node.artifact.content",
    "GET",
    "/node/v1/artifact-content/{placement_id}",
    "The bytes of a placement, for its node and until it ends; cut off when they are not those published",
    audience="node",
    request=NoBody,
    response=bytes,
    media_type="application/octet-stream",
    errors=FETCHING_ERRORS,
)
ENDPOINTS = (PLACEMENT_CREATE, PLACEMENT_GET, PLACED_CONTENT_GET)
