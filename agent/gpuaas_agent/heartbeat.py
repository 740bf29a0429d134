"""Tells the platform every few seconds that the node lives and what it is. Runs in its own thread, started by main."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gpuaas_agent import AGENT_VERSION, facts, identity, log, wire

INTERVAL_S_DEFAULT = 10.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 300.0
BACKOFF_S_MAX = 5.0


def run(session: identity.Session, agent: dict[str, Any], stop: threading.Event, heard: Callable[[], None]) -> None:
    """`agent` says which agent this is, beside its version; `heard` is called after every beat that was taken."""
    # Short, so that a platform that was away hears this node again before it takes it for lost.
    backoff = wire.Backoff(stop, longest_s=BACKOFF_S_MAX)
    while not stop.is_set():
        try:
            interval_s = beat(session, agent)
        except wire.WireError as error:
            log.event("heartbeat did not get through, trying again", level="warning", error=str(error))
            backoff.wait()
            continue
        heard()
        backoff.reset()
        stop.wait(interval_s)


def beat(session: identity.Session, agent: dict[str, Any]) -> float:
    """Send one status; answers how long to wait before the next."""
    status = {"agent_version": AGENT_VERSION, "boot_id": facts.boot_id(), "facts": facts.collect(), **agent}
    wanted = session.call("PUT", "/node/v1/status", status).get("heartbeat_interval_s")
    interval_s = float(wanted) if isinstance(wanted, (int, float)) else INTERVAL_S_DEFAULT
    return min(max(interval_s, INTERVAL_S_MIN), INTERVAL_S_MAX)
