"""The loop that polls the platform for tasks, and the loop that runs ordinary tasks. `main` starts each in a thread.

The poll loop hands an ordinary task to `work`. While that task runs, the poll loop asks for urgent tasks only and runs
them itself, so that removing access never waits for a download.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from gpuaas_agent import log, rules, tasks, wire

POLL_WAIT_S = 25
POLL_TIMEOUT_S = POLL_WAIT_S + 20
HANDOVER_S = 1.0
"""The poll loop waits this long for a running task before it asks for urgent tasks separately."""
EMPTY_POLL_PAUSE_S = 0.5
CLEANUP_INTERVAL_S = 3600.0


@dataclasses.dataclass
class Poller:
    worker: tasks.Worker
    on_trial: bool = False
    """On trial the agent polls, but leaves every task to the installed agent."""
    on_answer: Callable[[], None] = lambda: None
    """Called each time the platform has responded to a poll."""
    _handed_over: queue.SimpleQueue[rules.Task] = dataclasses.field(default_factory=queue.SimpleQueue)
    _busy_with: str = ""
    _is_free: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._is_free.set()

    def run(self) -> None:
        """Poll until the agent stops; post the results of an earlier run first."""
        stop, clean_at_s = self.worker.stop, 0.0
        if not self.on_trial:
            self.worker.post_unposted()
        backoff = wire.Backoff(stop)
        while not stop.is_set():
            if time.monotonic() >= clean_at_s:
                self.worker.history.forget_old(time.time())
                clean_at_s = time.monotonic() + CLEANUP_INTERVAL_S
            if self._poll_once():
                backoff.reset()
            else:
                backoff.wait()

    def work(self) -> None:
        """Run ordinary tasks in the order of delivery; pause after one that cannot be done yet."""
        stop = self.worker.stop
        backoff = wire.Backoff(stop)
        while not stop.is_set():
            if self.worker.handle(self._handed_over.get()):
                backoff.reset()
            else:
                backoff.wait()
            self._is_free.set()

    def _poll_once(self) -> bool:
        """Poll and start a delivered task. Return False if the next poll should be delayed."""
        started_s = time.monotonic()
        is_free = self._is_free.wait(HANDOVER_S)
        try:
            answer = self._request_task("" if is_free else self._busy_with)
        except wire.WireError as error:
            log.warning("tasks.poll_failed", error=str(error))
            return False
        self.on_answer()
        envelope = answer.get("task")
        if envelope is not None and not self.on_trial:
            return isinstance(envelope, dict) and self._dispatch(envelope, answer.get("is_urgent") is True)
        if time.monotonic() - started_s < EMPTY_POLL_PAUSE_S:
            self.worker.stop.wait(EMPTY_POLL_PAUSE_S)
        return True

    def _request_task(self, busy_with: str) -> dict[str, Any]:
        path = f"/node/v1/tasks?wait_s={0 if self.on_trial else POLL_WAIT_S}"
        if busy_with:
            path += f"&busy_with={busy_with}"
        return self.worker.client.call("GET", path, timeout_s=POLL_TIMEOUT_S)

    def _dispatch(self, envelope: dict[str, Any], is_urgent: bool) -> bool:
        task = self.worker.verify(envelope)
        if task is None:
            return False
        if is_urgent:
            return self.worker.handle(task)
        if not self._is_free.is_set():
            return False
        self._busy_with = task.task_id
        self._is_free.clear()
        self._handed_over.put(task)
        return True
