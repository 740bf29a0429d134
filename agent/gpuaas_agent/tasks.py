"""The task loop: pull, verify, decide, run, record, post. One per lane, each in its own thread, started by main."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuaas_agent import commands, identity, journal, keys, log, rules, wire
from gpuaas_agent.handlers import spec

POLL_WAIT_S = 25
POLL_TIMEOUT_S = POLL_WAIT_S + 20
EMPTY_POLL_PAUSE_S = 0.5
CLEANING_INTERVAL_S = 3600.0


@dataclasses.dataclass
class Worker:
    session: identity.Session
    history: journal.Journal
    task_public_key: Path
    handlers: Mapping[str, spec.Handler]
    stop: threading.Event
    lane: str = "control"
    """Which tasks it asks for: content is fetched beside the rest, so that nothing waits for a download."""
    on_trial: bool = False
    """A worker on trial looks at the queue and leaves every task where it is."""
    heard: Callable[[], None] = lambda: None
    """Called whenever the platform has answered a look at the queue."""
    working: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    """Held while a handler runs and its result is recorded; main takes it before the process ends."""

    def run(self) -> None:
        if not self.on_trial:
            for entry in self.history.unposted():
                self._post_entry(entry)
        poll_backoff = wire.Backoff(self.stop)
        clean_at_s = 0.0
        while not self.stop.is_set():
            if time.monotonic() >= clean_at_s:
                self.history.forget_old(time.time())
                clean_at_s = time.monotonic() + CLEANING_INTERVAL_S
            if self._turn():
                poll_backoff.reset()
            else:
                poll_backoff.wait()

    def handle(self, envelope: Mapping[str, Any]) -> bool:
        """Deal with one delivered task; False if nothing came of it: it cannot be trusted, or not be done yet."""
        task = self._open(envelope)
        if task is None:
            return False
        if task.node_id != self.session.node_id:
            log.event("task refused", level="error", task_id=task.task_id, code="task_other_node")
            error = rules.problem("task_other_node", f"this node is {self.session.node_id}")
            self._post(task.task_id, task.correlation_id, rules.outcome("refused", error=error))
            return True
        entry = self.history.find(task.task_id)
        if entry is not None:
            log.event("task was done before, posting its result again", **_named(task))
        else:
            entry = self._perform(task)
        if entry is None:
            return False
        self._post_entry(entry)
        return True

    def _turn(self) -> bool:
        started_s = time.monotonic()
        wait_s = 0 if self.on_trial else POLL_WAIT_S
        try:
            path = f"/node/v1/tasks?lane={self.lane}&wait_s={wait_s}"
            answer = self.session.call("GET", path, timeout_s=POLL_TIMEOUT_S)
        except wire.WireError as error:
            log.event("no tasks to be had, trying again", level="warning", error=str(error))
            return False
        self.heard()
        envelope = answer.get("task")
        if envelope is not None and not self.on_trial:
            return isinstance(envelope, dict) and self.handle(envelope)
        if time.monotonic() - started_s < EMPTY_POLL_PAUSE_S:
            self.stop.wait(EMPTY_POLL_PAUSE_S)
        return True

    def _open(self, envelope: Mapping[str, Any]) -> rules.Task | None:
        payload = envelope.get("payload")
        try:
            signature = base64.b64decode(str(envelope.get("signature")), validate=True)
        except binascii.Error:
            signature = b""
        if not isinstance(payload, str) or not keys.verify(self.task_public_key, payload.encode(), signature):
            fix = f"if the platform's task key was changed: rm {self.task_public_key} and restart the agent"
            log.event("task dropped", level="error", code="task_signature_invalid", fix=fix)
            return None
        try:
            return rules.parse(payload)
        except rules.MalformedTask as error:
            log.event("task dropped", level="error", code="task_malformed", error=str(error))
            return None

    def _perform(self, task: rules.Task) -> journal.Entry | None:
        with self.working:
            if self.stop.is_set():
                return None
            try:
                outcome = self._outcome(task)
            except spec.Replaced:
                self.stop.set()
                return None
            except spec.TryLater as reason:
                log.event("task left for later", level="warning", error=str(reason), **_named(task))
                return None
            if self.stop.is_set() and outcome["status"] == "failed":
                # The same stop may have ended the handler's programs; the platform delivers the task again.
                log.event("task interrupted by the agent's end, not recorded", **_named(task))
                return None
            entry = journal.Entry(task.task_id, task.correlation_id, task.expires_at_s, outcome, posted=False)
            self.history.record(entry)
            return entry

    def _outcome(self, task: rules.Task) -> dict[str, Any]:
        error = rules.refusal(task, now_s=time.time(), handlers=self.handlers)
        if error is not None:
            log.event("task refused", level="error", code=error["code"], error=error["message"], **_named(task))
            return rules.outcome("refused", error=error)
        started_s = time.monotonic()
        try:
            outcome = rules.outcome("succeeded", self.handlers[task.type].function(task.params))
        except spec.TryLater:
            raise
        except spec.HandlerError as failure:
            outcome = rules.outcome("failed", error=rules.problem(failure.code, str(failure)))
        except commands.CommandFailed as failure:
            outcome = rules.outcome("failed", error=rules.problem("command_failed", str(failure)))
        except Exception as failure:  # noqa: BLE001
            # Whatever a handler raises is the task's failure, never the agent's end.
            outcome = rules.outcome("failed", error=rules.problem("handler_crashed", repr(failure)))
        fields = {"status": outcome["status"], "error": outcome["error"], "took_s": time.monotonic() - started_s}
        log.event("task ended", level="error" if outcome["error"] else "info", **fields, **_named(task))
        return outcome

    def _post_entry(self, entry: journal.Entry) -> None:
        if self._post(entry.task_id, entry.correlation_id, entry.outcome) and not entry.posted:
            self.history.mark_posted(entry)

    def _post(self, task_id: str, correlation_id: str, outcome: dict[str, Any]) -> bool:
        """Post until the platform takes it or says it wants it no more; False if the agent ended first."""
        backoff = wire.Backoff(self.stop)
        path = f"/node/v1/tasks/{task_id}/result"
        named = {"task_id": task_id, "correlation_id": correlation_id}
        while not self.stop.is_set():
            try:
                self.session.call("POST", path, outcome, idempotency_key=task_id, correlation_id=correlation_id)
                return True
            except wire.Rejected as error:
                if error.status in (404, 409):
                    log.event("the platform does not want this result, dropped", error=str(error), **named)
                    return True
                log.event("the result was not taken, trying again", level="warning", error=str(error), **named)
            except wire.Unreachable as error:
                log.event("the result did not get through, trying again", level="warning", error=str(error), **named)
            backoff.wait()
        return False


def _named(task: rules.Task) -> dict[str, Any]:
    return {"task_id": task.task_id, "type": task.type, "correlation_id": task.correlation_id}
