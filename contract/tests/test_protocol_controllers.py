"""Which report of a controller is stored, if processes with the same name report beside each other."""

import datetime
from typing import Any

from gpuaas_contract.controllers import ControllerReport
from gpuaas_contract.protocol import controllers

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def report(process: str = "a", number: int = 1, started_at: datetime.datetime = NOW, **more: Any) -> ControllerReport:
    return ControllerReport(process=process, started_at=started_at, number=number, **more)


def test_a_repeated_or_older_report_of_a_process_changes_nothing() -> None:
    known = controllers.state(report(number=3), NOW)
    assert [controllers.replaces(known, report(number=number), NOW) for number in (2, 3, 4)] == [False, False, True]


def test_a_paused_process_does_not_hide_its_successor() -> None:
    later = controllers.state(report("later", started_at=NOW + MINUTE), NOW + MINUTE)
    assert not controllers.replaces(later, report("earlier", number=99), NOW + MINUTE)
    assert controllers.replaces(
        controllers.state(report("earlier"), NOW), report("later", started_at=NOW + MINUTE), NOW
    )


def test_an_earlier_process_reports_again_after_the_later_one_was_silent() -> None:
    later = controllers.state(report("later", started_at=NOW + MINUTE), NOW)
    assert controllers.replaces(later, report("earlier"), NOW + controllers.SILENT_AFTER)
    assert not controllers.replaces(later, report("earlier"), NOW + controllers.SILENT_AFTER - MINUTE / 60)
