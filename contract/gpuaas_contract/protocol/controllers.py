"""Decide whether the report of a controller replaces the one before, and which questions for its log are answered."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.controllers import ControllerReport, ControllerState

SILENT_AFTER = datetime.timedelta(minutes=2)
"""After this time without a report, a process counts as ended: also an earlier one of the same name may report. A
process that runs sends an unchanged report more often than this."""


def replaces(known: ControllerState | None, report: ControllerReport, now: datetime.datetime) -> bool:
    """Return whether the report is newer than the stored one. A paused process must not hide its successor."""
    if known is None:
        return True
    if known.process == report.process:
        return report.number > known.number
    return report.started_at >= known.started_at or now - known.reported_at >= SILENT_AFTER


def state(report: ControllerReport, now: datetime.datetime) -> ControllerState:
    """Return what is shown of a report beside its log."""
    return ControllerState(
        process=report.process,
        started_at=report.started_at,
        number=report.number,
        reported_at=now,
        failures=report.failures,
        failures_total=max(report.failures_total, len(report.failures)),
    )


def check_log_query(controller_id: str) -> None:
    """Refuse a request for a log that does not name its controller."""
    if not controller_id:
        raise errors.ValidationFailed("controller_id is missing.", details={"field": "controller_id"})
