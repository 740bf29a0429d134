"""What the controller process reports of itself: what fails between operations, and the newest lines of its log.

`health` and `reconciliation` note failures here. `runner` sends the report with its claims: if it has changed,
and every minute."""

import datetime
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuaas_contract import characters
from gpuaas_contract.controllers import FAILURE_CHARS_MAX, FAILURES_MAX, ControllerFailure, ControllerReport
from gpuaas_contract.protocol.controllers import SILENT_AFTER
from msgspec.structs import replace

from gpuaas_sdk.controller import logs
from gpuaas_sdk.controller.logs import ProcessLog
from gpuaas_sdk.controller.redaction import Redaction

_UNCHANGED_EVERY_S = SILENT_AFTER.total_seconds() / 2
"""An unchanged report is sent this often: a process that reports nothing for `SILENT_AFTER` counts as ended."""


class NotedFailure(NamedTuple):
    """A failure in a look at an instance, before it is counted."""

    task: str
    """As in `ControllerFailure`: `look`, `machine`, `request`, `renew`."""
    code: str
    message: str


class SelfReport:
    """The state of this process, as the platform shows it."""

    def __init__(
        self, every_s: float, *, clock: Callable[[], float] = time.monotonic, redaction: Redaction | None = None
    ) -> None:
        """`every_s`: the shortest interval between two reports. Claims can follow each other closely. `redaction`: the
        values that all runners of this process replace."""
        self.log = ProcessLog(redaction)
        self._every_s = every_s
        self._clock = clock
        self._sent_at = 0.0
        self._process = uuid.uuid4().hex
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._number = 0
        self._failures: dict[str, list[ControllerFailure]] = {}
        self._failures_changed = False
        self._sent_line = 0

    def looked(
        self, instance_id: str, failures: Sequence[NotedFailure], *, now: datetime.datetime | None = None
    ) -> None:
        """Note what failed in a look at the instance: nothing, if it worked. It replaces the failures of the look
        before."""
        before = {(item.task, item.code): item for item in self._failures.pop(instance_id, [])}
        self._failures_changed = self._failures_changed or bool(failures) or bool(before)
        at = now or datetime.datetime.now(datetime.UTC)
        if failures:
            by_kind = {(item.task, item.code): item for item in failures}
            self._failures[instance_id] = [
                _continued(before.get(key), item, instance_id, at) for key, item in by_kind.items()
            ]

    def forget(self, instance_id: str) -> None:
        """Drop the failures of an instance that this process does not look after any more."""
        self.looked(instance_id, [])

    def due(self) -> ControllerReport | None:
        """Return the report to send now; None if the last one was sent just now, or recently and nothing changed."""
        age_s = self._clock() - self._sent_at
        if self._number and age_s < self._every_s:
            return None
        changed = self._failures_changed or self._sent_line != self.log.number
        if self._number and not changed and age_s < _UNCHANGED_EVERY_S:
            return None
        self._sent_at = self._clock()
        self._number += 1
        self._failures_changed, self._sent_line = False, self.log.number
        failures = sorted((item for items in self._failures.values() for item in items), key=_age)
        return ControllerReport(
            process=self._process,
            started_at=self._started_at,
            number=self._number,
            failures=[self._clean(item) for item in failures[-FAILURES_MAX:]][::-1],
            failures_total=len(failures),
            log=self.log.newest(),
        )

    def _clean(self, failure: ControllerFailure) -> ControllerFailure:
        # Secrets are replaced before the text is shortened: half a secret would not be found.
        message = characters.clean(self.log.redaction.hidden(failure.message))
        return replace(failure, message=message[:FAILURE_CHARS_MAX])


def _continued(
    before: ControllerFailure | None, failure: NotedFailure, instance_id: str, now: datetime.datetime
) -> ControllerFailure:
    return ControllerFailure(
        task=failure.task,
        code=failure.code,
        message=logs.storable(failure.message),
        instance_id=instance_id,
        failed_since=before.failed_since if before else now,
        observed_at=now,
        count=before.count + 1 if before else 1,
    )


def _age(failure: ControllerFailure) -> datetime.datetime:
    return failure.observed_at
