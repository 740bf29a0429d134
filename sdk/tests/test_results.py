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
