"""Pure: how long a placement may take, which node may fetch it, and how it and its removal end."""

import datetime

import msgspec
from gpuaas_contract import lifecycles
from gpuaas_contract.node import TaskError, TaskResult
from gpuaas_contract.placements import ArtifactPlacement

_FETCH_BYTES_PER_S_MIN = 4 << 20
"""Slowest transfer rate with which a node still meets the deadline."""


def fetch_s_max(size_bytes: int, answer_s_max: int) -> int:
    """Return how many seconds a node may take: `answer_s_max` to start, plus the time for `size_bytes`."""
    return answer_s_max + size_bytes // _FETCH_BYTES_PER_S_MIN


def has_ended(placement: ArtifactPlacement) -> bool:
    """Return whether the node has answered, or its time is over."""
    return placement.state not in ("queued", "removing")


def is_open_to(placement: ArtifactPlacement, node_id: str, now: datetime.datetime) -> bool:
    """Return whether this node may fetch the placement's content now."""
    return placement.node_id == node_id and placement.state == "queued" and now < placement.expires_at


def with_result(placement: ArtifactPlacement, result: TaskResult, now: datetime.datetime) -> ArtifactPlacement:
    """Return the placement, placed or failed, after the result of the node's task."""
    path = result.result.get("path")
    if result.status == "succeeded" and isinstance(path, str):
        _check_move(placement, "placed")
        return msgspec.structs.replace(placement, state="placed", path=path, ended_at=now)
    silence = TaskError(code="no_reason", message="The node reported neither a path nor an error.")
    return failed(placement, result.error or silence, now)


def with_removal(placement: ArtifactPlacement, result: TaskResult, now: datetime.datetime) -> ArtifactPlacement:
    """Return the placement after the result of the node's task: removed, or as it was before, with the error."""
    if result.status == "succeeded":
        return removed(placement, now)
    error = result.error or TaskError(code="no_reason", message="The node reported no error.")
    if not placement.path:
        return failed(placement, error, now)
    _check_move(placement, "placed")
    return msgspec.structs.replace(placement, state="placed", error=error, ended_at=now)


def removing(placement: ArtifactPlacement, until: datetime.datetime) -> ArtifactPlacement:
    """Return a placed artifact whose node must remove it until this time."""
    _check_move(placement, "removing")
    return msgspec.structs.replace(placement, state="removing", expires_at=until, error=None, ended_at=None)


def removed(placement: ArtifactPlacement, now: datetime.datetime) -> ArtifactPlacement:
    _check_move(placement, "removed")
    return msgspec.structs.replace(placement, state="removed", ended_at=now)


def failed(placement: ArtifactPlacement, error: TaskError, now: datetime.datetime) -> ArtifactPlacement:
    _check_move(placement, "failed")
    return msgspec.structs.replace(placement, state="failed", error=error, ended_at=now)


def _check_move(placement: ArtifactPlacement, state: lifecycles.PlacementState) -> None:
    lifecycles.check_move(f"placement {placement.placement_id}", lifecycles.PLACEMENT, placement.state, state)
