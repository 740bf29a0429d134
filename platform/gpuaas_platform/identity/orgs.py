"""Organisations and projects."""

import datetime

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import ProjectDeleted, ProjectRenamed
from gpuaas_contract.identity import CreateOrg, CreateProject, Org, Project, ProjectQuery, RenameProject
from gpuaas_contract.paths import OrgPath, Path, ProjectPath
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call, Caller, Owner
from gpuaas_platform.identity import authority, rules, store
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.kit import clock, db, ids, names, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.record import service as record

_SCOPES = "SELECT scope FROM bindings WHERE user_id = $1 AND (expires_at = 0 OR expires_at > $2)"

_ACCEPTING = "SELECT project_id FROM accepted_accounts WHERE service_account_id = $1"


async def create_org(tx: db.Tx, call: Call, body: CreateOrg) -> Org:
    """Create an organisation and give its first admin the role. Platform admins have no access to it by default: one
    who names themselves does so in the audit trail of the organisation."""
    rules.check_name(body.name)
    admin = await store.user_by_name_or_id(tx, body.first_admin)
    if admin is None or admin["state"] != "active":
        raise errors.ValidationFailed(
            f"There is no active user {body.first_admin[:100]}.",
            details={"field": "first_admin"},
            fix="Create the user first: gpuaas user create NAME --password",
        )
    if await store.ORGS.find(tx, "name = $1", body.name):
        raise errors.Conflict(f"An organisation named {body.name} already exists.")
    org = Org(org_id=ids.new("org"), name=body.name, created_at=call.now)
    await store.ORGS.insert(tx, org)
    admin_id, creator = admin["user_id"], call.caller.actor_id
    await store.bind(tx, admin_id, "tenant_admin", org.org_id, created_by=creator, now=call.now)
    await posix.ensure(tx, call.site.settings, org.org_id, admin_id, call.now)
    details = {"name": org.name, "first_admin": admin_id, "named_by_themselves": admin_id == creator}
    call.details.update(details)
    await record.audit(tx, call.origin, "identity.org.created", org.org_id, Owner(org.org_id), details=details)
    return org


async def list_orgs(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[Org]:
    where, values = _visible_orgs(call.caller, call.now)
    return await paging.encoded(reader, store.ORGS, call.query, where, *values)


async def create_project(tx: db.Tx, call: Call[OrgPath], body: CreateProject) -> Project:
    rules.check_name(body.name)
    org_id = call.path.org_id
    await _check_free(tx, org_id, body.name)
    project = Project(project_id=ids.new("proj"), org_id=org_id, name=body.name, created_at=call.now)
    await store.PROJECTS.insert(tx, project)
    tx.wake(posix.TOPIC)
    return project


async def list_projects(reader: db.Reader, call: Call[Path, ProjectQuery]) -> EncodedPage[Project]:
    where, values = _visible_projects(call.caller, call.now)
    if call.query.name:
        place = f"${len(values) + 1}"
        where, values = f"{where} AND (name = {place} OR project_id = {place})", [*values, call.query.name]
    return await paging.encoded(reader, store.PROJECTS, call.query, where, *values)


project_by_id = store.PROJECTS.get


async def get_project(reader: db.Reader, call: Call[ProjectPath]) -> Project:
    """Return the project that the path names, as currently stored."""
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
    payload = structs.pick(ProjectRenamed, renamed, previous_name=present.name, renamed_by=call.caller.actor_id)
    await record.emit(tx, call.origin, "identity.project.renamed", payload, Owner(renamed.org_id))
    return renamed


async def delete_project(tx: db.Tx, call: Call[ProjectPath]) -> Project:
    """Delete the project, its role bindings and acceptances. The calling code has checked that it owns nothing."""
    present = await get_project(tx, call)
    await store.unbind_all(tx, present.project_id)
    await store.forget_acceptances(tx, present.project_id)
    await store.PROJECTS.delete(tx, present.project_id)
    tx.wake(posix.TOPIC)
    call.details["name"] = present.name
    payload = structs.pick(ProjectDeleted, present, deleted_by=call.caller.actor_id)
    await record.emit(tx, call.origin, "identity.project.deleted", payload, Owner(present.org_id))
    return present


async def check_exists(reader: db.Reader, project_id: str) -> None:
    """Refuse a change in a project that was deleted after the caller was admitted."""
    if not await store.PROJECTS.keys(reader, "project_id = $1", project_id):
        raise errors.NotFound


async def all_projects(reader: db.Reader) -> list[Project]:
    """Return the projects of all organisations."""
    return await store.PROJECTS.find(reader, "1 = 1 ORDER BY project_id")


async def project_ids(reader: db.Reader, org_id: str) -> list[str]:
    """Return the ids of all projects of an organisation."""
    return await store.PROJECTS.keys(reader, "org_id = $1", org_id)


async def find_project(reader: db.Reader, call: Call, id_or_name: str) -> Project | None:
    """Return the project with this id, or the one with this name that the caller can see."""
    project = await store.PROJECTS.get(reader, id_or_name)
    return project or await project_named(reader, call.caller, call.now, id_or_name)


async def find_org(reader: db.Reader, call: Call, id_or_name: str) -> Org | None:
    return await store.ORGS.get(reader, id_or_name) or await org_named(reader, call.caller, call.now, id_or_name)


async def project_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Project | None:
    """Return the project with this name that the caller can see; raise if there are several."""
    where, values = _visible_projects(caller, now)
    projects = await store.PROJECTS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return names.only(projects, name, lambda project: project.project_id)


async def org_named(reader: db.Reader, caller: Caller, now: datetime.datetime, name: str) -> Org | None:
    """Return the organisation with this name, if the caller can see it."""
    where, values = _visible_orgs(caller, now)
    orgs = await store.ORGS.find(reader, f"name = ${len(values) + 1} AND {where}", *values, name)
    return orgs[0] if orgs else None


async def _check_free(reader: db.Reader, org_id: str, name: str) -> None:
    if await store.PROJECTS.find(reader, "org_id = $1 AND name = $2", org_id, name):
        raise errors.Conflict(f"The organisation already has a project named {name}.")


def _visible_orgs(caller: Caller, now: datetime.datetime) -> tuple[str, list[object]]:
    """Return the SQL condition for the organisations that the caller may see, and its values."""
    if authority.can_everywhere(caller, "identity.org.read"):
        return "1 = 1", []
    return f"org_id IN ({_SCOPES})", [caller.actor_id, clock.micros(now)]


def _visible_projects(caller: Caller, now: datetime.datetime) -> tuple[str, list[object]]:
    """Return the SQL condition for the projects that the caller may see. A service account sees its own project or, if
    it belongs to an organisation, those that accept it."""
    if authority.can_everywhere(caller, "identity.project.read"):
        return "1 = 1", []
    own = caller.bindings[0].scope if caller.actor_type == "service_account" and caller.bindings else ""
    where = f"(org_id IN ({_SCOPES}) OR project_id IN ({_SCOPES}) OR project_id = $3 OR project_id IN ({_ACCEPTING}))"
    return where, [caller.actor_id, clock.micros(now), own]
