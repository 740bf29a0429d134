"""Results of actions are cut to the size that the platform accepts, which counts bytes and not characters."""

import msgspec
import pytest
from gpuaas_contract import characters
from gpuaas_contract.runtime import COMPLETE, RESULT_BYTES_MAX, CompleteOperation
from gpuaas_sdk import results
from gpuaas_sdk.client import request

GRIN = "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("text", "bytes_max", "expected"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("äöü", 5, "äö"),
        (f"a{GRIN}b", 4, "a"),
        (f"a{GRIN}b", 5, f"a{GRIN}"),
        ('a"b', 2, "a"),
        ("a\x7fb", 3, "a"),
        ("\ud83d", 4, "?"),
        ("", 4, ""),
        ("ab", 0, ""),
    ],
)
def test_a_text_is_cut_to_bytes_without_half_a_character(text: str, bytes_max: int, expected: str) -> None:
    assert results.text_within(text, bytes_max) == expected


@pytest.mark.parametrize("character", ["x", "ü", GRIN, "\x7f", "\r", "\x1b", '"'])
def test_as_many_rows_are_kept_as_the_platform_accepts(character: str) -> None:
    rows = results.rows_within({"line": character * 100} for _ in range(10_000))
    content = request.content(COMPLETE, CompleteOperation(epoch=1, result={"rows": rows, "note": "x" * 1_000}))
    assert content is not None
    sent = msgspec.json.decode(content, type=CompleteOperation).result
    assert RESULT_BYTES_MAX * 0.9 < len(msgspec.json.encode(sent)) <= RESULT_BYTES_MAX
    assert characters.refused(content.decode()) == ""


@pytest.mark.parametrize("character", ["x", GRIN, '"'])
def test_the_last_lines_of_a_text_are_kept_and_a_very_long_one_has_its_beginning(character: str) -> None:
    lines = [*(f"{number} {character * 500}" for number in range(2_000)), character * 1_000_000, "the end"]
    kept = results.last_lines(lines)
    rows = [{"number": number, "line": line} for number, line in enumerate(kept)]
    assert len(msgspec.json.encode({"rows": rows, "note": "x" * 1_000})) <= RESULT_BYTES_MAX
    assert [line[:4] for line in kept[-3:]] == ["1999", character * 4, "the "]
    assert len(kept) > 100


def test_a_note_counts_the_rows_if_not_all_are_shown() -> None:
    rows = [{"job": f"{number} {GRIN * 500}"} for number in range(300)]
    result = results.first_rows(rows, 300, "Ask for fewer.")
    assert result["note"] == f"The first {len(result['rows'])} of 300. Ask for fewer."
    assert results.first_rows(rows[:2], 3)["note"] == "The first 2 of 3."
    assert "note" not in results.first_rows(rows[:2], 2)


def test_half_a_character_pair_in_a_row_does_not_stop_the_result() -> None:
    assert results.rows_within([{"message": "a\ud83db", "count": 3}]) == [{"message": "a?b", "count": 3}]
