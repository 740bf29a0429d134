"""Records which Unix user this agent made for which allocation. Other accounts are never changed."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuaas_agent import errors, files
from gpuaas_agent.host import accounts

CLAIMS = Path("/etc/gpuaas/allocations")


def claim(user: str, allocation_id: str) -> None:
    """Record that the user will be made for this allocation; refuse a name that is already in use."""
    present = owner(user)
    if present == allocation_id:
        return
    if present is not None:
        raise errors.TaskFailed(
            "user_taken", f"user {user} belongs to allocation {present}; release that allocation first"
        )
    if accounts.uid_of(user) is not None:
        raise errors.TaskFailed("user_exists", f"user {user} already exists on the node and was not made by this agent")
    if accounts.home_of(user).exists():
        raise errors.TaskFailed(
            "home_exists", f"{accounts.home_of(user)} exists, but its user does not; move the folder away"
        )
    files.make_directory(CLAIMS, 0o755)
    files.write_atomic(CLAIMS / user, allocation_id.encode() + b"\n", 0o600)


def belongs_to(user: str, allocation_id: str) -> bool:
    """Return whether the user was made for this allocation and exists."""
    return owner(user) == allocation_id and accounts.uid_of(user) is not None


def may_remove(user: str, allocation_id: str) -> bool:
    """Return whether the user was made for this allocation; refuse an account that this agent did not make."""
    present = owner(user)
    if present is None and accounts.uid_of(user) is not None:
        raise errors.TaskFailed("user_not_ours", f"user {user} was not made by this agent and is not removed")
    return present == allocation_id


def remove(user: str) -> list[str]:
    removed = [str(CLAIMS / user)] if files.remove(CLAIMS / user) else []
    with contextlib.suppress(OSError):
        CLAIMS.rmdir()
    return removed


def owner(user: str) -> str | None:
    """Return the allocation that the user was made for; None if this agent did not make it."""
    content = files.read(CLAIMS / user)
    return None if content is None else content.decode().strip()
