"""Pure: what a change would do, and what it would hit in the words of the app's controller. For `--dry-run`."""

import datetime
from collections.abc import Mapping, Sequence

from gpuaas_contract.operations import Operation, Preview, Work

from gpuaas_cli.output import aligned, cell, clean, clock_time, duration
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
        return ["what it would hit is not known, so do not take it for safe", *notes]
    return [
        _summary(preview, now),
        *(f"  {line}" for line in _work(preview.running_work, names, now)),
        *([f"nothing would be interrupted after {clock_time(preview.done_by)}"] if preview.done_by else []),
        *(f"cannot be undone: {clean(lost)}" for lost in preview.irreversible),
        *notes,
    ]


def _summary(preview: Preview, now: datetime.datetime) -> str:
    count = len(preview.running_work)
    at_stake = f", {preview.gpu_hours_at_stake:g} GPU-hours at stake" if preview.gpu_hours_at_stake else ""
    work = (
        f"{count} running piece{'s' if count != 1 else ''} of work{at_stake}" if count else f"no running work{at_stake}"
    )
    seen = f", {duration((now - preview.observed_at).total_seconds())} ago" if preview.observed_at else ""
    return f"{work} (seen by {clean(preview.source) or 'the app controller'}{seen})"


def _work(works: Sequence[Work], names: Mapping[str, str], now: datetime.datetime) -> Lines:
    rows = [["WORK", "ON", "OWNER", "GPUS", "RUNS_FOR", "ENDS"]]
    for one in works:
        on = ",".join(names.get(member_id, member_id) for member_id in one.member_ids)
        runs_for = duration((now - one.started_at).total_seconds()) if one.started_at else ""
        ends = clock_time(one.ends_at) if one.ends_at else "nobody knows"
        cells = (one.work_id, on, one.owner, str(one.gpus), runs_for)
        rows.append([*(cell(text, spaces=False) for text in cells), ends])
    return aligned(rows) if len(rows) > 1 else []
