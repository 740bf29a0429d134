"""Decide what a change of the inputs means: which settings change, with which effect, and which jobs it concerns.

Pure; `reconfigure` shows it and does it."""

from collections.abc import Iterator

import msgspec
from gpuaas_sdk.controller import Permanent, PlannedChange, Refused

from gpuaas_app_slurm.workload import choices, config, state
from gpuaas_app_slurm.workload.choices import Partition

RELOAD = (
    "slurmctld and every slurmd read their configuration again, without a restart: commands of Slurm may fail for some "
    "seconds. Running jobs continue, and drained nodes stay drained."
)
NAMED_MAX = 100

_DEFAULT_TIME = "It counts for jobs without --time that are submitted from now on."
_PREEMPTION = {
    "off": "No job makes room for another one any more.",
    "requeue": "A job of a partition with a higher tier stops running jobs of lower tiers. Batch jobs start again.",
    "cancel": "A job of a partition with a higher tier ends running jobs of lower tiers, and they do not start again.",
}


class Touched(msgspec.Struct, frozen=True):
    """The jobs that a change concerns. None of them is ended by it."""

    in_removed: tuple[state.Job, ...] = ()
    """Jobs of partitions that would not exist any more: the change is refused while there are any."""
    running_over: tuple[state.Job, ...] = ()
    """Running jobs with a longer limit than their partition would allow. They keep it."""
    queued_over: tuple[state.Job, ...] = ()
    """Queued jobs with a longer limit than their partition would allow. They do not start."""


def checked(inputs: dict[str, object]) -> config.Inputs:
    """Return the inputs. Nothing was changed yet, so inputs that do not fit refuse the operation."""
    try:
        parsed = config.parse_inputs(inputs)
        choices.check(parsed.scheduler)
    except Permanent as error:
        raise Refused(str(error), fix=error.fix) from error
    return parsed


def plan(before: config.Inputs, after: config.Inputs) -> list[PlannedChange]:
    """Return each setting that changes, with its effect."""
    return [
        *_partitions(before.scheduler, after.scheduler),
        *_priority(before.priority, after.priority),
        *_preemption(before.preemption, after.preemption),
        *_extra(before, after),
        *_lost(before.replace_lost_after_minutes, after.replace_lost_after_minutes),
    ]


def touched(after: choices.Choices, jobs: tuple[state.Job, ...]) -> Touched:
    maximum = {partition.name: choices.minutes(partition.max_time) for partition in after.partitions}
    over = [job for job in jobs if _is_over(job, maximum)]
    return Touched(
        in_removed=tuple(job for job in jobs if not set(job.partitions) <= after.names),
        running_over=tuple(job for job in over if "PENDING" not in job.state),
        queued_over=tuple(job for job in over if "PENDING" in job.state),
    )


def notes(touched: Touched) -> list[str]:
    """Return what people must know about the jobs."""
    lines = [RELOAD]
    if touched.running_over:
        lines.append(f"Running jobs keep their longer time limit: {_ids(touched.running_over)}.")
    if touched.queued_over:
        queued = _ids(touched.queued_over)
        lines.append(f"Queued jobs do not start until their time limit fits the new maximum: {queued}.")
    return lines


def _is_over(job: state.Job, maximum: dict[str, float]) -> bool:
    """Return whether no partition of the job would allow its time limit."""
    limits = [maximum[name] for name in job.partitions if name in maximum]
    return job.limit_minutes is not None and bool(limits) and job.limit_minutes > max(limits)


def _partitions(before: choices.Choices, after: choices.Choices) -> Iterator[PlannedChange]:
    old = {partition.name: partition for partition in before.partitions}
    main = after.partitions[0].name
    for partition in after.partitions:
        if partition.name in old:
            prefix = "" if partition.name == main else f"partition {partition.name}: "
            yield from _partition(prefix, old[partition.name], partition)
        else:
            effect = f"Jobs can use it with --partition={partition.name}."
            yield _change(f"partition {partition.name}", "", _described(partition), effect)
    for partition in before.partitions:
        if partition.name not in after.names:
            effect = "Jobs cannot use it any more. The change is refused while it has jobs."
            yield _change(f"partition {partition.name}", _described(partition), "", effect)


def _partition(prefix: str, before: Partition, after: Partition) -> Iterator[PlannedChange]:
    if before.default_time != after.default_time:
        yield _change(f"{prefix}default_time", before.default_time, after.default_time, _DEFAULT_TIME)
    if before.max_time != after.max_time:
        shorter = choices.minutes(after.max_time) < choices.minutes(before.max_time)
        effect = "Running jobs keep their limits; queued jobs over it do not start." if shorter else ""
        yield _change(f"{prefix}max_time", before.max_time, after.max_time, effect or "Longer jobs can be submitted.")
    if before.priority_tier != after.priority_tier:
        effect = "Jobs of higher tiers start first."
        yield _change(f"{prefix}priority_tier", str(before.priority_tier), str(after.priority_tier), effect)


def _priority(before: choices.Priority, after: choices.Priority) -> Iterator[PlannedChange]:
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    for name in new:
        if old[name] != new[name]:
            effect = "The order of queued jobs changes within some minutes."
            yield _change(f"priority.{name}", str(old[name]), str(new[name]), effect)


def _preemption(before: str, after: str) -> Iterator[PlannedChange]:
    if before != after:
        yield _change("preemption", before, after, _PREEMPTION[after])


def _extra(before: config.Inputs, after: config.Inputs) -> Iterator[PlannedChange]:
    old, new = before.extra_settings, after.extra_settings
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            effect = "" if key in new else "The default counts again."
            yield _change(f"extra_settings.{key}", str(old.get(key, "")), str(new.get(key, "")), effect)


def _lost(before: int | None, after: int | None) -> Iterator[PlannedChange]:
    if before != after:
        moves = f"The app moves a worker whose machine is silent for {after} minutes to a spare, without asking."
        effect = moves if after else "Only people replace machines."
        yield _change("replace_lost_after_minutes", str(before or ""), str(after or ""), effect)


def _described(partition: Partition) -> str:
    tier = f"priority_tier {partition.priority_tier}"
    return f"default_time {partition.default_time}, max_time {partition.max_time}, {tier}"


def _change(subject: str, before: str, after: str, effect: str) -> PlannedChange:
    return PlannedChange(subject=subject, before=before, after=after, effect=effect)


def _ids(jobs: tuple[state.Job, ...]) -> str:
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return ", ".join(f"{job.job_id} ({job.user})" for job in jobs[:NAMED_MAX]) + more
