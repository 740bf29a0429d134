"""The score card as text, JSON, JUnit XML and as a report of gaps."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from gpuaas_sdk.conformance import GAPS, Driver, ScoreCard, Subject, Verdict, cards, command


def test_a_file_that_cannot_be_written_is_found_before_the_checks_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent" / "card.json"
    assert command.main(Driver(), ("false",), ["--json", str(file)]) == command.EXIT_USAGE
    assert f"there is no folder {file.parent}" in capsys.readouterr().err


def test_a_disk_that_is_full_is_no_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def done(*_: object, **__: object) -> ScoreCard:
        return CARD

    monkeypatch.setattr(command, "run", done)
    monkeypatch.setattr(command, "_manifest", lambda argv: None)
    monkeypatch.setattr(Subject, "of", lambda *_: None)
    assert command.main(Driver(), ("false",), ["--json", str(tmp_path)]) == command.EXIT_ENVIRONMENT
    assert f"{tmp_path} cannot be written: Is a directory" in capsys.readouterr().err


CARD = ScoreCard(
    "hello",
    "1.1.0",
    [
        Verdict("operations", "Every operation succeeds.", "passed", 1.0),
        Verdict("residue", "Nothing stays.", "failed", 2.0, "n1 has /opt", "Remove it.", "app problem"),
        Verdict("preview-honesty", "Previews are true.", "not applicable", 0.0, "it has no previews"),
    ],
)


def test_a_failure_is_shown_with_its_reason_what_to_do_and_its_class() -> None:
    text = cards.line(CARD.verdicts[1])
    assert text.startswith("FAIL  residue")
    assert text.splitlines()[1:] == ["      n1 has /opt", "      Remove it. (app problem)"]


def test_a_check_that_passed_takes_one_line() -> None:
    assert cards.line(CARD.verdicts[0]) == "pass  operations                    1.0 s  Every operation succeeds."


def test_the_summary_counts_the_results() -> None:
    assert cards.summary(CARD) == "hello 1.1.0 does not conform: 1 passed, 1 failed, 1 not applicable"
    sound = ScoreCard("hello", "1.1.0", CARD.verdicts[:1])
    assert cards.summary(sound) == "hello 1.1.0 conforms: 1 passed, 0 failed, 0 not applicable"


def test_the_json_is_the_score_card() -> None:
    assert msgspec.json.decode(cards.as_json(CARD), type=ScoreCard) == CARD


def test_junit_has_one_case_for_each_check() -> None:
    suite = ElementTree.fromstring(cards.as_junit(CARD))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failure = suite.find("testcase[@name='residue']/failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type"), failure.text) == ("n1 has /opt", "app problem", "Remove it.")


def test_the_report_sorts_every_gap_into_its_class() -> None:
    report = cards.as_report(CARD)
    assert [line for line in report.splitlines() if line.startswith("## ")] == [
        *(f"## {gap.capitalize()}: {int(gap == 'app problem')}" for gap in GAPS),
        "## Not checked",
    ]
    assert "- `residue`: n1 has /opt. Remove it." in report
