"""A project requests an app that it may not deploy; an admin grants or refuses the request."""

import datetime

import pytest
from gpuaas_contract import audit, catalog, entitlement_requests, errors, events, identity, lifecycles, policy
from gpuaas_contract.entitlement_requests import EntitlementRequest
from gpuaas_platform.catalog import rules
from platform_world import MANIFEST, World


async def _published(world: World, slug: str = "toy", *, publish: bool = True) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "slug": slug})
    if publish:
        await world.call(catalog.VERSION_PUBLISH, {}, app_slug=slug, version=MANIFEST["version"])


async def _ask(world: World, reason: str = "course in June", token: str = "", slug: str = "toy") -> EntitlementRequest:
    body = {"app_slug": slug, "reason": reason}
    more = {"token": token} if token else {}
    return await world.call(entitlement_requests.ENTITLEMENT_REQUEST_CREATE, body, **more)


async def _refuse(world: World, reason: str = "use the shared one") -> EntitlementRequest:
    return await world.call(entitlement_requests.ENTITLEMENT_REQUEST_REFUSE, {"reason": reason}, app_slug="toy")


async def _states(world: World) -> list[str]:
    rows = (await world.call(events.EVENT_LIST)).items
    return [event.payload["state"] for event in rows if event.type == "catalog.entitlement_request.changed"]


async def test_a_request_is_open_until_an_admin_grants_the_app(world: World) -> None:
    await _published(world)
    asked = await _ask(world, " course in June ")
    assert (asked.state, asked.reason, asked.decided_by) == ("open", "course in June", "")
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    granted = await world.call(entitlement_requests.ENTITLEMENT_REQUEST_GET, app_slug="toy")
    assert (granted.state, bool(granted.decided_by), granted.reason) == ("granted", True, "course in June")
    assert await _states(world) == ["open", "granted"]


async def test_a_further_request_changes_nothing_while_one_is_open(world: World) -> None:
    await _published(world)
    member = await world.person("member", "project_member", world.project_id)
    first = await _ask(world, token=member.token)
    second = await _ask(world, "another reason")
    assert second == first
    assert (await world.call(entitlement_requests.ENTITLEMENT_REQUEST_LIST)).items == [first]
    assert await _states(world) == ["open"]


async def test_a_refused_request_shows_the_reason_and_can_be_opened_again(world: World) -> None:
    await _published(world)
    await _ask(world)
    refused = await _refuse(world, " use the shared one ")
    assert (refused.state, refused.decision_reason) == ("refused", "use the shared one")
    with pytest.raises(errors.Conflict, match="is refused"):
        await _refuse(world)
    again = await _ask(world, "the shared one is full")
    assert (again.state, again.decided_by, again.decision_reason) == ("open", "", "")
    assert await _states(world) == ["open", "refused", "open"]


async def test_a_disabled_entitlement_leaves_the_request_open(world: World) -> None:
    await _published(world)
    await _ask(world)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": False}, app_slug="toy")
    assert (await world.call(entitlement_requests.ENTITLEMENT_REQUEST_GET, app_slug="toy")).state == "open"


async def test_only_people_with_a_role_in_the_project_can_request_and_only_admins_can_refuse(world: World) -> None:
    await _published(world)
    scope = world.project_id
    viewer = await world.person("viewer", "viewer", scope)
    member = await world.person("member", "project_member", scope)
    with pytest.raises(errors.PermissionDenied):
        await _ask(world, token=viewer.token)
    with pytest.raises(errors.PermissionDenied):
        await _ask(world, token=await world.service_account("program"))
    await _ask(world, token=member.token)
    seen = await world.call(entitlement_requests.ENTITLEMENT_REQUEST_GET, token=viewer.token, app_slug="toy")
    assert seen.state == "open"
    body = {"reason": "no"}
    with pytest.raises(errors.PermissionDenied):
        await world.call(entitlement_requests.ENTITLEMENT_REQUEST_REFUSE, body, token=member.token, app_slug="toy")


async def test_an_app_that_the_project_has_or_cannot_have_is_not_requested(world: World) -> None:
    await _published(world)
    await _published(world, "draft", publish=False)
    for slug in ("draft", "none"):
        with pytest.raises(errors.NotFound, match=f"no published app {slug}"):
            await _ask(world, slug=slug)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    with pytest.raises(errors.Conflict, match="may already deploy toy"):
        await _ask(world)


async def test_offers_show_published_apps_without_manifests_and_leave_out_what_a_policy_denies(world: World) -> None:
    for slug in ("toy", "other", "denied"):
        await _published(world, slug)
    await _published(world, "draft", publish=False)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    await _ask(world, slug="other")
    await world.call(policy.PROJECT_SET, {"apps": {"deny": ["denied"]}, "reason": "not here"})
    offered = (await world.call(entitlement_requests.OFFER_LIST)).items
    rows = [(item.app_slug, item.entitled, item.request.state if item.request else "") for item in offered]
    assert rows == [("other", False, "open"), ("toy", True, "")]
    with pytest.raises(errors.NotFound):
        await _ask(world, slug="denied")


async def test_offers_are_paged(world: World) -> None:
    for slug in ("a", "b", "c"):
        await _published(world, slug)
    first = await world.call(entitlement_requests.OFFER_LIST, query={"page_size": 2})
    rest = await world.call(entitlement_requests.OFFER_LIST, query={"page_token": first.next_page_token})
    assert [item.app_slug for item in (*first.items, *rest.items)] == ["a", "b", "c"]


async def test_requests_are_listed_by_state_and_audited(world: World) -> None:
    await _published(world)
    await _published(world, "other")
    await _ask(world)
    await _ask(world, slug="other")
    await _refuse(world)
    asked = await world.call(entitlement_requests.ENTITLEMENT_REQUEST_LIST, query={"state": "open"})
    assert [item.app_slug for item in asked.items] == ["other"]
    rows = (await world.call(audit.AUDIT_LIST)).items
    assert [row.action for row in rows if row.action.startswith("catalog.entitlement_request.")] == [
        "catalog.entitlement_request.create",
        "catalog.entitlement_request.create",
        "catalog.entitlement_request.refuse",
    ]


async def test_requests_are_deleted_with_their_project(world: World) -> None:
    await _published(world)
    await _ask(world)
    await world.call(identity.PROJECT_DELETE)
    count = await world.site.database.reader.one("SELECT COUNT(*) FROM entitlement_requests")
    assert count is not None
    assert count[0] == 0


@pytest.mark.parametrize("state", lifecycles.ENTITLEMENT_REQUEST)
def test_only_an_open_request_can_be_closed(state: lifecycles.EntitlementRequestState) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    present = EntitlementRequest(
        project_id="prj_1", app_slug="toy", state=state, reason="", requested_by="usr_1", requested_at=now
    )
    if state == "open":
        assert rules.closed(present, "granted", by="usr_2", now=now).state == "granted"
    else:
        with pytest.raises(errors.Conflict, match=f"is {state}"):
            rules.closed(present, "refused", by="usr_2", now=now)
