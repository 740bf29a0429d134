"""What the pickers of forms offer: allocations, service accounts and credentials of the project."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args

from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.credentials import CREDENTIAL_LIST
from gpuaas_contract.identity import SERVICE_ACCOUNT_LIST
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.org_accounts import ACCEPTED_LIST

from gpuaas_console import forms
from gpuaas_console.forms import Choice
from gpuaas_console.web import Visit, or_none

OFFERED_MAX = 200
_OFFERED = [status for status in get_args(AllocationStatus) if status != "released"]


async def every(visit: Visit, schema: Mapping[str, Any], app_slug: str) -> dict[str, Sequence[Choice]]:
    """Return the choices of each picker that the schema of an app names."""
    accounts = functools.partial(service_accounts, app_slug=app_slug)
    readers: dict[str, Callable[[Visit], Awaitable[Sequence[Choice]]]] = {
        "allocation": allocations,
        "service_account": accounts,
        "access_credential": credentials,
    }
    named = forms.pickers(schema)
    return {kind: await read(visit) for kind, read in readers.items() if kind in named}


async def allocations(visit: Visit) -> list[Choice]:
    """Return the allocations by machine; those that are not active are shown with the reason. Of each status, the first
    are offered: a longer list is no help, and its cost would grow."""
    reads = [visit.calls().first(OFFERED_MAX, ALLOCATION_LIST, query={"status": status}) for status in _OFFERED]
    rows = [item for some, _ in await asyncio.gather(*reads) for item in some]
    rows.sort(key=lambda item: (item.status != "active", len(item.node_name), item.node_name))
    result = []
    for item in rows:
        parts = [item.node_name, f"{item.gpus} GPU{'s' if item.gpus != 1 else ''}", item.sku, item.region]
        used = len(item.used_by_instance_ids)
        parts.append(f"used by {used} instance{'s' if used != 1 else ''}" if used else "free")
        why_not = "" if item.status == "active" else f"{item.status}: {item.status_reason}".rstrip(": ")
        result.append(Choice(item.allocation_id, " · ".join(part for part in parts if part), why_not))
    return result


async def service_accounts(visit: Visit, app_slug: str) -> list[Choice]:
    """Return the accounts of the project, and those of its organisation that it accepts for this app."""
    own = await or_none(visit.calls().every(SERVICE_ACCOUNT_LIST)) or []
    accepted = [item for item in await or_none(visit.calls().every(ACCEPTED_LIST)) or [] if item.app_slug == app_slug]
    rows = [(item.service_account_id, item.name, item.state) for item in own]
    rows += [(item.service_account_id, f"{item.name} · of the organisation", item.state) for item in accepted]
    return [Choice(key, label, "" if state == "active" else state) for key, label, state in rows]


async def credentials(visit: Visit) -> list[Choice]:
    rows = await or_none(visit.calls().every(CREDENTIAL_LIST)) or []
    return [Choice(item.credential_id, f"{item.name} · {item.fingerprint}") for item in rows if item.state == "active"]
