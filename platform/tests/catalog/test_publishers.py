"""Publishers of an app: they register and publish versions and artifacts of their own app, and of no other one."""

from typing import Any

import artifact_world
import pytest
from gpuaas_contract import (
    artifacts,
    bindings,
    catalog,
    conformance,
    deliveries,
    errors,
    events,
    identity,
    policy,
    registry,
    trust_keys,
)
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.permissions import PUBLISHER, ROLES
from platform_world import MANIFEST, Person, World

OTHER = {**MANIFEST, "slug": "other"}


async def _publisher(world: World, app_slug: str = "toy") -> tuple[Person, str]:
    """A person with the role, given over the API, and the id of the role binding."""
    ada = await world.person(f"ada-of-{app_slug}")
    bound = await world.call(
        bindings.APP_BINDING_CREATE, {"user_id": ada.user_id, "role": PUBLISHER}, app_slug=app_slug
    )
    assert bound.scope == f"app:{app_slug}"
    return ada, bound.binding_id


async def _tenant_admin(world: World) -> str:
    """Return the token of an admin of the first org."""
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    return (await world.person("tess", "tenant_admin", org_id)).token


async def test_a_publisher_registers_and_publishes_versions_of_their_own_app_only(world: World) -> None:
    ada, _ = await _publisher(world)
    mine: dict[str, Any] = {"app_slug": "toy", "token": ada.token}
    registered = await world.call(catalog.APP_VERSION_REGISTER, MANIFEST, **mine)
    assert registered.state == "registered"
    published = await world.call(catalog.VERSION_PUBLISH, {"channels": ["edge"]}, version="1.0.0", **mine)
    assert (published.state, published.channels) == ("published", ["edge"])
    assert [item.version for item in (await world.call(catalog.APP_VERSION_LIST, **mine)).items] == ["1.0.0"]

    await world.call(catalog.APP_VERSION_REGISTER, OTHER, app_slug="other")
    foreign: dict[str, Any] = {"app_slug": "other", "token": ada.token}
    calls: tuple[tuple[Endpoint[Any, Any], Any], ...] = (
        (catalog.APP_VERSION_REGISTER, {**OTHER, "version": "2.0.0"}),
        (catalog.VERSION_PUBLISH, {}),
        (catalog.VERSION_WITHDRAW, {"reason": "not mine"}),
        (catalog.VERSION_GET, None),
        (catalog.APP_VERSION_LIST, None),
        (artifacts.APP_PUBLISH, artifact_world.intent()),
        (conformance.CARD_PUT, artifact_world.card(artifact_world.Signer(), OTHER)),
        (bindings.APP_BINDING_LIST, None),
    )
    for endpoint, body in calls:
        refused = await world.send(endpoint, body, version="1.0.0", **foreign)
        assert (endpoint.name, refused.status_code) == (endpoint.name, 404)
    assert (await world.call(catalog.VERSION_GET, app_slug="other", version="1.0.0")).state == "registered"


async def test_a_publisher_cannot_register_another_app_under_the_path_of_their_own(world: World) -> None:
    ada, _ = await _publisher(world)
    with pytest.raises(errors.ValidationFailed, match="manifest is of other, the path names toy"):
        await world.call(catalog.APP_VERSION_REGISTER, OTHER, app_slug="toy", token=ada.token)
    assert (await world.send(catalog.VERSION_REGISTER, MANIFEST, token=ada.token)).status_code == 404
    assert (await world.call(catalog.VERSION_LIST)).items == []


async def test_a_removed_publisher_is_refused_with_the_next_request(world: World) -> None:
    ada, binding_id = await _publisher(world)
    await world.call(catalog.APP_VERSION_REGISTER, MANIFEST, app_slug="toy", token=ada.token)
    await world.call(bindings.APP_BINDING_DELETE, app_slug="toy", binding_id=binding_id)
    later = {**MANIFEST, "version": "1.1.0"}
    answer = await world.send(catalog.APP_VERSION_REGISTER, later, app_slug="toy", token=ada.token)
    assert answer.status_code == 404
    assert (await world.call(bindings.APP_BINDING_LIST, app_slug="toy")).items == []


async def test_a_publisher_gives_no_roles_trusts_no_keys_and_revokes_nothing(world: World) -> None:
    ada, _ = await _publisher(world)
    bob = await world.person("bob")
    body = {"user_id": bob.user_id, "role": PUBLISHER}
    assert (await world.send(bindings.APP_BINDING_CREATE, body, app_slug="toy", token=ada.token)).status_code == 403
    key = {"public_key_pem": artifact_world.Signer().public_pem()}
    answer = await world.send(trust_keys.SHARED_TRUST_KEY_PUT, key, trust_key_id="mine", token=ada.token)
    assert answer.status_code == 404
    assert not ROLES[PUBLISHER] & {"artifacts.shared.change", "catalog.entitlement.change", "identity.binding.change"}


