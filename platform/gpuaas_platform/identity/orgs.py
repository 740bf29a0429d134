"""Organisations and projects."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.identity import Org, Project

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.identity import rules, store
from gpuaas_platform.kit import db, ids, names


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
    if await store.PROJECTS.find(tx, "org_id = $1 AND name = $2", org_id, name):
        raise errors.Conflict(f"The organisation has a project named {name} already.")
    project = Project(project_id=ids.new("proj"), org_id=org_id, name=name, created_at=call.now)
    await store.PROJECTS.insert(tx, project)
    return project


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
