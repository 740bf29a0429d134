"""Settings of the scheduler that people choose: what fits, what slurm.conf gets, and what a change means. Pure."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from gpuaas_app_slurm import changes
from gpuaas_app_slurm.controller import app
from gpuaas_app_slurm.workload import choices, cluster, config, state
from gpuaas_sdk.failures import Permanent, Refused
from test_slurm_config import CLUSTER, GOLDEN

FORM = app.manifest.deploy_form
BASE = {"cluster_name": "research", "controller_allocation_id": "alloc_1"}
SHORT = {"name": "short", "default_time": "00:10:00", "max_time": "01:00:00", "priority_tier": 10}
CHOSEN = {
    "default_time": "12:00:00",
    "max_time": "UNLIMITED",
    "partitions": [SHORT, {"name": "idle", "priority_tier": 0}],
    "priority": {"age": 50000, "partition": 2000},
    "preemption": "requeue",
    "extra_settings": {"MessageTimeout": 30, "SchedulerParameters": "bf_continue", "PriorityMaxAge": "1-00:00:00"},
}
NODE_OF_OTHERS = "PartitionName=by-hand DefaultTime=NONE MaxTime=UNLIMITED PriorityTier=1 State=DOWN"


def inputs(**changed: Any) -> config.Inputs:
    return config.parse_inputs(BASE | changed)


def test_slurm_conf_with_chosen_settings_is_the_golden_one() -> None:
    wanted = msgspec.structs.replace(CLUSTER, scheduler=inputs(**CHOSEN).scheduler)
    assert config.slurm_conf(wanted) == (GOLDEN / "slurm-settings.conf").read_text()


def test_the_form_accepts_chosen_settings_and_the_app_too() -> None:
    jsonschema_rs.validate(FORM, BASE | CHOSEN)
    choices.check(inputs(**CHOSEN).scheduler)


WRONG: dict[str, dict[str, Any]] = {
    "is longer than max_time 01:00:00": {"partitions": [SHORT | {"default_time": "01:00:01"}]},
    "default_time of partition short is no time": {"partitions": [SHORT | {"default_time": "00:00:00"}]},
    "main is the main partition": {"partitions": [SHORT | {"name": "main"}]},
    "short is in `partitions` twice": {"partitions": [SHORT, SHORT]},
    "Prolog cannot be set with extra_settings": {"extra_settings": {"Prolog": "/tmp/x"}},
    "the value of SchedulerParameters": {"extra_settings": {"SchedulerParameters": "a\nProlog=/tmp/x"}},
    "less than five times MessageTimeout": {"extra_settings": {"UnkillableStepTimeout": 49}},
    "the value of SlurmctldDebug": {"extra_settings": {"SlurmctldDebug": "info # quiet"}},
}


@pytest.mark.parametrize("reason", WRONG)
def test_settings_that_do_not_fit_are_refused_with_a_reason(reason: str) -> None:
    with pytest.raises(Permanent, match=reason):
        choices.check(inputs(**WRONG[reason]).scheduler)


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": {"age": -1}},
        {"priority": {"karma": 1}},
        {"preemption": "suspend"},
        {"partitions": [{"name": "Short"}]},
        {"partitions": [{"name": "default"}]},
        {"partitions": [SHORT | {"nodes": "gpu-2"}]},
        {"extra_settings": {"Prolog": "/tmp/x"}},
        {"extra_settings": {"SchedulerParameters": "a\nProlog=/tmp/x"}},
        {"extra_settings": {"SchedulerParameters": "a b"}},
        {"extra_settings": {"MessageTimeout": "10\n"}},
    ],
)
def test_the_form_refuses_settings_that_slurm_conf_must_not_have(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(FORM, BASE | wrong)


def test_the_form_has_a_schema_for_exactly_the_further_settings_that_the_app_allows() -> None:
    assert set(FORM["properties"]["extra_settings"]["properties"]) == choices.EXTRA_KEYS


def test_no_further_setting_is_one_that_the_app_writes_itself() -> None:
    """Those that people may set although the app has a value for them are rendered once."""
    lines = (GOLDEN / "slurm-settings.conf").read_text().splitlines()
    keys = [line.split("=")[0] for line in lines if "=" in line and not line.startswith(("#", "PartitionName"))]
    assert len(keys) == len(set(keys))
    plain = (GOLDEN / "slurm.conf").read_text()
    written = {key for key in choices.EXTRA_KEYS if f"\n{key}=" in plain}
    assert written == {"SchedulerParameters", "PriorityMaxAge", "PriorityDecayHalfLife"}


def test_what_came_from_the_machines_stays_when_settings_change() -> None:
    old = config.slurm_conf(msgspec.structs.replace(CLUSTER, cgroup="v2"))
    unchanged = cluster.changed("inst_1", inputs(), config.present(old))
    assert config.slurm_conf(unchanged) == old


def test_a_slurm_conf_that_the_app_cannot_read_is_refused() -> None:
    with pytest.raises(Refused, match="was not written by this release"):
        config.present("ClusterName=lab\n")


CONFIG = """\
PreemptMode             = REQUEUE
PriorityDecayHalfLife   = 14-00:00:00
PriorityMaxAge          = 1-00:00:00
PriorityWeightAge       = 50000
PriorityWeightFairShare = 100000
PriorityWeightJobSize   = 0
PriorityWeightPartition = 2000
PriorityWeightQOS       = 50000
PreemptType             = preempt/partition_prio
MessageTimeout          = 30 sec
SchedulerParameters     = batch_sched_delay=0,bf_continue
"""
PARTITIONS = """\
PartitionName=main DefaultTime=12:00:00 MaxTime=UNLIMITED PriorityTier=1 State=UP
PartitionName=short DefaultTime=00:10:00 MaxTime=01:00:00 PriorityTier=10 State=UP
PartitionName=idle DefaultTime=1-00:00:00 MaxTime=7-00:00:00 PriorityTier=0 State=INACTIVE
"""


def test_a_slurmctld_that_uses_the_settings_shows_no_difference() -> None:
    assert choices.differences(inputs(**CHOSEN).scheduler, CONFIG, PARTITIONS) == ()


@pytest.mark.parametrize(
    ("chosen", "shown"), [("1-29:00:00", "2-05:00:00"), ("007-00:00:00", "7-00:00:00"), ("0-12:00:00", "12:00:00")]
)
def test_a_time_that_slurm_writes_in_another_way_is_no_difference(chosen: str, shown: str) -> None:
    wanted = inputs(extra_settings={"PriorityDecayHalfLife": chosen}).scheduler
    lines = "".join(f"{key} = {value}\n" for key, value in choices.settings(wanted).items())
    named = choices.differences(wanted, lines.replace(chosen, shown), PARTITIONS)
    assert [line for line in named if line.startswith("Priority")] == []


def test_what_slurmctld_has_otherwise_is_named() -> None:
    shown = CONFIG.replace("30 sec", "10 sec")
    lines = PARTITIONS.replace("PartitionName=short", "PartitionName=by-hand").replace("12:00:00", "13:00:00", 1)
    assert choices.differences(inputs(**CHOSEN).scheduler, shown, lines) == (
        "MessageTimeout is 10, not 30",
        "partition by-hand still exists",
        "DefaultTime of partition main is 13:00:00, not 12:00:00",
        "partition short does not exist",
    )


def test_a_removed_partition_is_reopened_in_the_state_that_it_had() -> None:
    text = f"{PARTITIONS}{NODE_OF_OTHERS}\n"
    assert choices.removed(inputs().scheduler, text) == {"short": "UP", "idle": "UP", "by-hand": "DOWN"}


def test_the_plan_names_each_changed_setting_with_before_after_and_effect() -> None:
    planned = changes.plan(inputs(partitions=[SHORT | {"name": "old"}]), inputs(**CHOSEN))
    rows = [(change.subject, change.before, change.after) for change in planned]
    assert rows == [
        ("default_time", "1-00:00:00", "12:00:00"),
        ("max_time", "7-00:00:00", "UNLIMITED"),
        ("partition short", "", "default_time 00:10:00, max_time 01:00:00, priority_tier 10"),
        ("partition idle", "", "default_time 1-00:00:00, max_time 7-00:00:00, priority_tier 0"),
        ("partition old", "default_time 00:10:00, max_time 01:00:00, priority_tier 10", ""),
        ("priority.age", "10000", "50000"),
        ("priority.partition", "0", "2000"),
        ("preemption", "off", "requeue"),
        ("extra_settings.MessageTimeout", "", "30"),
        ("extra_settings.PriorityMaxAge", "", "1-00:00:00"),
        ("extra_settings.SchedulerParameters", "", "bf_continue"),
    ]
    effects = {change.subject: change.effect for change in planned}
    assert "--partition=short" in effects["partition short"]
    assert "refused while it has jobs" in effects["partition old"]
    assert "Batch jobs start again" in effects["preemption"]


def test_the_same_settings_give_an_empty_plan() -> None:
    assert changes.plan(inputs(**CHOSEN), inputs(**CHOSEN)) == []


def job(job_id: int, job_state: str, *partitions: str, minutes: float) -> state.Job:
    return state.Job(job_id, "ada", job_state, partitions=partitions, limit_minutes=minutes)


def test_jobs_that_a_change_concerns_are_separated_by_what_happens_to_them() -> None:
    day = 24 * 60
    fits, runs_over = job(1, "RUNNING", "main", minutes=60), job(2, "RUNNING", "main", minutes=day)
    waits_over, waits_elsewhere = (
        job(3, "PENDING", "main", minutes=day),
        job(4, "PENDING", "main", "long", minutes=day),
    )
    removed = job(5, "PENDING", "gone", minutes=60)
    after = inputs(max_time="02:00:00", default_time="01:00:00", partitions=[{"name": "long"}]).scheduler
    touched = changes.touched(after, (fits, runs_over, waits_over, waits_elsewhere, removed))
    assert touched == changes.Touched(in_removed=(removed,), running_over=(runs_over,), queued_over=(waits_over,))
    text = "\n".join(changes.notes(touched))
    assert "Running jobs keep their longer time limit: 2 (ada)" in text
    assert "Queued jobs do not start until their time limit fits the new maximum: 3 (ada)" in text


def test_a_job_without_a_time_limit_is_over_every_maximum() -> None:
    endless = job(1, "PENDING", "main", minutes=float("inf"))
    assert changes.touched(inputs().scheduler, (endless,)).queued_over == (endless,)
    assert changes.touched(inputs(max_time="UNLIMITED").scheduler, (endless,)).queued_over == ()


def test_the_page_about_settings_lists_every_further_setting() -> None:
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    assert [key for key in sorted(choices.EXTRA_KEYS) if f"`{key}`" not in page] == []
