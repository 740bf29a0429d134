"""Decide what a step looks like after a report on it, and which steps count as done."""

import datetime
from collections.abc import Sequence

from gpuaas_contract.operations import ExitTaken, Step
from gpuaas_contract.runtime import ReportStep


def reported(present: Step | None, report: ReportStep, now: datetime.datetime) -> Step:
    """Return the step after the report. Starting a step again that ended counts as another attempt."""
    again = present is not None and present.state != "running" and report.state == "running"
    return Step(
        name=report.name,
        member_id=report.member_id,
        state=report.state,
        message=report.message,
        attempt=(present.attempt + again) if present else 1,
        started_at=present.started_at if present else now,
        ended_at=None if report.state == "running" else now,
        transcript=report.transcript,
    )


def changes(present: Step | None, report: ReportStep, exits: Sequence[ExitTaken]) -> bool:
    """Return whether the report changes the step. One that succeeded only changes if it does not count any more and
    starts again."""
    if present is None or present.state != "succeeded":
        return True
    return report.state == "running" and not is_done(present, exits)


def is_done(step: Step, exits: Sequence[ExitTaken]) -> bool:
    """Return whether the step succeeded and must not run again, after these exits of its operation.

    An undo reverts earlier steps, and a retry after it repeats them. Another operation on the members, a repair, may
    also have reverted them. So only steps count that ended after the last of these."""
    since = _counted_since(exits)
    return step.state == "succeeded" and (since is None or (step.ended_at or step.started_at) >= since)


def _counted_since(exits: Sequence[ExitTaken]) -> datetime.datetime | None:
    forward, since = True, None
    for taken in exits:
        if taken.name not in ("retry", "compensate", "cancel"):
            continue
        turned, forward = forward != (taken.name == "retry"), taken.name == "retry"
        if turned or taken.repeats_steps:
            since = taken.taken_at
    return since
