"""Run tasks one after another in a thread. `report` gives a lane its next task; `main` starts the threads."""

from __future__ import annotations

import dataclasses
import queue
import threading

from gpuaas_agent import rules, tasks, wire


@dataclasses.dataclass
class Lane:
    worker: tasks.Worker
    busy_with: str = ""
    """Id of the task that runs, or that ran last."""
    _next: queue.SimpleQueue[rules.Task] = dataclasses.field(default_factory=queue.SimpleQueue)
    _is_free: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._is_free.set()

    def run(self) -> None:
        """Run the given tasks until the agent stops. After a task that cannot be done yet, pause before the next."""
        stop = self.worker.stop
        backoff = wire.Backoff(stop)
        while not stop.is_set():
            if self.worker.handle(self._next.get()):
                backoff.reset()
            else:
                backoff.wait()
            self._is_free.set()

    def start(self, task: rules.Task) -> None:
        """Run this task. The lane must be free."""
        self.busy_with = task.task_id
        self._is_free.clear()
        self._next.put(task)

    def is_free(self, wait_s: float = 0.0) -> bool:
        """Return whether no task runs; wait at most this long for a running task to end."""
        return self._is_free.wait(wait_s)
