"""Decide what a step looks like after a report on it."""

import datetime

from gpuaas_contract.operations import Step
from gpuaas_contract.runtime import ReportStep


def reported(present: Step | None, report: ReportStep, now: datetime.datetime) -> Step:
    """Return the step after the report. Starting a failed step again counts as another attempt."""
    again = present is not None and present.state == "failed" and report.state == "running"
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