async def test_only_people_become_publishers_and_only_of_a_valid_slug(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account("robot")
    account = (await world.call(registry.BY_NAME["identity.service_account.list"])).items[0]
    body = {"user_id": account.service_account_id, "role": PUBLISHER}
    with pytest.raises(errors.ValidationFailed, match="no user with this name or id"):
        await world.call(bindings.APP_BINDING_CREATE, body, app_slug="toy")
    refused = await world.send(
        catalog.APP_VERSION_REGISTER, {**MANIFEST, "version": "3.0.0"}, app_slug="toy", token=token
    )
    assert refused.status_code == 404
    ada = await world.person("ada")
    for slug, role in (("Not_A_Slug", PUBLISHER), ("toy", "platform_admin"), ("toy", "viewer")):
        answer = await world.send(bindings.APP_BINDING_CREATE, {"user_id": ada.user_id, "role": role}, app_slug=slug)
        assert (slug, role, answer.status_code) == (slug, role, 400)


async def test_roles_for_an_app_are_audited_announced_and_answered_by_can_i(world: World) -> None:
    ada, binding_id = await _publisher(world)
    asked = {"permission": "catalog.version.publish", "app": "toy"}
    answer = await world.call(policy.CAN_I, asked, token=ada.token)
    assert (answer.allowed, answer.explanation) == (True, f"{PUBLISHER} at app:toy holds catalog.version.publish.")
    assert not (await world.call(policy.CAN_I, {**asked, "app": "other"}, token=ada.token)).allowed
    await world.call(bindings.APP_BINDING_DELETE, app_slug="toy", binding_id=binding_id)
    page = await world.call(events.PLATFORM_EVENT_LIST)
    changed = [event for event in page.items if event.type == "identity.app_binding.changed"]
    assert [(event.app_slug, event.payload["granted"]) for event in changed] == [("toy", True), ("toy", False)]
    assert changed[0].payload["user_id"] == ada.user_id
    rows = (await world.call(registry.BY_NAME["record.platform_audit"])).items
    assert [row.action for row in rows if row.action.startswith("identity.app_binding.")] == [
        "identity.app_binding.create",
        "identity.app_binding.delete",
    ]


async def test_a_publisher_looks_after_the_artifacts_of_their_own_app(world: World) -> None:
    ada, _ = await _publisher(world)
    signer = artifact_world.Signer()
    shared = await artifact_world.shared(world, signer)
    mine = await artifact_world.of_app(world, signer, b"mine", token=ada.token)
    theirs = await artifact_world.of_app(world, signer, b"theirs", "other")
    assert (mine.scope, mine.app_slug) == (artifacts.SHARED, "toy")
    where: dict[str, Any] = {"app_slug": "toy", "token": ada.token}
    assert [item.artifact_id for item in (await world.call(artifacts.APP_LIST, **where)).items] == [mine.artifact_id]
    assert (await world.call(artifacts.APP_VERIFY, {}, artifact_id=mine.artifact_id, **where)).trust == "verified"
    promoted = await world.call(artifacts.APP_PROMOTE, {"channel": "edge"}, artifact_id=mine.artifact_id, **where)
    assert promoted.channels == ["edge"]
    for artifact in (shared, theirs):
        for name in (artifact.artifact_id, artifact.digest):
            answer = await world.send(artifacts.APP_RETIRE, {"reason": "not mine"}, artifact_id=name, **where)
            assert answer.status_code == 404
    assert (await world.call(artifacts.SHARED_GET, artifact_id=theirs.artifact_id)).lifecycle == "published"
    retired = await world.call(artifacts.APP_RETIRE, {"reason": "replaced"}, artifact_id=mine.artifact_id, **where)
    assert retired.lifecycle == "retired"


async def test_tenants_do_not_discover_an_app_before_it_is_published(world: World) -> None:
    ada, _ = await _publisher(world)
    tess = await _tenant_admin(world)
    await world.call(catalog.APP_VERSION_REGISTER, MANIFEST, app_slug="toy", token=ada.token)

    async def seen() -> list[tuple[int, str]]:
        """Status and code of what a tenant can ask about the app."""
        return [
            (answer.status_code, answer.json().get("code", ""))
            for slug in ("toy", "absent")
            for answer in (
                await world.send(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=slug, token=tess),
                await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": f"of-{slug}", "apps": [slug]}, token=tess),
            )
        ]

    absent = [(404, "not_found"), (404, "app_unknown")]
    assert await seen() == [*absent, *absent]
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0")
    assert await seen() == [(200, ""), (201, ""), *absent]


async def test_the_artifacts_of_an_app_do_not_exist_for_a_project_that_was_never_entitled(world: World) -> None:
    ada, _ = await _publisher(world)
    tess = await _tenant_admin(world)
    await world.call(catalog.APP_VERSION_REGISTER, MANIFEST, app_slug="toy", token=ada.token)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0")
    signer = artifact_world.Signer()
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, {"public_key_pem": signer.public_pem()}, trust_key_id="release")
    await artifact_world.of_app(world, signer, b"another", token=ada.token)
    mine = await artifact_world.of_app(world, signer, b"mine", token=ada.token)
    promote: dict[str, Any] = {"app_slug": "toy", "artifact_id": mine.artifact_id, "token": ada.token}
    await world.call(artifacts.APP_VERIFY, {}, **promote)
    await world.call(artifacts.APP_PROMOTE, {"channel": "stable"}, **promote)

    async def seen() -> list[int]:
        """How many artifacts are on a page of one and whether there is another page, and the status of each request."""
        listed = await world.call(artifacts.LIST, query={"shared": True, "page_size": 1}, token=tess)
        answers = [
            answer
            for named in (mine.artifact_id, mine.digest)
            for answer in (
                await world.send(artifacts.GET, artifact_id=named, token=tess),
                await world.send(deliveries.DELIVERY_CREATE, {"purpose": "look"}, artifact_id=named, token=tess),
            )
        ]
        return [len(listed.items), bool(listed.next_page_token), *(answer.status_code for answer in answers)]

    assert await seen() == [0, False, *[404] * 4]
    for enabled in (True, False):  # Instances of an app whose entitlement was disabled still run.
        await world.call(catalog.ENTITLEMENT_SET, {"enabled": enabled}, app_slug="toy", token=tess)
        assert await seen() == [1, True, *[200, 201] * 2]


