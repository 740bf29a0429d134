"""What the controller process reports of itself: what fails between operations, and the newest lines of its log.

`health` and `reconciliation` note failures here. `runner` sends the report with its claims, if it has changed."""

import datetime
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuaas_contract.controllers import FAILURE_CHARS_MAX, FAILURES_MAX, ControllerFailure, ControllerReport
from msgspec.structs import replace

from gpuaas_sdk.controller.logs import ProcessLog


class Found(NamedTuple):
    """A failure that a look found."""

    task: str
    """As in `ControllerFailure`: `look`, `machine`, `request`, `renew`."""
    code: str
    message: str


class SelfReport:
    """The state of this process, as the platform shows it."""

    def __init__(self, every_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`every_s`: the shortest interval between two reports. Claims can follow each other closely."""
        self.log = ProcessLog()
        self._every_s = every_s
        self._clock = clock
        self._sent_at = -every_s
        self._process = uuid.uuid4().hex
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._number = 0
        self._failures: dict[str, list[ControllerFailure]] = {}
        self._failures_changed = False
        self._sent_line = 0

    def looked(self, instance_id: str, failures: Sequence[Found], *, now: datetime.datetime | None = None) -> None:
        """Note what a look at the instance found: nothing, if it worked. It replaces what the look before found."""
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
        """Return the report to send now; None if nothing has changed since the last one, or it was sent just now."""
        if self._clock() - self._sent_at < self._every_s:
            return None
        if self._number and not self._failures_changed and self._sent_line == self.log.number:
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
        return replace(failure, message=self.log.redaction.hidden(failure.message)[:FAILURE_CHARS_MAX])


def _continued(
    before: ControllerFailure | None, failure: Found, instance_id: str, now: datetime.datetime
) -> ControllerFailure:
    return ControllerFailure(
        task=failure.task,
        code=failure.code,
        message=failure.message,
        instance_id=instance_id,
        failed_since=before.failed_since if before else now,
        observed_at=now,
        count=before.count + 1 if before else 1,
    )


def _age(failure: ControllerFailure) -> datetime.datetime:
    return failure.observed_at
