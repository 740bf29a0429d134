"""Attack: a platform admin creates the organisation of a tenant, stays its tenant_admin, and gets certificates for the
tenant's machines. Admins of the platform have no access to projects (docs/decisions/0011)."""

import uuid
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, audit, bindings, identity, users
from platform_world import PASSWORD, ssh_public_key
from server_process import Cloud, ServerProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address of the server, and the password of its admin."""
    with ServerProcess(tmp_path_factory.mktemp("attacked") / "data") as server:
        yield server.url, server.admin_password()


@pytest.fixture
async def admin(served: tuple[str, str]) -> AsyncIterator[Cloud]:
    async with httpx.AsyncClient(base_url=served[0], timeout=60) as client:
        cloud = Cloud(client)
        await cloud.sign_in(served[1])
        yield cloud


async def _tenant(admin: Cloud) -> Cloud:
    """A client of the tenant's own admin, with a project in the organisation that the platform admin created."""
    name = f"ada-{uuid.uuid4().hex[:8]}"
    await admin.call(users.USER_CREATE, {"name": name, "password": PASSWORD})
    org = await admin.call(identity.ORG_CREATE, {"name": f"org-of-{name}", "first_admin": name})
    token = await admin.call(identity.LOGIN, {"name": name, "password": PASSWORD}, token="")
    tenant = Cloud(admin.http, token.access_token)
    project = await tenant.call(identity.PROJECT_CREATE, {"name": "research"}, org_id=org.org_id)
    tenant.project_id = admin.project_id = project.project_id
    return tenant


async def test_the_creator_of_an_organisation_enters_none_of_its_machines(admin: Cloud) -> None:
    tenant = await _tenant(admin)
    allocation_id = await admin.allocation(tenant)
    key = {"public_key": ssh_public_key(Ed25519PrivateKey.generate())}
    for body in (key, key | {"as": "person"}, key | {"as": "root"}):
        refused = await admin.send(access.MACHINE_ACCESS, body, allocation_id=allocation_id)
        assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_permissions")
    granted = await tenant.call(access.MACHINE_ACCESS, key | {"as": "root"}, allocation_id=allocation_id)
    assert granted.principal == allocation_id


async def test_the_organisation_has_one_admin_and_its_audit_trail_names_who_chose_them(admin: Cloud) -> None:
    tenant = await _tenant(admin)
    org_id = (await tenant.call(identity.ORG_LIST)).items[0].org_id
    held = (await tenant.call(bindings.ORG_BINDING_LIST, org_id=org_id)).items
    me = await tenant.call(identity.ME)
    assert [(binding.user_id, binding.role) for binding in held] == [(me.actor_id, "tenant_admin")]
    rows = (await tenant.call(audit.ORG_AUDIT_LIST, org_id=org_id)).items
    created = next(row for row in rows if row.action == "identity.org.created")
    assert (created.actor_name, created.details["named_by_themselves"]) == ("admin", False)


async def test_an_organisation_without_a_first_admin_or_with_an_unknown_one_is_refused(admin: Cloud) -> None:
    missing = await admin.http.post(
        identity.ORG_CREATE.path,
        json={"name": "acme"},
        headers={"Authorization": f"Bearer {admin.token}", "X-Idempotency-Key": "k1"},
    )
    assert (missing.status_code, "first_admin" in missing.text) == (400, True)
    unknown = await admin.send(identity.ORG_CREATE, {"name": "acme", "first_admin": "ghost"})
    assert (unknown.status_code, unknown.json()["details"]) == (400, {"field": "first_admin"})


async def test_an_admin_who_names_themselves_does_so_in_the_audit_trail(admin: Cloud) -> None:
    org = await admin.call(identity.ORG_CREATE, {"name": "own", "first_admin": "admin"})
    rows = (await admin.call(audit.ORG_AUDIT_LIST, org_id=org.org_id)).items
    created = next(row for row in rows if row.action == "identity.org.created")
    assert created.details["named_by_themselves"] is True
