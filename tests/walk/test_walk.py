"""ARCHITECTURE.md's walk through one `member add` is the recording of a run."""

import os
from pathlib import Path

import pytest
import walk_run
import walk_table

PAGE = walk_run.ROOT / "ARCHITECTURE.md"
ROWS_MAX = 20


@pytest.fixture
def recording(tmp_path: Path) -> walk_run.Recording:
    return walk_run.record(tmp_path)


def test_the_walk_of_the_page_is_the_recorded_one(recording: walk_run.Recording) -> None:
    """GPUAAS_WRITE_GOLDEN=1 writes the table again after a change on purpose."""
    recorded = walk_table.page_with(PAGE.read_text(), recording)
    if os.environ.get("GPUAAS_WRITE_GOLDEN"):
        PAGE.write_text(recorded)
    assert walk_table.crossed(PAGE.read_text()) == walk_table.crossed(recorded)


def test_every_row_of_the_walk_explains_what_happens_there() -> None:
    assert walk_table.rows_without_meaning(PAGE.read_text()) == []
    assert 0 < walk_table.rows(PAGE.read_text()) <= ROWS_MAX
