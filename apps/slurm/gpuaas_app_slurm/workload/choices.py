"""The settings of the scheduler that people choose at the deploy and can change later: partitions, time limits,
priority, preemption, and further lines of slurm.conf from an allow-list. Pure; `config` renders them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from gpuaas_sdk.failures import Permanent, Refused

Preemption = Literal["off", "requeue", "cancel"]

MAIN_TIER = 1
"""The priority tier of the main partition, which is Slurm's default. Other partitions are below or above it."""

UPGRADE = "Upgrade"
"""The partition in which root tests machines during an upgrade. People cannot choose a name with capital letters."""

EXTRA_KEYS = frozenset(
    {
        *("BatchStartTimeout", "CompleteWait", "EnforcePartLimits", "InactiveLimit", "KillWait", "MaxArraySize"),
        *("MaxJobCount", "MaxStepCount", "MessageTimeout", "MinJobAge", "OverTimeLimit", "PriorityDecayHalfLife"),
        *("PriorityFavorSmall", "PriorityMaxAge", "ResvOverRun", "SchedulerParameters"),
        *("SlurmctldDebug", "SlurmdDebug", "TCPTimeout", "UnkillableStepTimeout", "WaitTime"),
    }
)
"""Keys of slurm.conf that `extra_settings` may have; the deploy form has a schema for each. They are numbers, times and
levels of the scheduler. None runs a program, names a user, a path, a plugin or a key, or is decided by this app."""

_TIME = re.compile(r"(\d+-)?\d+:\d+:\d+")
JOBS_DEFAULT = 10_000
"""MaxJobCount of Slurm if the setting is not there."""

_VALUE = re.compile(r"[^\x00-\x1f\x7f#\"'\\]{1,500}")


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of what decides which queued job starts first."""

    fairshare: int = 100000
    qos: int = 50000
    age: int = 10000
    job_size: int = 0
    partition: int = 0


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition beside the main one. It has all workers."""

    name: str
    default_time: str = "1-00:00:00"
    max_time: str = "7-00:00:00"
    priority_tier: int = MAIN_TIER


class Choices(msgspec.Struct, frozen=True):
    """All settings of the scheduler that can be changed. The main partition is the first one."""

    partitions: tuple[Partition, ...] = (Partition("main"),)
    priority: Priority = Priority()
    preemption: Preemption = "off"
    extra: Mapping[str, str | int] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(partition.name for partition in self.partitions)

    @property
    def jobs_max(self) -> int:
        """How many jobs slurmctld keeps at a time."""
        return int(self.extra.get("MaxJobCount", JOBS_DEFAULT))


def check(choices: Choices) -> None:
    """Refuse what Slurm would refuse, or accept and do otherwise. The error names the input to correct."""
    for partition in choices.partitions:
        _check_times(partition, is_main=partition is choices.partitions[0])
    _check_names(choices.partitions)
    for key, value in choices.extra.items():
        _check_extra(key, str(value))
    _check_timeouts(choices.extra)


def seconds(limit: str) -> float:
    """Return the length of a time limit such as 1-00:00:00, 12:30:00 or UNLIMITED."""
    if limit == "UNLIMITED":
        return float("inf")
    days, _, clock = limit.rpartition("-")
    hours, minutes, rest = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def minutes(limit: str) -> float:
    """Return a time limit as Slurm keeps it: in minutes, rounded up."""
    length = seconds(limit)
    return length if math.isinf(length) else math.ceil(length / 60)


def settings(choices: Choices) -> dict[str, str]:
    """Return the settings that are the same for the whole cluster, by their key in slurm.conf."""
    weights = choices.priority
    chosen = {key: str(value) for key, value in sorted(choices.extra.items())}
    parameters = _scheduler_parameters(chosen.pop("SchedulerParameters", ""))
    ages = {"PriorityMaxAge": "7-00:00:00", "PriorityDecayHalfLife": "14-00:00:00"}
    return {
        "SchedulerParameters": parameters,
        "PriorityWeightFairshare": str(weights.fairshare),
        "PriorityWeightQOS": str(weights.qos),
        "PriorityWeightAge": str(weights.age),
        "PriorityWeightJobSize": str(weights.job_size),
        "PriorityWeightPartition": str(weights.partition),
        **_preemption(choices.preemption),
        **ages,
        **chosen,
    }


def partition_lines(partitions: Sequence[Partition], *, is_held: bool = False) -> Iterator[str]:
    """Return the line of each partition. Only the first one is the default of jobs without --partition.

    While jobs are held, a further partition takes jobs of root, which test machines."""
    main, state = partitions[0], "DOWN" if is_held else "UP"
    for each in partitions:
        times = f"DefaultTime={each.default_time} MaxTime={each.max_time}"
        is_default = "YES" if each is main else "NO"
        # The tier decides who starts and preempts first; the factor is what PriorityWeightPartition multiplies.
        tier = f" PriorityTier={each.priority_tier} PriorityJobFactor={each.priority_tier}" if each is not main else ""
        yield f"PartitionName={each.name} Nodes=workers Default={is_default} {times}{tier} State={state}"
    if is_held:
        limits = "DefaultTime=00:02:00 MaxTime=00:10:00 PriorityTier=0"
        yield f"PartitionName={UPGRADE} Nodes=workers Default=NO RootOnly=YES Hidden=YES {limits} State=UP"


