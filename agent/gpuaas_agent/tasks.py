"""One task from its delivery to its posted result: verify, decide, run, record, post. `polling` brings them."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuaas_agent import commands, identity, journal, keys, log, rules, wire
from gpuaas_agent.handlers import spec


class Running:
    """Counts the handlers that run. Once the worker stops none begins, and main waits here for those that have."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def all_ended(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_s)

    def _add(self, number: int) -> None:
        with self._changed:
            self._count += number
            self._changed.notify_all()


@dataclasses.dataclass
class Worker:
    session: identity.Session
    history: journal.Journal
    task_public_key: Path
    handlers: Mapping[str, spec.Handler]
    stop: threading.Event
    running: Running = dataclasses.field(default_factory=Running)
    """Handlers whose result is not recorded yet."""

    def post_unposted(self) -> None:
        """Results that were recorded before the agent's last end."""
        for entry in self.history.unposted():
            self._post_entry(entry)

    def opened(self, envelope: Mapping[str, Any]) -> rules.Task | None:
        """What was delivered, if it can be trusted to come from the platform."""
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

    def handle(self, task: rules.Task) -> bool:
        """Deal with one delivered task; False if nothing came of it, because it cannot be done yet."""
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

    def _perform(self, task: rules.Task) -> journal.Entry | None:
        with self.running.one():
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
