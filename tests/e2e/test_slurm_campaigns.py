"""The campaigns of `bench` in a short form, each with one fixed seed: random faults on a real cluster break no rule."""

import pytest

from bench import campaign

pytestmark = [pytest.mark.machines, pytest.mark.long]


def test_after_random_operations_exits_and_faults_every_rule_holds() -> None:
    assert campaign.run(["--seed", "12", "--minutes", "0.7", "--lab", "campaigns", "--port", "7195"]) == 0


def test_random_schedules_end_no_job_and_show_no_drained_member_with_work() -> None:
    assert campaign.run_schedules(["--seed", "12", "--schedules", "2", "--lab", "campaigns", "--port", "7195"]) == 0
