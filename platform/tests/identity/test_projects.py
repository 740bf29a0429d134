"""A project is read, renamed under its ETag, and deleted once it owns nothing."""

from typing import Any

import pytest
from artifact_world import Signer, promoted, trust
from gpuaas_contract import (
    artifacts,
    audit,
    bindings,
    capacity,
    catalog,
    credentials,
    errors,
    events,
    identity,
    policy,
    trust_keys,
)
from platform_world import World


@pytest.fixture
async def spare(world: World) -> identity.Project:
    """A project with a role, an entitlement and an overlay, which owns nothing."""
    project = await world.call(identity.PROJECT_CREATE, {"name": "spare"}, org_id=await _org_id(world))
    person = await world.person("ann")
    where = {"project_id": project.project_id}
    await world.entitled_app()
    await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": person.user_id, "role": "viewer"}, **where)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy", **where)
    await world.call(policy.PROJECT_SET, {"reason": "none needed"}, **where)
    return project


async def test_a_project_is_read_with_its_revision_as_etag(world: World, spare: identity.Project) -> None:
    answer = await world.send(identity.PROJECT_GET, project_id=spare.project_id)
    assert (answer.json()["name"], answer.headers["etag"]) == ("spare", '"1"')
    kept = {"If-None-Match": answer.headers["etag"]}
    assert (await world.send(identity.PROJECT_GET, headers=kept, project_id=spare.project_id)).status_code == 304


async def test_a_rename_of_a_project_needs_its_current_revision(world: World, spare: identity.Project) -> None:
    where: dict[str, Any] = {"project_id": spare.project_id}
    renamed = await world.call(identity.PROJECT_RENAME, {"name": "lab"}, headers={"If-Match": '"1"'}, **where)
    assert (renamed.project_id, renamed.name, renamed.revision) == (spare.project_id, "lab", 2)
    with pytest.raises(errors.PreconditionFailed):
        await world.call(identity.PROJECT_RENAME, {"name": "late"}, headers={"If-Match": '"1"'}, **where)
    assert await world.call(identity.PROJECT_GET, **where) == renamed
    (row,) = await _rows(world, "identity.project.rename")
    assert (row.project_id, row.details) == (spare.project_id, {"name": "lab", "previous_name": "spare"})
    (event,) = await _events(world, "identity.project.renamed")
    assert (event.payload["name"], event.payload["previous_name"]) == ("lab", "spare")


async def test_a_name_of_another_project_of_the_organisation_is_refused(world: World, spare: identity.Project) -> None:
    with pytest.raises(errors.Conflict, match="already has a project named research"):
        await world.call(identity.PROJECT_RENAME, {"name": "research"}, project_id=spare.project_id)


async def test_an_empty_project_is_deleted_with_its_roles_entitlements_and_overlay(
    world: World, spare: identity.Project
) -> None:
    deleted = await world.call(identity.PROJECT_DELETE, project_id=spare.project_id)
    assert deleted == spare
    with pytest.raises(errors.NotFound):
        await world.call(identity.PROJECT_GET, project_id=spare.project_id)
    assert spare.project_id not in {project.project_id for project in (await world.call(identity.PROJECT_LIST)).items}
    for table, column in (("bindings", "scope"), ("entitlements", "project_id"), ("policy_overlays", "scope")):
        sql = f"SELECT count(*) FROM {table} WHERE {column} = $1"
        row = await world.site.database.reader.one(sql, spare.project_id)
        assert row is not None
        assert (table, row[0]) == (table, 0)
    (audited,) = await _rows(world, "identity.project.delete")
    assert (audited.project_id, audited.details) == (spare.project_id, {"name": "spare"})
    (event,) = await _events(world, "identity.project.deleted")
    assert event.payload["project_id"] == spare.project_id


async def test_a_deleted_projects_name_is_free_again(world: World, spare: identity.Project) -> None:
    await world.call(identity.PROJECT_DELETE, project_id=spare.project_id)
    again = await world.call(identity.PROJECT_CREATE, {"name": "spare"}, org_id=spare.org_id)
    assert again.project_id != spare.project_id


async def test_a_project_that_owns_something_is_not_deleted_and_lists_what_it_owns(
    world: World, spare: identity.Project
) -> None:
    world.project_id = spare.project_id
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"})
    credential = await world.credential()
    signer = Signer()
    await trust(world, signer, "release")
    artifact = await promoted(world, signer, b"content")
    await world.node("n1")
    (allocation,) = (await world.call(capacity.ALLOCATION_CREATE, {"node_name": "n1"})).items
    with pytest.raises(errors.ProjectNotEmpty) as refused:
        await world.call(identity.PROJECT_DELETE)
    assert refused.value.message == (
        f"The project still owns 1 allocation ({allocation.allocation_id});"
        f" 1 service account ({account.service_account_id}); 1 credential ({credential.credential_id});"
        f" 1 artifact ({artifact.artifact_id}); 1 trust key (release)."
    )
    assert refused.value.details["owns"] == {
        "allocations": [allocation.allocation_id],
        "service_accounts": [account.service_account_id],
        "credentials": [credential.credential_id],
        "artifacts": [artifact.artifact_id],
        "trust_keys": ["release"],
    }
    await world.call(identity.SERVICE_ACCOUNT_DELETE, service_account_id=account.service_account_id)
    await world.call(credentials.CREDENTIAL_REVOKE, {"reason": "over"}, credential_id=credential.credential_id)
    await world.call(trust_keys.TRUST_KEY_REVOKE, trust_key_id="release")
    await world.call(artifacts.RETIRE, {"reason": "over"}, artifact_id=artifact.artifact_id)
    with pytest.raises(errors.ProjectNotEmpty, match=r"owns 1 allocation \(\w+\)\.$"):
        await world.call(identity.PROJECT_DELETE)


async def test_a_change_that_was_admitted_before_the_delete_makes_nothing_in_the_project(
    world: World, spare: identity.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is admitted, the project is deleted, and only then the change's transaction begins."""
    write = type(world.site.database).write
    deleting = False

    async def deleted_first(database: Any, use_case: Any, **options: Any) -> Any:
        nonlocal deleting
        if not deleting:
            deleting = True
            await world.call(identity.PROJECT_DELETE, project_id=spare.project_id)
        return await write(database, use_case, **options)

    monkeypatch.setattr(type(world.site.database), "write", deleted_first)
    with pytest.raises(errors.NotFound):
        await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"}, project_id=spare.project_id)


async def _org_id(world: World) -> str:
    (project,) = (await world.call(identity.PROJECT_LIST)).items
    return project.org_id


async def _rows(world: World, action: str) -> list[audit.AuditRow]:
    return (await world.call(audit.ORG_AUDIT_LIST, query={"action": action}, org_id=await _any_org(world))).items


async def _events(world: World, kind: str) -> list[events.Event]:
    listed = (await world.call(events.ORG_EVENT_LIST, query={"limit": 500}, org_id=await _any_org(world))).items
    return [event for event in listed if event.type == kind]


async def _any_org(world: World) -> str:
    return (await world.call(identity.ORG_LIST)).items[0].org_id
