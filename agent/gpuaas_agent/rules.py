"""Pure: the form of a task and whether this node may run it. Called by `tasks` after the signature was verified."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuaas_agent import parameters

TASK_ID = re.compile(r"[a-z]+_[A-Za-z0-9]+")
MESSAGE_MAX = 10_000
"""Longer messages are shortened: the platform refuses a result whose message has more than 65536 characters."""


class MalformedTask(Exception):
    """The payload has a valid signature but is not a valid task, so no result can be posted for it."""


@dataclasses.dataclass(frozen=True)
class Handler:
    """The function that runs tasks of one type, and the parameters that it accepts."""

    params: Mapping[str, parameters.Check]
    function: Callable[[dict[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Task:
    task_id: str
    node_id: str
    type: str
    params: dict[str, Any]
    expires_at_s: float
    correlation_id: str


def parse(payload: str) -> Task:
    try:
        raw = json.loads(payload)
    except ValueError as error:
        raise MalformedTask(f"the payload is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise MalformedTask("the payload is not an object")
    for key in ("task_id", "node_id", "type", "correlation_id"):
        if not isinstance(raw.get(key), str):
            raise MalformedTask(f"{key} is missing or not a string")
    # The id becomes a file name in the journal, so it is checked before anything else uses it.
    if len(raw["task_id"]) > 100 or not TASK_ID.fullmatch(raw["task_id"]):
        raise MalformedTask("task_id is not a valid id")
    expires_at_s = raw.get("expires_at_s")
    if isinstance(expires_at_s, bool) or not isinstance(expires_at_s, (int, float)):
        raise MalformedTask("expires_at_s is missing or not a number")
    if not isinstance(raw.get("params"), dict):
        raise MalformedTask("params is missing or not an object")
    return Task(raw["task_id"], raw["node_id"], raw["type"], raw["params"], expires_at_s, raw["correlation_id"])


def refusal(task: Task, *, now_s: float, handlers: Mapping[str, Handler]) -> dict[str, str] | None:
    """Return the error with which the task is refused; None if it may run."""
    if now_s >= task.expires_at_s:
        return problem("task_expired", f"the task expired {now_s - task.expires_at_s:.0f} s ago by this node's clock")
    handler = handlers.get(task.type)
    if handler is None:
        return problem("task_type_unknown", f"this agent has no handler for {task.type!r}")
    mismatch = parameters.mismatch(handler.params, task.params)
    if mismatch is not None:
        return problem("task_params_invalid", mismatch)
    return None


def outcome(status: str, result: dict[str, Any] | None = None, error: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the body of a task's result; the status is succeeded, failed or refused."""
    return {"status": status, "result": result or {}, "error": error}


def problem(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message[:MESSAGE_MAX]}
