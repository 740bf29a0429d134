"""Pure: the state of things whose record does not name it in words for people."""

import datetime
from typing import Literal

from gpuaas_contract import agents, holds, instances

from gpuaas_cli.output import clock_time


def of_hold(hold: holds.Hold, now: datetime.datetime | None = None) -> Literal["active", "lifted", "expired"]:
    if hold.lifted_at is not None:
        return "lifted"
    return "active" if hold.expires_at > (now or datetime.datetime.now(datetime.UTC)) else "expired"


def of_breaker(breaker: instances.BreakerState) -> str:
    if not breaker.open:
        return "closed"
    return f"open until {clock_time(breaker.closes_at)}" if breaker.closes_at else "open"


def why_not(task: agents.NodeTask) -> str:
    """What kept a node's task from success; empty for one that goes well."""
    if task.error:
        return task.error.message
    return "it was not taken in time; is its agent running?" if task.state == "expired" else ""
