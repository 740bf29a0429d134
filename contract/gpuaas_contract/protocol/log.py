"""Decide which lines of a controller's log are stored, and when the log of an operation is full."""

from collections.abc import Sequence

import msgspec

from gpuaas_contract.operations import LogLine
from gpuaas_contract.runtime import ReportedLogLine

LINES_MAX, BYTES_MAX = 2_000, 524_288
"""Bounds of the log of one operation."""
INFO_SHARE = 0.75
"""Lines of level `info` may use this part of the bounds. The rest is for warnings and errors, which often come last."""
CUT = "log.cut"


class LogState(msgspec.Struct, frozen=True):
    """What is stored of an operation's log."""

    epoch: int = 0
    number: int = 0
    """Number of the last line that was received under this epoch."""
    lines: int = 0
    size_bytes: int = 0
    is_cut: bool = False
    """Whether a line was left out."""


def stored(
    present: LogState, operation_id: str, epoch: int, reported: Sequence[ReportedLogLine]
) -> tuple[LogState, list[LogLine]]:
    """Return the state after a report and the lines to store. A line that was received before is left out.

    The first line that does not fit is replaced with one that states it."""
    state = present if present.epoch == epoch else msgspec.structs.replace(present, epoch=epoch, number=0)
    lines: list[LogLine] = []
    for line in reported:
        if line.number <= state.number:
            continue
        state = msgspec.structs.replace(state, number=line.number)
        size = len(line.event) + len(msgspec.json.encode(line.fields))
        if _fits(state, line, size):
            state = _with_line(state, size)
            lines.append(_line(operation_id, epoch, state.lines, line))
        elif not state.is_cut:
            state = msgspec.structs.replace(_with_line(state, 0), is_cut=True)
            why = "the log is full: later lines are only in the log of the controller; warnings and errors may follow"
            cut = msgspec.structs.replace(line, level="warning", event=CUT, fields={"reason": why})
            lines.append(_line(operation_id, epoch, state.lines, cut))
    return state, lines


def _fits(state: LogState, line: ReportedLogLine, size: int) -> bool:
    share = INFO_SHARE if line.level == "info" else 1.0
    return state.lines + 1 <= LINES_MAX * share and state.size_bytes + size <= BYTES_MAX * share


def _with_line(state: LogState, size: int) -> LogState:
    return msgspec.structs.replace(state, lines=state.lines + 1, size_bytes=state.size_bytes + size)


def _line(operation_id: str, epoch: int, position: int, line: ReportedLogLine) -> LogLine:
    return LogLine(
        operation_id=operation_id,
        position=position,
        logged_at=line.logged_at,
        level=line.level,
        event=line.event,
        fields=line.fields,
        epoch=epoch,
    )
