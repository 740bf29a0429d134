"""Tells the platform every few seconds that the node lives and what it is. Runs in its own thread, started by main."""

from __future__ import annotations

import threading

from gpuaas_agent import AGENT_VERSION, facts, identity, log, wire

INTERVAL_S_DEFAULT = 10.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 300.0


def run(session: identity.Session, stop: threading.Event) -> None:
    backoff = wire.Backoff(stop)
    while not stop.is_set():
        try:
            interval_s = beat(session)
        except wire.WireError as error:
            log.event("heartbeat did not get through, trying again", level="warning", error=str(error))
            backoff.wait()
            continue
        backoff.reset()
        stop.wait(interval_s)


def beat(session: identity.Session) -> float:
    """Send one status; answers how long to wait before the next."""
    status = {"agent_version": AGENT_VERSION, "boot_id": facts.boot_id(), "facts": facts.collect()}
    wanted = session.call("PUT", "/node/v1/status", status).get("heartbeat_interval_s")
    interval_s = float(wanted) if isinstance(wanted, (int, float)) else INTERVAL_S_DEFAULT
    return min(max(interval_s, INTERVAL_S_MIN), INTERVAL_S_MAX)
