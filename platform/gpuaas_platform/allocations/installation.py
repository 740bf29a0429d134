"""Pure: a complete set of items that a task installs on an allocation's machine, and when to install it again.

People's SSH keys (`keys`) and people's accounts (`people`) are such sets. The loop compares what the machine last
reported with what is wanted, and queues a task with the whole wanted set if they differ.
"""

import datetime
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

RETRY_AFTER = datetime.timedelta(seconds=15)


class InstalledSet(msgspec.Struct, frozen=True, kw_only=True):
    """The items on one allocation's machine, as last reported, and the installation in progress."""

    allocation_id: str
    digest: str
    """Digest of what the machine last reported as installed."""
    installed: list[str] = []
    """Names of the items that are installed: fingerprints of keys, or ids of people."""
    installed_at: datetime.datetime | None = None
    asked: str = ""
    """Digest of what the task in progress installs; empty if there is no task."""
    asked_items: list[str] = msgspec.field(default=[], name="asked_fingerprints")
    task_id: str = ""
    retry_at: datetime.datetime | None = None
    error: str = ""


Installed = TypeVar("Installed", bound=InstalledSet)


def digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def new_set(allocation_id: str) -> InstalledSet:
    """Return the set of a machine on which nothing is installed."""
    return InstalledSet(allocation_id=allocation_id, digest=digest([]))


def must_install(present: InstalledSet, wanted_digest: str, now: datetime.datetime) -> bool:
    """Return whether to queue a task: what is wanted is not installed, no task installs it, and no pause is on."""
    if present.asked:
        return present.asked != wanted_digest
    return present.digest != wanted_digest and not is_pausing(present, now)


def is_pausing(present: InstalledSet, now: datetime.datetime) -> bool:
    return present.retry_at is not None and present.retry_at > now


def asked(present: Installed, wanted_digest: str, items: Sequence[str], task_id: str) -> Installed:
    return msgspec.structs.replace(present, asked=wanted_digest, asked_items=list(items), task_id=task_id)


def ended(
    present: Installed,
    task_id: str,
    error: str,
    now: datetime.datetime,
    retry_after: datetime.timedelta = RETRY_AFTER,
) -> Installed:
    """Return the set after a task ended. Only the newest task counts; an earlier task may end after it."""
    if present.task_id != task_id:
        return present
    after = msgspec.structs.replace(present, asked="", asked_items=[], task_id="", error=error)
    if error:
        return msgspec.structs.replace(after, retry_at=now + retry_after)
    return msgspec.structs.replace(
        after, digest=present.asked, installed=present.asked_items, installed_at=now, retry_at=None
    )
