"""What the pickers of forms offer: allocations, service accounts and credentials of the project."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.credentials import CREDENTIAL_LIST
from gpuaas_contract.errors import ApiError, NotFound, PermissionDenied
from gpuaas_contract.identity import SERVICE_ACCOUNT_LIST
from gpuaas_contract.lifecycles import AllocationStatus

from gpuaas_console import forms
from gpuaas_console.forms import Choice
from gpuaas_console.web import Visit

OFFERED_MAX = 200
_OFFERED = [status for status in get_args(AllocationStatus) if status != "released"]


async def every(visit: Visit, schema: Mapping[str, Any]) -> dict[str, Sequence[Choice]]:
    """Return the choices of each picker that the schema names."""
    readers = {"allocation": allocations, "service_account": service_accounts, "access_credential": credentials}
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


async def service_accounts(visit: Visit) -> list[Choice]:
    try:
        rows = await visit.calls().every(SERVICE_ACCOUNT_LIST)
    except (NotFound, PermissionDenied):
        return []
    return [
        Choice(item.service_account_id, item.name, "" if item.state == "active" else str(item.state)) for item in rows
    ]


async def credentials(visit: Visit) -> list[Choice]:
    try:
        rows = await visit.calls().every(CREDENTIAL_LIST)
    except (NotFound, PermissionDenied):
        return []
    return [Choice(item.credential_id, f"{item.name} · {item.fingerprint}") for item in rows if item.state == "active"]


def field_of(error: ApiError) -> str:
    """Return the name of the input that an error is about; empty: the form as a whole."""
    path = str(error.details.get("field", ""))
    return path.removeprefix("inputs").lstrip("./").replace("[", ".").replace("/", ".").partition(".")[0]
