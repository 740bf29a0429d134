"""Pure: what a change would do, and what it would interrupt as the app's controller sees it. For `--dry-run`."""

import datetime
from collections.abc import Mapping

from gpuaas_contract.operations import Operation, Preview

from gpuaas_cli.output import clean, clock_time, duration, listing, table
from gpuaas_cli.show import steps

Lines = list[str]


def of_operation(operation: Operation, about: str, names: Mapping[str, str], now: datetime.datetime) -> Lines:
    first = f"would {steps.title(operation)}: {about}"
    if operation.preview is None:
        return [first]
    return [first, *(f"  {line}" for line in _preview(operation.preview, names, now))]


def _preview(preview: Preview, names: Mapping[str, str], now: datetime.datetime) -> Lines:
    notes = [clean(note) for note in preview.notes]
    if not preview.answered:
        return ["what it would interrupt is unknown, so do not assume that it is safe", *notes]
    shape = table(
        "WORK=work_id ON OWNER GPUS RUNS_FOR ENDS",
        ON=lambda work: ",".join(names.get(member_id, member_id) for member_id in work.member_ids),
        RUNS_FOR=lambda work: duration((now - work.started_at).total_seconds()) if work.started_at else "",
        ENDS=lambda work: clock_time(work.ends_at) if work.ends_at else "unknown",
    )
    return [
        _summary(preview, now),
        *(f"  {line}" for line in listing(preview.running_work, shape)),
        *([f"nothing would be interrupted after {clock_time(preview.done_by)}"] if preview.done_by else []),
        *(f"cannot be undone: {clean(lost)}" for lost in preview.irreversible),
        *notes,
    ]


def _summary(preview: Preview, now: datetime.datetime) -> str:
    count = len(preview.running_work)
    at_stake = f", {preview.gpu_hours_at_stake:g} GPU-hours at stake" if preview.gpu_hours_at_stake else ""
    work = f"{count} running piece{'s' if count != 1 else ''} of work" if count else "no running work"
    seen = f", {duration((now - preview.observed_at).total_seconds())} ago" if preview.observed_at else ""
    return f"{work}{at_stake} (seen by {clean(preview.source) or 'the app controller'}{seen})"
