"""The audit rows every route leaves by construction: one per change, one per refusal. `http` calls it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Project

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def change(tx: db.Tx, endpoint: Endpoint[Any, Any], call: Call, answer: Any) -> None:
    project = call.project
    await record.audit(
        tx,
        call.origin,
        endpoint.name,
        target(call.params, answer) or call.params.get("project_id", endpoint.path),
        org_id=project.org_id if project else call.params.get("org_id", ""),
        project_id=project.project_id if project else "",
        details=call.details,
    )


async def denial(tx: db.Tx, endpoint: Endpoint[Any, Any], origin: Origin, project: Project | None, org_id: str) -> None:
    """`org_id` is that of an organisation that exists: a made-up one must not open a chain."""
    await record.audit(
        tx,
        origin,
        "authz.deny",
        endpoint.name,
        result="failure",
        org_id=org_id,
        project_id=project.project_id if project else "",
        details={"permission": endpoint.permission},
    )


def target(params: Mapping[str, str], answer: Any) -> str:
    """Ids from the path, outermost first, then the id of what was made. The project has a field of its own."""
    ids = [_id_in(answer, name) or value for name, value in params.items() if name != "project_id"]
    made = _made(answer)
    return "/".join(ids if made in ids or made == params.get("project_id") or not made else [*ids, made])


def _id_in(answer: Any, name: str) -> str:
    """The id by which the answer, or the struct it begins with, knows what the path may name otherwise."""
    if not isinstance(answer, msgspec.Struct) or not answer.__struct_fields__:
        return ""
    found = getattr(answer, name, "")
    return found if isinstance(found, str) and found else _id_in(getattr(answer, answer.__struct_fields__[0]), name)


def _made(answer: Any) -> str:
    """An answer names what it is about in its first field, or in that of the struct it begins with."""
    if not isinstance(answer, msgspec.Struct) or not answer.__struct_fields__:
        return ""
    first = answer.__struct_fields__[0]
    value = getattr(answer, first)
    if isinstance(value, msgspec.Struct):
        return _made(value)
    if first.endswith("_id"):
        return str(value)
    return str(getattr(answer, "app_slug", "") or getattr(answer, "name", ""))
