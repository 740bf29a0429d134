"""Report what jobs used, from the accounting of Slurm, each run of a job exactly once. Called by `health`, and by
operations that delete accounting; the reasons are in docs/decisions/0043.

Every read overlaps the one before, and the platform counts a record once. So nothing has to be remembered exactly:
the time until which everything was reported only bounds how much is read again."""

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog
from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Operation, PermissionDenied, Reconciliation, ReportedUsage, UsageReceipt
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import details, roles, usage_records
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import accounting, config, job_records, observed
from gpuaas_app_slurm.workload.job_records import Reading

log = structlog.get_logger()

OVERLAP_S = 3600
"""Every read begins so much earlier than the time until which everything was reported."""
WINDOW_S = 86400
WINDOWS_MAX = 20
"""At most so many days are read in one look. The next look continues."""
SAVED_EVERY_S = 600
"""The time until which everything was reported is saved when it has grown by this."""
RECORDS_PER_REPORT = 1000
_KEPT, _NOTHING_NEW = "usage", "nothing new"
"""Names of the progress, and of the last line of the watch in which there was nothing to report."""

Send = Callable[[Sequence[ReportedUsage]], Awaitable[UsageReceipt]]


class Progress(msgspec.Struct, frozen=True):
    """What one process has reported."""

    until: int
    """Every job that ended before this time was reported."""
    seen: str = ""
    """What the watch printed about ended jobs when everything was reported; empty: something is left to read."""


async def look(cluster: Reconciliation, line: str) -> None:
    """Report jobs that ended since the last look. It costs no command while the watch shows no other ended jobs."""
    if cluster.kept.get(_NOTHING_NEW) == line:
        return
    now, before = observed.parse_ended(line), cluster.kept.get(_KEPT)
    if now is None or (before is not None and before.seen == now):
        cluster.kept[_NOTHING_NEW] = line
        return
    controller = roles.controller_of(cluster.members)
    before = before or Progress(saved_until(controller.adapter_detail, cluster.instance.created_at))
    try:
        until = await _report_windows(cluster, before, now)
    except (Temporary, Permanent, ValueError) as error:
        log.warning("usage.not_read", error=str(error), until=before.until)
    except PermissionDenied as error:
        # The service account was made before the app reported usage. The cluster works without.
        log.warning("usage.not_reported", error=error.message, fix=error.fix)
        cluster.kept[_KEPT] = Progress(before.until, now)
    else:
        await _save(cluster, until)


async def report_last(op: Operation, controller: Member, settings: Settings) -> Check:
    """Report what is left before the accounting of the cluster is deleted. The check fails if some may be missing."""
    cluster_name = config.parse_inputs(op.instance.inputs).cluster_name
    # By force, machines may no longer exist, and the people who remove the cluster wait for it.
    within_s = min(settings.last_usage_s, settings.reach_leaving_s) if op.force else settings.last_usage_s
    since = saved_until(op.now(controller).adapter_detail, op.instance.created_at)

    async def all_reported() -> Check:
        try:
            machine = await op.machine(controller)
            is_whole = await report_rest(machine, cluster_name, since, op.report_usage)
        except (Temporary, Permanent, ValueError) as error:
            return Check(False, f"cannot read accounting: {error}")
        return Check(is_whole, "" if is_whole else "slurmctld has not sent all ended jobs to slurmdbd yet")

    try:
        return await op.until(all_reported, within_s=within_s, every_s=1.0)
    except PermissionDenied as error:
        await op.say(f"usage is not reported: {error.message}")
        return Check(True)


async def report_before_loss(op: Operation, controller: Member, settings: Settings) -> str:
    """Report what is left before an older database takes the place of the present one. Return what may be missing;
    empty if nothing is. It does not stop the operation: broken accounting can be the reason for it."""
    machine, inputs = await op.machine(controller), config.parse_inputs(op.instance.inputs)
    check = await accounting.ready(machine, inputs.cluster_name)
    if check.ok:
        check = await report_last(op, controller, settings)
    if check.ok:
        return ""
    missing = f"the usage of jobs may be missing: {check.reason}"
    log.warning("usage.not_whole", error=check.reason)
    await op.say(missing)
    return missing


async def report_rest(machine: Machine, cluster_name: str, since: int, send: Send) -> bool:
    """Report everything since this time. Returns whether accounting had all of it."""
    is_whole = True
    while True:
        until = since + WINDOW_S
        reading = await _report_window(machine, cluster_name, since, until, send)
        is_whole = is_whole and reading.is_whole
        if until >= reading.read_at:
            return is_whole
        since = until


def saved_until(detail: dict[str, Any], created_at: datetime.datetime) -> int:
    """Return the time until which everything was reported; for a new instance, when it was created. Pure."""
    saved = str(detail.get(details.USAGE_UNTIL, ""))
    return int((datetime.datetime.fromisoformat(saved) if saved else created_at).timestamp())


def after_window(before: Progress, until: int, reading: Reading, seen: str) -> Progress:
    """Return the progress after a window that ends at `until` was read and reported. Pure.

    Without everything from slurmctld, jobs may be missing, and the same window is read again. After the clock was set
    back, the time until which everything was reported is in the future, and reading starts again from now."""
    if not reading.is_whole or reading.read_at < before.until:
        return Progress(min(before.until, reading.read_at))
    return Progress(until) if until < reading.read_at else Progress(reading.read_at, seen)


async def _report_windows(cluster: Reconciliation, before: Progress, seen: str) -> int:
    """Report from day to day, and return until when. A look that ends early has kept what it reported."""
    controller = roles.controller_of(cluster.members)
    machine = await cluster.machine(controller)
    cluster_name = config.parse_inputs(cluster.inputs).cluster_name
    progress = before
    for _ in range(WINDOWS_MAX):
        since, until = progress.until, progress.until + WINDOW_S
        reading = await _report_window(machine, cluster_name, since, until, cluster.report_usage)
        cluster.kept[_KEPT] = progress = after_window(progress, until, reading, seen)
        if progress.seen or progress.until <= since:
            break
    return progress.until


async def _report_window(machine: Machine, cluster_name: str, since: int, until: int, send: Send) -> Reading:
    reading = await job_records.read(machine, since - OVERLAP_S, until)
    records = usage_records.of(cluster_name, reading.jobs)
    now = datetime.datetime.now(datetime.UTC)
    accepted = [record for record in records if usage_records.is_plausible(record, now)]
    for first in range(0, len(accepted), RECORDS_PER_REPORT):
        receipt = await send(accepted[first : first + RECORDS_PER_REPORT])
        if receipt.conflicting:
            log.warning("usage.conflicting", records=receipt.conflicting[:10], count=len(receipt.conflicting))
    if len(accepted) < len(records):
        # Later reads have a job that ends in the future again, until its time has come.
        log.warning("usage.clock_wrong", machine=machine.hostname, records=len(records) - len(accepted))
    return reading


async def _save(cluster: Reconciliation, until: int) -> None:
    """Save the time in the detail of the controller member, which the next process reads. People see it there."""
    controller = roles.controller_of(cluster.members)
    if abs(until - saved_until(controller.adapter_detail, cluster.instance.created_at)) < SAVED_EVERY_S:
        return
    moment = datetime.datetime.fromtimestamp(until, datetime.UTC).isoformat()
    detail = controller.adapter_detail | {details.USAGE_UNTIL: moment}
    await cluster.report(members=[cluster.seen(controller, reason=controller.status_reason, detail=detail)])
