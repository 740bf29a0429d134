"""Pure: the state of things whose record does not name it in words for people."""

import datetime
from typing import Literal

from gpuaas_contract.agents import NodeTask
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import BreakerState

from gpuaas_cli.output import clock_time


def of_hold(hold: Hold, now: datetime.datetime | None = None) -> Literal["active", "lifted", "expired"]:
    if hold.lifted_at is not None:
        return "lifted"
    return "active" if hold.expires_at > (now or datetime.datetime.now(datetime.UTC)) else "expired"


def of_breaker(breaker: BreakerState) -> str:
    if not breaker.open:
        return "closed"
    return f"open until {clock_time(breaker.closes_at)}" if breaker.closes_at else "open"


def why_not(task: NodeTask) -> str:
    """What kept a node's task from success; empty for one that goes well."""
    if task.error:
        return task.error.message
    return "it was not taken in time; is its agent running?" if task.state == "expired" else ""
