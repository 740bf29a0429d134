"""Which lines of a controller's log the platform stores."""

import datetime

from gpuaas_contract.operations import LogLevel
from gpuaas_contract.protocol import log
from gpuaas_contract.protocol.log import LogState
from gpuaas_contract.runtime import ReportedLogLine

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def line(number: int, level: LogLevel = "info", text: str = "") -> ReportedLogLine:
    return ReportedLogLine(number=number, logged_at=NOW, level=level, event="e", fields={"text": text})


def test_a_line_that_was_sent_twice_is_stored_once() -> None:
    state, first = log.stored(LogState(), "op_1", 1, [line(1), line(2)])
    state, second = log.stored(state, "op_1", 1, [line(1), line(2), line(3)])
    assert [stored.position for stored in (*first, *second)] == [1, 2, 3]
    assert log.stored(state, "op_1", 1, [line(3)]) == (state, [])


def test_lines_of_the_next_claim_begin_with_number_1_and_follow_those_of_the_last() -> None:
    state, _ = log.stored(LogState(), "op_1", 1, [line(1), line(2)])
    _, lines = log.stored(state, "op_1", 2, [line(1)])
    assert [(stored.position, stored.epoch) for stored in lines] == [(3, 2)]


def test_a_full_log_states_it_once_and_keeps_room_for_warnings_and_errors() -> None:
    info_max = int(log.LINES_MAX * log.INFO_SHARE)
    state, lines = log.stored(LogState(), "op_1", 1, [line(number) for number in range(1, info_max + 10)])
    assert (len(lines), lines[-1].event, lines[-1].level) == (info_max + 1, log.CUT, "warning")
    errors = [line(number, "error") for number in range(info_max + 10, 2 * log.LINES_MAX)]
    state, more = log.stored(state, "op_1", 1, errors)
    assert {stored.level for stored in more} == {"error"}
    assert (state.lines, len(lines) + len(more)) == (log.LINES_MAX, log.LINES_MAX)


def test_a_log_is_bounded_in_bytes_too() -> None:
    state = LogState()
    for number in range(1, 400):
        state, _ = log.stored(state, "op_1", 1, [line(number, text="x" * 4000)])
    assert log.BYTES_MAX * log.INFO_SHARE - 4100 < state.size_bytes <= log.BYTES_MAX * log.INFO_SHARE
    assert state.is_cut
