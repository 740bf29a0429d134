"""Which Unix users this agent made, for which allocation. Keeps provision and release away from other accounts."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuaas_agent import files
from gpuaas_agent.handlers import accounts, spec

CLAIMS = Path("/etc/gpuaas/allocations")


def claim(user: str, allocation_id: str) -> None:
    """Record, before the user is made, that it is ours; refuses a name that belongs to anything else."""
    owner = _owner(user)
    if owner == allocation_id:
        return
    if owner is not None:
        raise spec.HandlerError("user_taken", f"user {user} belongs to allocation {owner}; release that one first")
    if accounts.uid_of(user) is not None:
        raise spec.HandlerError("user_exists", f"user {user} is on the node already and was not made by this agent")
    if accounts.home_of(user).exists():
        raise spec.HandlerError("home_exists", f"{accounts.home_of(user)} is there without a user; move it away")
    files.make_directory(CLAIMS, 0o755)
    files.write_atomic(CLAIMS / user, allocation_id.encode() + b"\n", 0o600)


def is_of(user: str, allocation_id: str) -> bool:
    """Whether the user was made for this allocation and is there."""
    return _owner(user) == allocation_id and accounts.uid_of(user) is not None


def may_remove(user: str, allocation_id: str) -> bool:
    """True if the user is this allocation's, False if it is gone or serves another one; foreign users are refused."""
    owner = _owner(user)
    if owner is None and accounts.uid_of(user) is not None:
        raise spec.HandlerError("user_not_ours", f"user {user} was not made by this agent and is left alone")
    return owner == allocation_id


def disown(user: str) -> list[str]:
    removed = [str(CLAIMS / user)] if files.remove(CLAIMS / user) else []
    with contextlib.suppress(OSError):
        CLAIMS.rmdir()
    return removed


def _owner(user: str) -> str | None:
    content = files.read(CLAIMS / user)
    return None if content is None else content.decode().strip()
