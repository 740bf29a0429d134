"""Report the status of the node to the platform and receive tasks. `main` runs the loop in a thread.

A report is a heartbeat and a long poll in one request. The platform records the status, and answers when it has a task
or when the next heartbeat is due. So an agent keeps one connection open. While an ordinary task runs, the report asks
for urgent tasks only, which run in a lane of their own: removing access never waits for a download.
"""

from __future__ import annotations

import dataclasses
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from gpuaas_agent import AGENT_VERSION, lanes, log, tasks, wire
from gpuaas_agent.host import facts

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.2, 25.0
"""A platform that wants rarer heartbeats gets one every 25 seconds: a longer poll would be cut off by proxies."""
ANSWER_S_MAX = 20.0
"""Time that the platform has for its answer, beside the time that it waits for a task."""
HANDOVER_S = 1.0
"""Most tasks are short. So a report waits this long for a running task before it asks for urgent tasks only."""
EMPTY_ANSWER_PAUSE_S = 0.2
BACKOFF_S_MAX = 5.0
CLEANUP_INTERVAL_S = 3600.0


@dataclasses.dataclass
class Reporter:
    worker: tasks.Worker
    description: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Sent with each report."""
    on_trial: bool = False
    """On trial the agent reports, but leaves every task to the installed agent."""
    on_answer: Callable[[], None] = lambda: None
    """Called each time the platform has accepted a report."""
    ordinary: lanes.Lane = dataclasses.field(init=False)
    urgent: lanes.Lane = dataclasses.field(init=False)
    _interval_s: float = 0.0
    """The time between two reports that the platform requested; 0 before its first answer."""

    def __post_init__(self) -> None:
        self.ordinary, self.urgent = lanes.Lane(self.worker), lanes.Lane(self.worker)

    def run(self) -> None:
        """Report until the agent stops."""
        stop, clean_at_s = self.worker.stop, 0.0
        # The back-off is short, so that a restarted platform gets a report before it marks this node as lost.
        backoff = wire.Backoff(stop, longest_s=BACKOFF_S_MAX)
        while not stop.is_set():
            if time.monotonic() >= clean_at_s:
                self.worker.history.forget_old(time.time())
                clean_at_s = time.monotonic() + CLEANUP_INTERVAL_S
            if self.report():
                backoff.reset()
            else:
                backoff.wait()

    def report(self) -> bool:
        """Send one report and start the task in its answer. Return False if the next report should be delayed."""
        takes_tasks = self.urgent.is_free(self._interval_s) and not self.on_trial
        takes_ordinary = takes_tasks and self.ordinary.is_free(HANDOVER_S)
        wait_s = self._interval_s if takes_tasks else 0.0
        started_s = time.monotonic()
        try:
            answer = self._send(wait_s, "" if takes_ordinary else self.ordinary.busy_with)
        except wire.WireError as error:
            log.warning("report.failed", error=str(error))
            return False
        self._interval_s = _interval_s(answer)
        self.on_answer()
        envelope = answer.get("task")
        if envelope is not None:
            return isinstance(envelope, dict) and self._start(envelope, answer.get("is_urgent") is True)
        if time.monotonic() - started_s < min(wait_s, EMPTY_ANSWER_PAUSE_S):
            self.worker.stop.wait(EMPTY_ANSWER_PAUSE_S)  # the platform stops, or a task has just ended
        return True

    def _send(self, wait_s: float, busy_with: str) -> dict[str, Any]:
        status = {"agent_version": AGENT_VERSION, "boot_id": facts.boot_id(), "facts": facts.collect()}
        query = {"wait_s": wait_s, "busy_with": busy_with} if wait_s else {}
        path = "/node/v1/status" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        body = {**status, **self.description}
        return self.worker.client.call("PUT", path, body, timeout_s=wait_s + ANSWER_S_MAX)

    def _start(self, envelope: dict[str, Any], is_urgent: bool) -> bool:
        task = self.worker.verify(envelope)
        lane = self.urgent if is_urgent else self.ordinary
        if task is None or not lane.is_free():
            return False
        lane.start(task)
        return True


def _interval_s(answer: dict[str, Any]) -> float:
    requested_s = answer.get("heartbeat_interval_s")
    interval_s = float(requested_s) if isinstance(requested_s, (int, float)) else INTERVAL_S_MAX
    return min(max(interval_s, INTERVAL_S_MIN), INTERVAL_S_MAX)
