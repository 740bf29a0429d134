"""The event document: golden, complete, and every event has a payload of its own form."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_contract import asyncapi, event_types

ROOT = Path(__file__).parents[2]
GOLDEN = (ROOT / "contract/asyncapi/asyncapi.json", ROOT / "docs/reference/events.md")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_the_golden_file_matches_the_event_catalogue(path: Path) -> None:
    assert path.read_text() == asyncapi.expected(path), "if the change is on purpose: make contract"


def test_every_reference_in_the_document_leads_somewhere() -> None:
    document = asyncapi.document()
    for reference in _references(document):
        part_of_document: Any = document
        for part in reference.removeprefix("#/").split("/"):
            part_of_document = part_of_document[part]
        assert part_of_document


def test_every_event_is_on_the_channels_of_its_levels_under_its_own_name() -> None:
    document = asyncapi.document()
    for level in asyncapi.STREAMS:
        expected = {name for name, kind in event_types.TYPES.items() if level in kind.levels}
        assert set(document["channels"][f"{level}Events"]["messages"]) == expected
    assert set(document["components"]["messages"]) == set(event_types.TYPES)


def test_a_page_without_a_place_for_the_table_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Events\n")
    with pytest.raises(ValueError, match="no place"):
        asyncapi.expected(page)


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield str(inner)
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
