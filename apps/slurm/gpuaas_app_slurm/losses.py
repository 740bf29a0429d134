"""Decide what a return to an earlier Slurm would lose, from the queue at the backup and the queue now. Pure."""

import datetime
from collections.abc import Iterable, Sequence

import msgspec

from gpuaas_app_slurm.workload.backup import Queue
from gpuaas_app_slurm.workload.state import Node

NAMED_MAX = 50


class Losses(msgspec.Struct, frozen=True):
    """The jobs that a rollback concerns, by their numbers."""

    ended: tuple[int, ...] = ()
    """They ran at the backup and have ended. The accounting would show them until the rollback."""
    repeated: tuple[int, ...] = ()
    """They were queued at the backup and run now. The rollback ends them, and they start again."""
    done: tuple[int, ...] = ()
    """They were queued at the backup and have ended. They must not run again."""
    killed: tuple[int, ...] = ()
    """They were submitted after the backup and run now. The rollback ends them."""
    forgotten: tuple[int, ...] = ()
    """They were submitted after the backup and wait. Their users must submit them again."""

    @property
    def to_end(self) -> tuple[int, ...]:
        """The jobs that run now and do not run in the restored state."""
        return (*self.repeated, *self.killed)

    @property
    def to_cancel(self) -> tuple[int, ...]:
        """The jobs of the restored queue that no longer exist."""
        return (*self.ended, *self.done)


def losses(before: Queue, now: Queue) -> Losses:
    return Losses(
        ended=_sorted(set(before.running) - now.jobs),
        repeated=_sorted(set(before.queued) & set(now.running)),
        done=_sorted(set(before.queued) - now.jobs),
        killed=_sorted(set(now.running) - before.jobs),
        forgotten=_sorted(set(now.queued) - before.jobs),
    )


class NodeChanges(msgspec.Struct, frozen=True):
    """How the nodes of a restored state differ from those before it was restored."""

    gone: tuple[str, ...] = ()
    """They were removed or replaced after the backup."""
    drained: tuple[tuple[str, str], ...] = ()
    """They were drained after the backup, or for another reason: name and reason."""
    resumed: tuple[str, ...] = ()
    """They were drained at the backup and resumed later."""


def node_changes(now: Queue, restored: Sequence[Node]) -> NodeChanges:
    """Return what to change so that no node returns and each drain is that of now. People and the platform did not
    undo these changes, so a return of the state must not do so."""
    if now.drains is None:
        return NodeChanges()
    known = [(node, now.drains[node.name]) for node in restored if node.name in now.drains]
    return NodeChanges(
        gone=tuple(sorted(node.name for node in restored if node.name not in now.drains)),
        drained=tuple((node.name, reason) for node, reason in known if reason and not _has_drain(node, reason)),
        resumed=tuple(node.name for node, reason in known if not reason and "DRAIN" in node.flags),
    )


def _has_drain(node: Node, reason: str) -> bool:
    return "DRAIN" in node.flags and node.reason == reason


def sentences(lost: Losses, before: Queue, now: Queue) -> list[str]:
    """Return what a rollback would lose, as text for people."""
    lines = [f"Slurm returns to its state of {before.noted_at:%Y-%m-%d %H:%M:%S} UTC."]
    if lost.killed:
        lines.append(f"Running jobs that were submitted since are killed: {_listed(lost.killed)}.")
    if lost.repeated:
        lines.append(f"Running jobs that started since are killed, and start again later: {_listed(lost.repeated)}.")
    if lost.forgotten:
        lines.append(f"Queued jobs that were submitted since are deleted: {_listed(lost.forgotten)}.")
    if lost.ended or lost.done:
        ended = _listed((*lost.ended, *lost.done))
        lines.append(f"Jobs that ended since are shown as cancelled at the time of the rollback: {ended}.")
    if now.next_job_id > before.next_job_id:
        gone = f"{before.next_job_id} to {now.next_job_id - 1}"
        lines.append(f"Accounting loses the records of jobs {gone}. These numbers are not used again.")
    lines.append("Changes of users, limits and reservations since then are lost.")
    return lines


def is_in_window(before: Queue, now: datetime.datetime, window_s: float) -> bool:
    return (now - before.noted_at).total_seconds() <= window_s


def _sorted(jobs: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(jobs))


def _listed(jobs: tuple[int, ...]) -> str:
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return ", ".join(str(job) for job in sorted(jobs)[:NAMED_MAX]) + more
