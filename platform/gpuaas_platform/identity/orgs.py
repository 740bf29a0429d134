"""Organisations and projects."""

import datetime

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import ProjectDeleted, ProjectRenamed
from gpuaas_contract.identity import Org, Project

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db, ids, names
from gpuaas_platform.record import service as record


async def create_org(tx: db.Tx, call: Call, name: str) -> Org:
    """Whoever creates it becomes its first admin: running the platform alone does not open an organisation."""
    check_name(name)
    if await store.ORGS.find(tx, "name = $1", name):
        raise errors.Conflict(f"There is an organisation named {name} already.")
    org = Org(org_id=ids.new("org"), name=name, created_at=call.now)
    await store.ORGS.insert(tx, org)
    creator = call.caller.actor_id
    await store.bind(tx, creator, "tenant_admin", org.org_id, created_by=creator, now=call.now)
    return org


async def create_project(tx: db.Tx, call: Call, name: str) -> Project:
    check_name(name)
    org_id = call.params["org_id"]
    await _check_free(tx, org_id, name)
    made = Project(project_id=ids.new("proj"), org_id=org_id, name=name, created_at=call.now)
    await store.PROJECTS.insert(tx, made)
    return made


async def project(reader: db.Reader, call: Call) -> Project:
    """Return the project of the path as it is now."""
    present = await store.PROJECTS.get(reader, call.in_project().project_id)
    if present is None:
        raise errors.NotFound
    return present


async def rename_project(tx: db.Tx, call: Call, name: str) -> Project:
    present = await project(tx, call)
    if present.name == name:
        return present
    await _check_free(tx, present.org_id, name)
    renamed = msgspec.structs.replace(present, name=name, revision=present.revision + 1)
    await store.PROJECTS.save(tx, renamed)
    call.details.update(name=name, previous_name=present.name)
    payload = ProjectRenamed(
        project_id=renamed.project_id, name=name, previous_name=present.name, renamed_by=call.caller.actor_id
    )
    await record.emit(tx, call.origin, "identity.project.renamed", payload, org_id=renamed.org_id, project_id="")
    return renamed


async def delete_project(tx: db.Tx, call: Call) -> Project:
    """Delete the project and the roles in it. The caller has checked that it owns nothing."""
    present = await project(tx, call)
    await store.unbind_all(tx, present.project_id)
    await store.PROJECTS.delete(tx, present.project_id)
    call.details["name"] = present.name
    payload = ProjectDeleted(project_id=present.project_id, name=present.name, deleted_by=call.caller.actor_id)
    await record.emit(tx, call.origin, "identity.project.deleted", payload, org_id=present.org_id, project_id="")
    return present


async def check_exists(reader: db.Reader, project_id: str) -> None:
    """Refuse a change in a project that was deleted after the caller was admitted."""
    if not await store.PROJECTS.keys(reader, "project_id = $1", project_id):
        raise errors.NotFound


async def _check_free(reader: db.Reader, org_id: str, name: str) -> None:
    if await store.PROJECTS.find(reader, "org_id = $1 AND name = $2", org_id, name):
        raise errors.Conflict(f"The organisation has a project named {name} already.")


async def project_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Project | None:
    """The project of this name among those that the caller can see."""
    where, values = store.visible_projects(caller, now)
    found = await store.PROJECTS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return names.only(found, name, lambda project: project.project_id)


async def org_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Org | None:
    where, values = store.visible_orgs(caller, now)
    found = await store.ORGS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return found[0] if found else None


def check_name(name: str) -> None:
    if not rules.is_name(name):
        raise errors.ValidationFailed(
            "A name has 1 to 63 letters, digits, hyphens or underscores.", details={"field": "name"}
        )
