"""What limits a project, how much of it is used, and which keys of its programs end soon. Home shows what is near."""

import asyncio
from collections.abc import Sequence
from typing import get_args

from gpuaas_contract.artifacts import STORAGE_GET, ArtifactStorage
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.identity import SERVICE_ACCOUNT_KEY_LIST, SERVICE_ACCOUNT_LIST, ServiceAccount
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.policy import EXPLAIN, ExplainPolicy, PolicyLimit

from gpuaas_console.attention import KeyOfAccount, Margins
from gpuaas_console.web import Visit, or_none

ACCOUNTS_MAX = 20
COUNTED_MAX = 1000
"""Allocations that are counted for a limit. A project with more of them has no notice about a larger limit."""
_COUNTED = [status for status in get_args(AllocationStatus) if status != "released"]


async def read(visit: Visit, project: str) -> Margins:
    """Return what is known. It changes slowly, so it is read again only after some time."""
    return await visit.remember(lambda: _read(visit, project), "margins", project)


async def _read(visit: Visit, project: str) -> Margins:
    storage, limits, accounts = await asyncio.gather(
        or_none(_storage(visit, project)),
        or_none(_limits(visit, project)),
        or_none(visit.calls(project).every(SERVICE_ACCOUNT_LIST)),
    )
    return Margins(
        limits=limits or [],
        allocations=await _allocations(visit, project, limits or []),
        storage=storage,
        keys=await _keys(visit, project, accounts or []),
    )


async def _storage(visit: Visit, project: str) -> ArtifactStorage:
    return await visit.calls(project).call(STORAGE_GET)


async def _limits(visit: Visit, project: str) -> list[PolicyLimit]:
    return (await visit.calls(project).call(EXPLAIN, ExplainPolicy())).limits


async def _allocations(visit: Visit, project: str, limits: Sequence[PolicyLimit]) -> int | None:
    """Return how many allocations count against the limit; None if there is none, or they are not readable."""
    if not any(limit.limit == "allocations_max" for limit in limits):
        return None
    reads = [visit.calls(project).first(COUNTED_MAX, ALLOCATION_LIST, query={"status": status}) for status in _COUNTED]
    rows = await asyncio.gather(*(or_none(read) for read in reads))
    return None if None in rows else sum(len(row[0]) for row in rows if row is not None)


async def _keys(visit: Visit, project: str, accounts: Sequence[ServiceAccount]) -> list[KeyOfAccount]:
    calls, active = visit.calls(project), [item for item in accounts if item.state == "active"][:ACCOUNTS_MAX]
    reads = (calls.every(SERVICE_ACCOUNT_KEY_LIST, service_account_id=item.service_account_id) for item in active)
    rows = await asyncio.gather(*(or_none(read) for read in reads))
    return [
        KeyOfAccount(account.name, key.key_id, key.expires_at, key.last_used_at)
        for account, keys in zip(active, rows, strict=True)
        for key in keys or []
        if key.expires_at
    ]
