"""Send a heartbeat with the facts of the node to the platform every few seconds. `main` runs it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gpuaas_agent import AGENT_VERSION, identity, log, wire
from gpuaas_agent.host import facts

INTERVAL_S_DEFAULT = 10.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 300.0
BACKOFF_S_MAX = 5.0


def run(
    client: identity.NodeClient, agent: dict[str, Any], stop: threading.Event, on_accepted: Callable[[], None]
) -> None:
    """Send heartbeats until `stop`. `agent` is added to each. `on_accepted` is called after each accepted heartbeat."""
    # The back-off is short, so that a restarted platform gets a heartbeat before it marks this node as lost.
    backoff = wire.Backoff(stop, longest_s=BACKOFF_S_MAX)
    while not stop.is_set():
        try:
            interval_s = beat(client, agent)
        except wire.WireError as error:
            log.warning("heartbeat.failed", error=str(error))
            backoff.wait()
            continue
        on_accepted()
        backoff.reset()
        stop.wait(interval_s)


def beat(client: identity.NodeClient, agent: dict[str, Any]) -> float:
    """Send one heartbeat and return the number of seconds until the next one."""
    status = {"agent_version": AGENT_VERSION, "boot_id": facts.boot_id(), "facts": facts.collect(), **agent}
    requested_s = client.call("PUT", "/node/v1/status", status).get("heartbeat_interval_s")
    interval_s = float(requested_s) if isinstance(requested_s, (int, float)) else INTERVAL_S_DEFAULT
    return min(max(interval_s, INTERVAL_S_MIN), INTERVAL_S_MAX)
