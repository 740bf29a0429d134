"""How many members must agree, and when one may leave or restart."""

import pytest
from gpuaas_sdk.controller.quorum import rules


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_a_majority(voters: int, needed: int) -> None:
    assert rules.quorum(voters) == needed


@pytest.mark.parametrize(
    ("unwell", "others", "may_leave"),
    [(0, 0, True), (0, 1, True), (0, 2, True), (1, 2, False), (1, 4, True), (2, 4, False)],
)
def test_a_member_may_leave_if_those_who_stay_keep_a_quorum(unwell: int, others: int, may_leave: bool) -> None:
    away = {f"gpu-{number}": "no answer" for number in range(unwell)}
    assert rules.may_leave(away, others, "gpu-9").ok is may_leave


def test_a_member_restarts_only_if_all_others_serve() -> None:
    assert rules.may_pause({}, "gpu-1").ok
    check = rules.may_pause({"gpu-2": "no answer"}, "gpu-1")
    assert (check.ok, check.reason) == (
        False,
        "the restart of gpu-1 waits, because others do not serve: gpu-2: no answer",
    )


def test_conditions_name_those_who_do_not_serve() -> None:
    conditions = rules.conditions({"gpu-1": "no answer"}, 3)
    assert {name: check.ok for name, check in conditions.items()} == {"HasQuorum": True, "AllMembersHealthy": False}
    assert not rules.conditions({"gpu-1": "no answer", "gpu-2": "no leader"}, 3)["HasQuorum"].ok
    assert conditions["AllMembersHealthy"].reason == "gpu-1: no answer"