async def test_the_artifacts_of_another_app_stop_nothing(world: World) -> None:
    """A digest is no secret: another publisher can publish it first, wrongly, under another name, and retire it."""
    ada, _ = await _publisher(world)
    eve, _ = await _publisher(world, "other")
    signer, content = artifact_world.Signer(), b"upstream"
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, {"public_key_pem": signer.public_pem()}, trust_key_id="release")
    theirs: dict[str, Any] = {"app_slug": "other", "token": eve.token}
    for wrong in ({"size_bytes": 5, "media_type": "text/plain"}, {"name": "zzz"}):
        squat = await world.call(artifacts.APP_PUBLISH, artifact_world.intent(content, **wrong), **theirs)
        await world.call(artifacts.APP_RETIRE, {"reason": "not yours"}, artifact_id=squat.artifact_id, **theirs)
    used = {"tool": {"digest": artifact_world.digest_of(content), "media_type": artifact_world.MEDIA_TYPE}}
    await world.entitled_app(artifacts=used)
    mine = await artifact_world.of_app(world, signer, content, token=ada.token)
    where: dict[str, Any] = {"app_slug": "toy", "token": ada.token, "artifact_id": mine.artifact_id}
    await world.call(artifacts.APP_VERIFY, {}, **where)
    await world.call(artifacts.APP_PROMOTE, {"channel": "stable"}, **where)
    again = await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "artifacts": used})
    assert again.warnings == []
    assert (await world.deploy()).instance.artifacts == {"tool": mine.digest}
    with pytest.raises(errors.Conflict, match="already published"):
        await world.call(artifacts.APP_PUBLISH, artifact_world.intent(content), app_slug="toy", token=ada.token)


async def test_a_deploy_uses_no_artifact_of_an_app_that_the_project_may_not_have(world: World) -> None:
    """A delivery of it would be refused in the middle of the deploy."""
    eve, _ = await _publisher(world, "other")
    signer, content = artifact_world.Signer(), b"theirs"
    await world.call(trust_keys.SHARED_TRUST_KEY_PUT, {"public_key_pem": signer.public_pem()}, trust_key_id="release")
    theirs = await artifact_world.of_app(world, signer, content, "other", token=eve.token)
    where: dict[str, Any] = {"app_slug": "other", "token": eve.token, "artifact_id": theirs.artifact_id}
    await world.call(artifacts.APP_VERIFY, {}, **where)
    await world.call(artifacts.APP_PROMOTE, {"channel": "stable"}, **where)
    await world.entitled_app(artifacts={"tool": {"digest": theirs.digest}})
    with pytest.raises(errors.ArtifactUnknown):
        await world.deploy()


async def test_publishing_a_version_only_warns_about_artifacts(world: World) -> None:
    ada, _ = await _publisher(world)
    content = b"later"
    used = {"tool": {"digest": artifact_world.digest_of(content)}}
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "artifacts": used})
    await artifact_world.of_app(world, artifact_world.Signer(), content, token=ada.token, name="other-name")
    published = await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0", token=ada.token)
    assert (published.state, len(published.warnings)) == ("published", 1)
