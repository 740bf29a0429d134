"""Write the audit rows of HTTP requests: one row for each change, one for each refused request. `run` and `authorise`
call it."""

import re

import msgspec
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.identity import Project
from gpuaas_contract.paths import Path

from gpuaas_platform.call import Call, Origin, Owner, Site
from gpuaas_platform.kit import db
from gpuaas_platform.record import refusals
from gpuaas_platform.record import service as record

_ID = re.compile(r"[a-z]+_[0-9a-hjkmnp-tv-z]{26}")


async def change(tx: db.Tx, endpoint: AnyEndpoint, call: Call, answer: object) -> None:
    subject = target(endpoint.subject, call.path, answer) or call.owner.project_id or endpoint.path
    await record.audit(tx, call.origin, endpoint.name, subject, call.owner, details=call.details)


async def denial(site: Site, endpoint: AnyEndpoint, origin: Origin, project: Project | None, org_id: str) -> None:
    """Record a refusal. `org_id` must exist: a made-up id must not start a new audit chain."""
    owner, details = Owner(org_id, project.project_id if project else ""), {"permission": endpoint.permission}
    await refusals.deny(site, origin, "authz.deny", endpoint.name, owner, details)


async def policy_denial(endpoint: AnyEndpoint, call: Call, details: dict[str, object]) -> None:
    """Record a request that a policy overlay denies, also a dry run."""
    await refusals.deny(call.site, call.origin, "policy.deny", endpoint.name, call.owner, details)


def target(subject: str, path: Path, answer: object) -> str:
    """Return the path's ids and the id of the changed object, joined by `/`. The project has a separate field."""
    in_path = {name: _id_of(name, getattr(path, name), answer) for name in path.__struct_fields__}
    project_id = in_path.pop("project_id", "")
    ids, changed = list(in_path.values()), _field(answer, subject)
    return "/".join(ids if changed in ("", project_id, *ids) else [*ids, changed])


def _id_of(name: str, value: str, answer: object) -> str:
    """Return the id for a path value that may be a name. The answer, or the resource in its first field, has the id."""
    if _ID.fullmatch(value):
        return value
    first = answer.__struct_fields__[0] if isinstance(answer, msgspec.Struct) else ""
    return _field(answer, name) or _field(answer, f"{first}.{name}") or value


def _field(answer: object, path: str) -> str:
    """Return the answer's field `name` or `resource.name`; empty if there is none or it is not text."""
    value = answer
    for name in path.split("."):
        value = getattr(value, name, "") if isinstance(value, msgspec.Struct) else ""
    return value if isinstance(value, str) else ""
