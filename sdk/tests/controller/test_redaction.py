"""Secrets are replaced in all that a process sends, also if it serves many projects and received thousands of them."""

import hashlib
import time

import pytest
from gpuaas_sdk.controller import redaction as redaction_module
from gpuaas_sdk.controller.redaction import REDACTED, Redaction


def test_a_process_of_months_forgets_the_oldest_secrets_first() -> None:
    redaction = Redaction(2)
    for secret in ("first-one", "second-one", "first-one", "third-one"):
        redaction.hide(secret)
    assert redaction.hidden("first-one second-one third-one") == f"{REDACTED} second-one {REDACTED}"


def test_secrets_of_one_project_do_not_push_out_those_of_another() -> None:
    redaction = Redaction(2)
    redaction.hide("of-a-quiet-project", "prj_a")
    for number in range(10):
        redaction.hide(f"of-a-busy-project-{number}", "prj_b")
    assert redaction.hidden("of-a-quiet-project of-a-busy-project-9") == f"{REDACTED} {REDACTED}"
    assert redaction.hidden("of-a-busy-project-7") == "of-a-busy-project-7"


def test_a_secret_of_two_projects_is_replaced_until_both_have_forgotten_it() -> None:
    redaction = Redaction(1)
    for project_id in ("prj_a", "prj_b"):
        redaction.hide("of-both", project_id)
    redaction.hide("another-one", "prj_a")
    assert redaction.hidden("of-both") == REDACTED
    redaction.hide("another-one", "prj_b")
    assert redaction.hidden("of-both") == "of-both"


def _secret(number: int) -> str:
    """Return a value with another beginning than most others."""
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.mark.parametrize(
    ("secrets", "text", "expected"),
    [
        (["abcd"], "abcdabcd abc", f"{REDACTED}{REDACTED} abc"),
        (["abcd", "abcdef"], "-abcdefg-abcdeg", f"-{REDACTED}g-{REDACTED}eg"),
        (["xxabcd", "abcdefgh"], "xxabcdefgh", REDACTED),
        (["abcdef", "bcde"], "abcdef bcde", f"{REDACTED} {REDACTED}"),
        (["secret"], "a secret", f"a {REDACTED}"),
        (["abcdef"], "abcd", "abcd"),
        (["schl\u00fcssel"], "der schl\u00fcssel", f"der {REDACTED}"),
        (["abc"], "abc", "abc"),
    ],
)
@pytest.mark.parametrize("others", [0, 500], ids=["few secrets", "many secrets"])
def test_every_character_of_a_secret_is_replaced(secrets: list[str], text: str, expected: str, others: int) -> None:
    redaction = Redaction()
    for secret in (*secrets, *map(_secret, range(others))):
        redaction.hide(secret)
    assert (len(redaction._lengths) > redaction_module._FEW) == (others > 0)
    assert redaction.hidden({text: [text, 7]}) == {expected: [expected, 7]}


def test_a_line_costs_about_the_same_with_a_thousand_times_as_many_secrets() -> None:
    line = {"event": "operation.completed", "text": "a line of usual length, about as long as most lines are " * 2}

    def cost_s(secrets: int) -> float:
        redaction = Redaction()
        for number in range(secrets):
            redaction.hide(_secret(number))
        assert len(redaction._lengths) > redaction_module._FEW, "otherwise another way is measured"
        samples: list[float] = []
        for _ in range(50):
            begun = time.perf_counter()
            redaction.hidden(line)
            samples.append(time.perf_counter() - begun)
        return min(samples)

    assert cost_s(200_000) < 20 * cost_s(200)
