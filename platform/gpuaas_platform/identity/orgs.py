"""Organisations and projects."""

from gpuaas_contract import errors
from gpuaas_contract.identity import CreateOrg, CreateProject, Org, Project
from gpuaas_contract.paths import OrgPath, Path
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db, ids, paging
from gpuaas_platform.kit.paging import EncodedPage


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
    if await store.PROJECTS.find(tx, "org_id = $1 AND name = $2", org_id, body.name):
        raise errors.Conflict(f"The organisation already has a project named {body.name}.")
    project = Project(project_id=ids.new("proj"), org_id=org_id, name=body.name, created_at=call.now)
    await store.PROJECTS.insert(tx, project)
    return project


async def list_projects(reader: db.Reader, call: Call[Path, PageQuery]) -> EncodedPage[Project]:
    where, values = store.visible_projects(call.caller, call.now)
    return await paging.encoded(reader, store.PROJECTS, call.query, where, *values)


def check_name(name: str) -> None:
    if not rules.is_name(name):
        raise errors.ValidationFailed(
            "A name has 1 to 63 letters, digits, hyphens or underscores.", details={"field": "name"}
        )
