"""Process one task: verify it, decide whether to run it, run it, record and post its result. Called by `poll`."""

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

from gpuaas_agent import commands, ed25519, errors, identity, journal, log, rules, wire

UNREADABLE = (400, 413, 422)
"""Statuses for a result that the platform would refuse at each attempt."""


class RunningHandlers:
    """Counts the running handlers. When the agent stops, `main` waits here until they have ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    @contextlib.contextmanager
    def count(self) -> Iterator[None]:
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def wait_until_none(self, timeout_s: float) -> bool:
        """Return whether every running handler ended within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_s)

    def _add(self, number: int) -> None:
        with self._changed:
            self._count += number
            self._changed.notify_all()


@dataclasses.dataclass
class Worker:
    client: identity.NodeClient
    history: journal.Journal
    task_public_key: Path
    handlers: Mapping[str, rules.Handler]
    stop: threading.Event
    running: RunningHandlers = dataclasses.field(default_factory=RunningHandlers)
    """The handlers whose result is not recorded yet."""

    def post_unposted(self) -> None:
        """Post the results that an earlier run of the agent recorded but did not post."""
        for entry in self.history.unposted():
            self._post_entry(entry)

    def verify(self, envelope: Mapping[str, Any]) -> rules.Task | None:
        """Return the delivered task, or None if its signature or its form is wrong."""
        payload = envelope.get("payload")
        try:
            signature = base64.b64decode(str(envelope.get("signature")), validate=True)
        except binascii.Error:
            signature = b""
        if not isinstance(payload, str) or not ed25519.verify(self.task_public_key, payload.encode(), signature):
            fix = f"if the platform's task key was changed: rm {self.task_public_key} and restart the agent"
            log.error("task.dropped", code="task_signature_invalid", fix=fix)
            return None
        try:
            return rules.parse(payload)
        except rules.MalformedTask as error:
            log.error("task.dropped", code="task_malformed", error=str(error))
            return None

    def handle(self, task: rules.Task) -> bool:
        """Run one delivered task and post its result; return False if the task cannot be done yet."""
        with log.about(task.correlation_id):
            return self._handle(task)

    def _handle(self, task: rules.Task) -> bool:
        if task.node_id != self.client.node_id:
            log.error("task.refused", task_id=task.task_id, code="task_other_node")
            error = rules.problem("task_other_node", f"the task is not for this node, {self.client.node_id}")
            self._post(task.task_id, task.correlation_id, rules.outcome("refused", error=error))
            return True
        entry = self.history.find(task.task_id)
        if entry is not None:
            log.info("task.already_done", **_log_fields(task))
        else:
            entry = self._perform(task)
        if entry is None:
            return False
        self._post_entry(entry)
        return True

    def _perform(self, task: rules.Task) -> journal.Entry | None:
        with self.running.count():
            if self.stop.is_set():
                return None
            try:
                outcome = self._outcome(task)
            except errors.Replaced:
                self.stop.set()
                return None
            except errors.TryLater as reason:
                log.warning("task.postponed", error=str(reason), **_log_fields(task))
                return None
            if self.stop.is_set() and outcome["status"] == "failed":
                # The signal that stops the agent may also have ended the programs of the handler. So this failure is
                # not recorded, and the platform delivers the task again.
                log.info("task.interrupted", **_log_fields(task))
                return None
            entry = journal.Entry(task.task_id, task.correlation_id, task.expires_at_s, outcome, posted=False)
            self.history.record(entry)
            return entry

    def _outcome(self, task: rules.Task) -> dict[str, Any]:
        refusal = rules.refusal(task, now_s=time.time(), handlers=self.handlers)
        if refusal is not None:
            log.error("task.refused", code=refusal["code"], error=refusal["message"], **_log_fields(task))
            return rules.outcome("refused", error=refusal)
        started_at_s, started_s = time.time(), time.monotonic()
        outcome = self._run_handler(task)
        write = log.error if outcome["error"] else log.info
        took_s = time.monotonic() - started_s
        write("task.ended", status=outcome["status"], error=outcome["error"], took_s=took_s, **_log_fields(task))
        return {**outcome, "started_at_s": started_at_s, "took_s": took_s}

    def _run_handler(self, task: rules.Task) -> dict[str, Any]:
        try:
            return rules.outcome("succeeded", self.handlers[task.type].function(task.params))
        except errors.TryLater:
            raise
        except errors.TaskFailed as failure:
            return rules.outcome("failed", error=rules.problem(failure.code, str(failure)))
        except commands.CommandFailed as failure:
            return rules.outcome("failed", error=rules.problem("command_failed", str(failure)))
        except Exception as failure:  # noqa: BLE001
            # Any other exception of a handler fails the task and must not end the agent.
            return rules.outcome("failed", error=rules.problem("handler_crashed", repr(failure)))

    def _post_entry(self, entry: journal.Entry) -> None:
        if self._post(entry.task_id, entry.correlation_id, entry.outcome) and not entry.posted:
            self.history.mark_posted(entry)

    def _post(self, task_id: str, correlation_id: str, outcome: dict[str, Any]) -> bool:
        """Post the result until the platform accepts or drops it. Return False if the agent stopped before.

        A result that the platform cannot read would be refused forever, and its task would only end by its time
        limit. It is posted as a failure instead, which states why."""
        backoff = wire.Backoff(self.stop)
        path, key = f"/node/v1/tasks/{task_id}/result", task_id
        fields: dict[str, Any] = {"task_id": task_id, "correlation_id": correlation_id}
        while not self.stop.is_set():
            try:
                self.client.call("POST", path, outcome, idempotency_key=key, correlation_id=correlation_id)
                return True
            except wire.Rejected as error:
                if error.status in UNREADABLE and key == task_id:
                    log.error("result.refused", error=str(error), **fields)
                    key = f"{task_id}-refused"
                    outcome = rules.outcome("failed", error=rules.problem("result_refused", str(error)))
                    continue
                if error.status in (404, 409, *UNREADABLE):
                    log.info("result.dropped", error=str(error), **fields)
                    return True
                log.warning("result.post_failed", error=str(error), **fields)
            except wire.Unreachable as error:
                log.warning("result.post_failed", error=str(error), **fields)
            backoff.wait()
        return False


def _log_fields(task: rules.Task) -> dict[str, Any]:
    return {"task_id": task.task_id, "type": task.type, "correlation_id": task.correlation_id}
