"""The loop that pulls tasks, and the one that does the long ones. Each has its own thread, started by main.

An ordinary task is handed over to `work`. While it is at that, the loop goes on asking for urgent ones and does them
itself: the end of somebody's access waits for no download.
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
"""Most tasks end within this time; only then is it worth asking for urgent ones."""
EMPTY_POLL_PAUSE_S = 0.5
CLEANING_INTERVAL_S = 3600.0


@dataclasses.dataclass
class Poller:
    worker: tasks.Worker
    on_trial: bool = False
    """A poller on trial looks at the queue and leaves every task where it is."""
    heard: Callable[[], None] = lambda: None
    """Called whenever the platform has answered a look at the queue."""
    _given: queue.SimpleQueue[rules.Task] = dataclasses.field(default_factory=queue.SimpleQueue)
    _busy_with: str = ""
    _is_free: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._is_free.set()

    def run(self) -> None:
        stop, clean_at_s = self.worker.stop, 0.0
        if not self.on_trial:
            self.worker.post_unposted()
        backoff = wire.Backoff(stop)
        while not stop.is_set():
            if time.monotonic() >= clean_at_s:
                self.worker.history.forget_old(time.time())
                clean_at_s = time.monotonic() + CLEANING_INTERVAL_S
            if self._turn():
                backoff.reset()
            else:
                backoff.wait()

    def work(self) -> None:
        """Do what is handed over, one after another; one that cannot be done yet is left alone for a while."""
        stop = self.worker.stop
        backoff = wire.Backoff(stop)
        while not stop.is_set():
            if self.worker.handle(self._given.get()):
                backoff.reset()
            else:
                backoff.wait()
            self._is_free.set()

    def _turn(self) -> bool:
        started_s = time.monotonic()
        is_free = self._is_free.wait(HANDOVER_S)
        try:
            answer = self._ask("" if is_free else self._busy_with)
        except wire.WireError as error:
            log.event("no tasks to be had, trying again", level="warning", error=str(error))
            return False
        self.heard()
        envelope = answer.get("task")
        if envelope is not None and not self.on_trial:
            return isinstance(envelope, dict) and self._deal_with(envelope, answer.get("is_urgent") is True)
        if time.monotonic() - started_s < EMPTY_POLL_PAUSE_S:
            self.worker.stop.wait(EMPTY_POLL_PAUSE_S)
        return True

    def _ask(self, busy_with: str) -> dict[str, Any]:
        path = f"/node/v1/tasks?wait_s={0 if self.on_trial else POLL_WAIT_S}"
        if busy_with:
            path += f"&busy_with={busy_with}"
        return self.worker.session.call("GET", path, timeout_s=POLL_TIMEOUT_S)

    def _deal_with(self, envelope: dict[str, Any], is_urgent: bool) -> bool:
        task = self.worker.opened(envelope)
        if task is None:
            return False
        if is_urgent:
            return self.worker.handle(task)
        if not self._is_free.is_set():
            return False
        self._busy_with = task.task_id
        self._is_free.clear()
        self._given.put(task)
        return True
