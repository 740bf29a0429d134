"""What limits a project, how much of it is used, and which keys, secrets and certificates end soon. Home shows what is
near."""

import asyncio
import datetime
import ssl
from collections.abc import Sequence
from typing import get_args

from gpuaas_cli.client import network
from gpuaas_contract.artifacts import STORAGE_GET
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.identity import SERVICE_ACCOUNT_KEY_LIST, SERVICE_ACCOUNT_LIST, ServiceAccount
from gpuaas_contract.instances import INSTANCE_LIST, Instance
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.policy import EXPLAIN, ExplainPolicy, PolicyLimit
from gpuaas_contract.secrets import SECRET_LIST

from gpuaas_console.attention import KeyOfAccount, Margins, SecretOfInstance
from gpuaas_console.settings import Settings
from gpuaas_console.web import Visit, or_none

ACCOUNTS_MAX = 20
OLDEST_MAX = 20
"""Instances whose secrets are read: the oldest ones, whose secrets were mostly made first."""
SLOW_S = 3600.0
"""How long the ends of secrets and certificates are remembered. They are announced two weeks before."""
COUNTED_MAX = 1000
"""Allocations that are counted for a limit. A project with more of them has no notice about a larger limit."""
_COUNTED = [status for status in get_args(AllocationStatus) if status != "released"]


async def read(visit: Visit, project: str) -> Margins:
    """Return what is known. It changes slowly, so it is read again only after some time."""
    return await visit.remember(lambda: _read(visit, project), "margins", project)


async def _read(visit: Visit, project: str) -> Margins:
    stored = visit.read(STORAGE_GET, project=project)
    storage, limits, accounts = await asyncio.gather(
        stored,
        or_none(_limits(visit, project)),
        or_none(visit.calls(project).every(SERVICE_ACCOUNT_LIST)),
    )
    return Margins(
        limits=limits or [],
        allocations=await _allocations(visit, project, limits or []),
        storage=storage,
        keys=await _keys(visit, project, accounts or []),
        secrets=await visit.remember(lambda: _secrets(visit, project), "secrets", project, for_s=SLOW_S),
    )


async def certificate_ends_at(visit: Visit) -> datetime.datetime | None:
    """Return when the certificate of the platform's server ends; None without TLS, or if it cannot be read."""
    settings: Settings = visit.request.app.state.settings
    return await visit.remember(lambda: asyncio.to_thread(_certificate_ends_at, settings), "certificate", for_s=SLOW_S)


def _certificate_ends_at(settings: Settings) -> datetime.datetime | None:
    if not settings.server.startswith("https:"):
        return None
    try:
        trust = ssl.create_default_context(cafile=settings.ca_file)
    except OSError:
        return None
    return network.certificate(*network.place(settings.server), trust).ends_at


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


async def _secrets(visit: Visit, project: str) -> list[SecretOfInstance]:
    calls = visit.calls(project)
    oldest = await or_none(calls.first(OLDEST_MAX, INSTANCE_LIST, query={"live": "true", "order": "oldest"}))

    async def of(instance: Instance) -> list[SecretOfInstance]:
        rows = await or_none(calls.every(SECRET_LIST, instance_id=instance.instance_id))
        return [
            SecretOfInstance(instance.instance_id, instance.name, row.name, row.issued_at, row.expires_at)
            for row in rows or []
            if row.state == "issued"
        ]

    by_instance = await asyncio.gather(*(of(instance) for instance in (oldest[0] if oldest else [])))
    return [secret for secrets in by_instance for secret in secrets]
