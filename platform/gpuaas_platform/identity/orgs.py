"""Organisations and projects."""

import datetime

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import ProjectDeleted, ProjectRenamed
from gpuaas_contract.identity import CreateOrg, CreateProject, Org, Project, ProjectQuery, RenameProject
from gpuaas_contract.paths import OrgPath, Path, ProjectPath
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call, Caller, Owner
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db, ids, names, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.record import service as record


async def create_org(tx: db.Tx, call: Call, body: CreateOrg) -> Org:
    """The creator becomes its first admin: an admin of the platform has no access to an organisation otherwise."""
    check_name(body.name)
    if await store.ORGS.find(tx, "name = $1", body.name):
        raise errors.Conflict(f"An organisation named {body.name} already exists.")
    org = Org(org_id=ids.new("org"), name=body.name, created_at=call.now)
    await store.ORGS.insert(tx, org)
    creator = call.caller.actor_id
    await store.bind(tx, creator, "tenant_admin", org.org_id, created_by=creator, now=call.now)
    return org


async def list_orgs(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[Org]:
    where, values = store.visible_orgs(call.caller, call.now)
    return await paging.encoded(reader, store.ORGS, call.query, where, *values)


async def create_project(tx: db.Tx, call: Call[OrgPath], body: CreateProject) -> Project:
    check_name(body.name)
    org_id = call.path.org_id
    await _check_free(tx, org_id, body.name)
    project = Project(project_id=ids.new("proj"), org_id=org_id, name=body.name, created_at=call.now)
    await store.PROJECTS.insert(tx, project)
    return project


async def list_projects(reader: db.Reader, call: Call[Path, ProjectQuery]) -> EncodedPage[Project]:
    where, values = store.visible_projects(call.caller, call.now)
    if call.query.name:
        place = f"${len(values) + 1}"
        where, values = f"{where} AND (name = {place} OR project_id = {place})", [*values, call.query.name]
    return await paging.encoded(reader, store.PROJECTS, call.query, where, *values)


async def get_project(reader: db.Reader, call: Call[ProjectPath]) -> Project:
    """Return the project of the path as it is now."""
    project = await store.PROJECTS.get(reader, call.path.project_id)
    if project is None:
        raise errors.NotFound
    return project


async def rename_project(tx: db.Tx, call: Call[ProjectPath], body: RenameProject) -> Project:
    present, name = await get_project(tx, call), body.name
    if present.name == name:
        return present
    await _check_free(tx, present.org_id, name)
    renamed = msgspec.structs.replace(present, name=name, revision=present.revision + 1)
    await store.PROJECTS.save(tx, renamed)
    call.details.update(name=name, previous_name=present.name)
    payload = ProjectRenamed(
        project_id=renamed.project_id, name=name, previous_name=present.name, renamed_by=call.caller.actor_id
    )
    await record.emit(tx, call.origin, "identity.project.renamed", payload, Owner(renamed.org_id))
    return renamed


async def delete_project(tx: db.Tx, call: Call[ProjectPath]) -> Project:
    """Delete the project and the roles in it. The caller has checked that it owns nothing."""
    present = await get_project(tx, call)
    await store.unbind_all(tx, present.project_id)
    await store.PROJECTS.delete(tx, present.project_id)
    call.details["name"] = present.name
    payload = ProjectDeleted(project_id=present.project_id, name=present.name, deleted_by=call.caller.actor_id)
    await record.emit(tx, call.origin, "identity.project.deleted", payload, Owner(present.org_id))
    return present


async def check_exists(reader: db.Reader, project_id: str) -> None:
    """Refuse a change in a project that was deleted after the caller was admitted."""
    if not await store.PROJECTS.keys(reader, "project_id = $1", project_id):
        raise errors.NotFound


async def project_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Project | None:
    """The project of this name among those that the caller can see."""
    where, values = store.visible_projects(caller, now)
    projects = await store.PROJECTS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return names.only(projects, name, lambda project: project.project_id)


async def org_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Org | None:
    """The organisation of this name, if the caller can see it."""
    where, values = store.visible_orgs(caller, now)
    orgs = await store.ORGS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return orgs[0] if orgs else None


async def _check_free(reader: db.Reader, org_id: str, name: str) -> None:
    if await store.PROJECTS.find(reader, "org_id = $1 AND name = $2", org_id, name):
        raise errors.Conflict(f"The organisation already has a project named {name}.")


def check_name(name: str) -> None:
    if not rules.is_name(name):
        raise errors.ValidationFailed(
            "A name has 1 to 63 letters, digits, hyphens or underscores.", details={"field": "name"}
        )
