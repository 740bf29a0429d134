"""The audit rows that every route writes: one per change, one per refusal. `run` and `authorise` call it."""

import msgspec
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import OrgPath, Path, ProjectPath

from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import db
from gpuaas_platform.record import service as record


async def change(tx: db.Tx, endpoint: AnyEndpoint, call: Call, answer: object) -> None:
    project = call.project
    org_id = call.path.org_id if isinstance(call.path, OrgPath) else ""
    await record.audit(
        tx,
        call.origin,
        endpoint.name,
        target(call.path, answer) or (project.project_id if project else endpoint.path),
        org_id=project.org_id if project else org_id,
        project_id=project.project_id if project else "",
        details=call.details,
    )


async def denial(tx: db.Tx, endpoint: AnyEndpoint, origin: Origin, project: Project | None, org_id: str) -> None:
    """`org_id` is that of an organisation that exists: an invented one must not open a chain."""
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


def target(path: Path, answer: object) -> str:
    """Ids from the path, outermost first, then the id of what was made. The project has a field of its own."""
    ids = [getattr(path, name) for name in path.__struct_fields__ if name != "project_id"]
    made = _made(answer)
    project_id = path.project_id if isinstance(path, ProjectPath) else None
    return "/".join(ids if made in ids or made == project_id or not made else [*ids, made])


def _made(answer: object) -> str:
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