def differences(wanted: Choices, config_text: str, partitions_text: str) -> tuple[str, ...]:
    """Return what a running slurmctld has otherwise than wanted. The texts are those of `scontrol show config` and
    `scontrol show partition -o`."""
    # Slurm prints some keys and values in another case than its manual has: PriorityWeightFairShare, no.
    pairs = re.findall(r"^(\w+)\s*=[ \t]*(\S*)", config_text, re.MULTILINE)
    shown = {key.lower(): value for key, value in pairs}
    other = [
        f"{key} is {shown.get(key.lower(), 'not shown')}, not {value}"
        for key, value in settings(wanted).items()
        if not _is_same(shown.get(key.lower(), ""), value)
    ]
    present = _shown(partitions_text)
    other += [f"partition {name} still exists" for name in sorted(present.keys() - wanted.names)]
    for partition in wanted.partitions:
        other += _differences_of(partition, present.get(partition.name))
    return tuple(other)


def jobs_max(config_text: str) -> int:
    """Return how many jobs the running slurmctld keeps at a time."""
    shown = re.search(r"^MaxJobCount\s*=\s*(\d+)", config_text, re.MULTILINE)
    return int(shown[1]) if shown else JOBS_DEFAULT


def refuse_fewer_jobs(wanted: Choices, jobs: int) -> None:
    """Refuse a MaxJobCount that is not far above the number of jobs. slurmctld reads its state again with the new
    setting and drops the jobs over it: running ones end, queued ones are gone. People submit jobs in the meantime."""
    if 2 * jobs > wanted.jobs_max:
        raise Refused(
            f"Slurm has {jobs} jobs, with those that ended in the last minutes, and would drop jobs, also running "
            f"ones, with MaxJobCount {wanted.jobs_max}",
            fix=f"use {2 * jobs} or more for MaxJobCount in extra_settings, or wait until there are fewer jobs",
        )


def removed(wanted: Choices, partitions_text: str) -> dict[str, str]:
    """Return the partitions that exist and are not wanted, with the state that each has when it is open."""
    states = {
        name: line.get("State", "UP") for name, line in _shown(partitions_text).items() if name not in wanted.names
    }
    return {name: "UP" if shown == "INACTIVE" else shown for name, shown in states.items()}


def _shown(partitions_text: str) -> dict[str, dict[str, str]]:
    lines = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in partitions_text.splitlines()]
    return {line["PartitionName"]: line for line in lines if "PartitionName" in line}


def partition_states(partitions_text: str) -> dict[str, str]:
    """Return the state of each partition: UP, DOWN, DRAIN or INACTIVE."""
    return {name: line.get("State", "") for name, line in _shown(partitions_text).items()}


def _is_same(shown: str, wanted: str) -> bool:
    """Compare a setting with what slurmctld shows. It writes times in its own way: 1-29:00:00 as 2-05:00:00."""
    if _TIME.fullmatch(shown) and _TIME.fullmatch(wanted):
        return seconds(shown) == seconds(wanted)
    return shown.lower() == wanted.lower()


def _differences_of(partition: Partition, shown: Mapping[str, str] | None) -> Iterator[str]:
    if shown is None:
        yield f"partition {partition.name} does not exist"
        return
    for key, limit in (("DefaultTime", partition.default_time), ("MaxTime", partition.max_time)):
        if minutes(shown[key]) != minutes(limit):
            yield f"{key} of partition {partition.name} is {shown[key]}, not {limit}"
    if shown["PriorityTier"] != str(partition.priority_tier):
        yield f"PriorityTier of partition {partition.name} is {shown['PriorityTier']}, not {partition.priority_tier}"


def _check_times(partition: Partition, *, is_main: bool) -> None:
    """Refuse a default time limit over the maximum: Slurm would give jobs the maximum and report no error."""
    where = "" if is_main else f" of partition {partition.name}"
    if not seconds(partition.default_time):
        raise Permanent(f"default_time{where} is no time at all", fix="use one minute or more")
    if seconds(partition.default_time) > seconds(partition.max_time):
        raise Permanent(
            f"default_time {partition.default_time}{where} is longer than max_time {partition.max_time}",
            fix="use a shorter default_time or a longer max_time",
        )


def _check_names(partitions: Sequence[Partition]) -> None:
    names = [partition.name for partition in partitions]
    if names[0] in names[1:]:
        raise Permanent(
            f"partition {names[0]} is the main partition, and is also in `partitions`",
            fix="give it another name in `partitions`; change the main one with default_time and max_time",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Permanent(f"partition {', '.join(twice)} is in `partitions` twice", fix="name each partition once")


def _check_extra(key: str, value: str) -> None:
    if key not in EXTRA_KEYS:
        raise Permanent(
            f"{key[:100]} cannot be set with extra_settings: it is no setting of the scheduler that is safe to change",
            fix=f"these can be set: {', '.join(sorted(EXTRA_KEYS))}",
        )
    if not _VALUE.fullmatch(value):
        raise Permanent(
            f"the value of {key} in extra_settings is empty, too long, or has a character that slurm.conf cannot have",
            fix="use a value without line breaks, quotes, backslashes and #",
        )


def _check_timeouts(extra: Mapping[str, str | int]) -> None:
    """Refuse timeouts with which nodes can go down (KillTaskFailed). Without UnkillableStepTimeout, Slurm adapts it."""
    message, step = int(extra.get("MessageTimeout", 10)), extra.get("UnkillableStepTimeout")
    if step is not None and int(step) < 5 * message:
        raise Permanent(
            f"UnkillableStepTimeout {step} in extra_settings is less than five times MessageTimeout ({message})",
            fix=f"use {5 * message} or more, or leave UnkillableStepTimeout out",
        )


def _scheduler_parameters(wanted: str) -> str:
    """Start batch jobs at once, unless people chose a delay."""
    own = "" if "batch_sched_delay=" in wanted else "batch_sched_delay=0"
    return ",".join(part for part in (own, wanted) if part)


def _preemption(wanted: Preemption) -> dict[str, str]:
    if wanted == "off":
        return {"PreemptMode": "OFF"}
    return {"PreemptType": "preempt/partition_prio", "PreemptMode": wanted.upper()}
