"""The checker of registers finds each kind of wrong history, and accepts right ones."""

import pytest
from register_history import Done, lost, violations

BEGUN = {"a": 0.0, "b": 2.0}
WROTE_A, WROTE_B = Done("write", "a", 5, 0, 1), Done("write", "b", 6, 2, 3)


@pytest.mark.parametrize(
    "read",
    [
        Done("read", "a", 5, 1.5, 1.8),
        Done("read", "a", 5, 2.1, 4),
        Done("read", "b", 6, 2.1, 2.5),
        Done("read", "", 0, 0.1, 0.2),
    ],
)
def test_reads_may_show_what_was_true_at_some_moment_between_their_ends(read: Done) -> None:
    assert violations([WROTE_A, WROTE_B, read], BEGUN) == []


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([WROTE_A, WROTE_B, Done("read", "a", 5, 4, 5)], "a read has revision 5 after revision 6 was seen"),
        ([WROTE_A, Done("read", "", 0, 2, 3)], "a read has revision 0 after revision 5 was seen"),
        ([WROTE_A, Done("write", "b", 5, 2, 3)], "two writes have revision 5"),
        ([WROTE_A, Done("write", "b", 4, 2, 3)], "a write has revision 4 after revision 5 was seen"),
        ([WROTE_A, Done("read", "b", 5, 2.5, 3)], "revision 5 was written as a and read as b"),
        ([WROTE_A, Done("read", "b", 7, 1.2, 1.5)], "b was read before it was written"),
        ([WROTE_A, Done("read", "c", 7, 2, 3)], "c was read before it was written"),
    ],
)
def test_a_history_that_one_copy_could_not_have_is_reported(history: list[Done], reason: str) -> None:
    assert reason in violations(history, BEGUN)


def test_a_key_that_was_acknowledged_and_is_not_there_is_lost() -> None:
    assert lost(["a", "b"], ["b", "c"]) == {"a"}
