"""The check of plain words: what it reads, what it leaves alone, and the replacement it prints."""

import subprocess
import sys
from pathlib import Path

import pytest

PLAIN_WORDS = Path(__file__).parents[2] / "tools" / "plain-words"


def _findings(file: Path, text: str) -> list[str]:
    file.write_text(text)
    checked = subprocess.run(
        [sys.executable, PLAIN_WORDS, file], capture_output=True, text=True, check=False, timeout=60
    )
    lines = [line.removeprefix(f"{file}:") for line in checked.stdout.splitlines()]
    assert checked.returncode == (1 if lines else 0), checked.stderr
    return [line.partition(": use ")[0] for line in lines]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('"""Wake whoever waits."""', '1: "whoever"'),
        ("# the server\ncount = 1  # read anew", '2: "anew"'),
        ('message = f"{count} rows; the rest goes on"', '1: "goes on"'),
        ('"""First line.\n\nAn hour at the\nmost.\n"""', '3: "at the most"'),
        ("for one in rows:\n    pass", '1: "one"'),
        ("def read(found: int) -> None: ...", '1: "found"'),
        ("class Session:\n    said: str", '2: "said"'),
        ("def test_nobody_reads_it() -> None: ...", '1: "test_nobody_reads_it"'),
        ('log.info("started again", port=1)', '1: "started again"'),
    ],
    ids=["docstring", "comment", "f-string", "phrase", "variable", "parameter", "field", "function", "log-event"],
)
def test_a_word_of_the_list_is_reported_with_its_line(text: str, finding: str, tmp_path: Path) -> None:
    assert _findings(tmp_path / "sample.py", f"{text}\n") == [finding]


@pytest.mark.parametrize(
    "text",
    [
        'key = "told"',
        '"""Return what `nobody` owns."""',
        "one_member = found_rows = 1",
        'def f() -> str:\n    return "The row was not found; one is enough."',
        '"""The reason goes on the audit trail."""',
        'log.info("server.started", port=1)',
    ],
    ids=["key", "code-in-prose", "part-of-a-variable", "usual-sense", "other-sense", "event-name"],
)
def test_the_usual_sense_of_a_word_is_not_reported(text: str, tmp_path: Path) -> None:
    assert _findings(tmp_path / "sample.py", f"{text}\n") == []


@pytest.mark.parametrize("name", ["keeping.py", "node_hearing.py", "held.py"])
def test_a_module_is_not_named_by_a_gerund(name: str, tmp_path: Path) -> None:
    assert _findings(tmp_path / name, "") == [f'1: "{Path(name).stem}"']


@pytest.mark.parametrize("name", ["testing.py", "key_ring.py", "claim.py"])
def test_a_module_named_by_a_noun_or_a_verb_is_not_reported(name: str, tmp_path: Path) -> None:
    assert _findings(tmp_path / name, "") == []


def test_a_page_is_read_without_its_code(tmp_path: Path) -> None:
    page = "# Title\n\nNobody reads `whoever`.\n\n```\ngpuaas meanwhile\n```\n"
    assert _findings(tmp_path / "page.md", page) == ['3: "Nobody"']


def test_a_finding_names_the_replacement(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Read it anew.\n")
    checked = subprocess.run([sys.executable, PLAIN_WORDS, file], capture_output=True, text=True, check=False)
    assert checked.stdout == f'{file}:1: "anew": use again\n'
