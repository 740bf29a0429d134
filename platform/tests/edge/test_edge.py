"""What every route does by construction: authentication, boundaries, idempotency, dry run, envelope, audit."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from gpuaas_contract import audit, capacity, catalog, errors, events, identity, instances, registry, users
from gpuaas_platform.identity.users import passwords
from platform_world import PASSWORD, World
from server_process import until


async def test_every_error_is_a_problem_document_with_a_correlation_id(world: World) -> None:
    answers = [
        await world.http.get("/api/v1/nothing-here"),
        await world.http.put("/api/v1/me"),
        await world.http.get("/api/v1/me"),
        await world.send(identity.ORG_CREATE, {"name": "x", "surprise": 1}),
        await world.http.post("/api/v1/auth/login", content=b"{"),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 401, 400, 400]
    for answer in answers:
        problem = msgspec.json.decode(answer.content, type=errors.Problem)
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem.correlation_id == answer.headers["x-correlation-id"]
        assert problem.code in errors.BY_CODE
        assert problem.fix


async def test_the_callers_correlation_id_is_echoed_and_reaches_event_and_audit(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, _toy())
    headers = {"X-Correlation-ID": "ticket-4711"}
    answer = await world.send(catalog.ENTITLEMENT_SET, {"enabled": True}, headers=headers, app_slug="toy")
    assert answer.headers["x-correlation-id"] == "ticket-4711"
    page = await world.call(events.EVENT_LIST, query={"correlation_id": "ticket-4711"})
    assert [event.type for event in page.items] == ["catalog.entitlement.changed"]
    rows = await world.call(audit.AUDIT_LIST, query={"correlation_id": "ticket-4711"})
    assert [row.action for row in rows.items] == ["catalog.entitlement.set"]


async def test_a_mutation_without_a_key_is_refused(world: World) -> None:
    assert (await world.send(identity.ORG_CREATE, {"name": "x"}, key="")).status_code == 400


async def test_a_repeat_with_the_same_key_gets_the_same_answer_and_changes_nothing(world: World) -> None:
    first = await world.send(identity.ORG_CREATE, {"name": "twice"}, key="k1")
    again = await world.send(identity.ORG_CREATE, {"name": "twice"}, key="k1")
    assert (first.status_code, again.content) == (201, first.content)
    orgs = (await world.call(identity.ORG_LIST)).items
    assert [org.name for org in orgs] == ["acme", "twice"]


async def test_a_key_used_for_another_body_is_refused(world: World) -> None:
    await world.send(identity.ORG_CREATE, {"name": "one"}, key="k1")
    answer = await world.send(identity.ORG_CREATE, {"name": "two"}, key="k1")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


async def test_parallel_identical_requests_make_one_thing(world: World) -> None:
    answers = await asyncio.gather(*(world.send(identity.ORG_CREATE, {"name": "race"}, key="k1") for _ in range(50)))
    made = {answer.content for answer in answers if answer.status_code == 201}
    refused = {answer.json()["code"] for answer in answers if answer.status_code != 201}
    assert len(made) == 1
    assert refused <= {"request_in_flight"}
    assert {(await world.send(identity.ORG_CREATE, {"name": "race"}, key="k1")).content} == made


async def test_a_repeat_of_a_request_that_still_runs_is_refused_and_later_gets_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_finish = asyncio.Event(), asyncio.Event()

    async def slow_hash(_: str) -> str:
        started.set()
        await may_finish.wait()
        return "hash"

    monkeypatch.setattr(passwords, "hashed", slow_hash)
    body = users.CreateUser(name="slow", password=PASSWORD)
    first = asyncio.create_task(world.send(users.USER_CREATE, body, key="k1"))
    await started.wait()
    assert (await world.send(users.USER_CREATE, body, key="k1")).json()["code"] == "request_in_flight"
    may_finish.set()
    answer = await first
    assert (answer.status_code, (await world.send(users.USER_CREATE, body, key="k1")).content) == (201, answer.content)


async def test_two_callers_with_the_same_key_and_request_each_get_their_own_answer(world: World) -> None:
    other = await world.person("other", "platform_admin", "platform")
    body = users.CreateUser(name="shared-name")
    first = await world.send(users.USER_CREATE, body, key="k1")
    second = await world.send(users.USER_CREATE, body, key="k1", token=other.token)
    assert (first.status_code, second.json()["code"]) == (201, "conflict")


async def test_a_secret_is_given_once_and_never_replayed(world: World) -> None:
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"})
    options: dict[str, Any] = {"service_account_id": account.service_account_id, "key": "k1"}
    first = await world.send(identity.SERVICE_ACCOUNT_KEY_CREATE, **options)
    again = await world.send(identity.SERVICE_ACCOUNT_KEY_CREATE, **options)
    assert (first.status_code, again.json()["code"]) == (201, "secret_already_delivered")
    kept = await world.site.database.reader.all("SELECT answer FROM idempotency")
    assert first.json()["client_secret"] not in "".join(row[0] for row in kept)


async def test_a_dry_run_answers_like_the_real_thing_and_leaves_nothing(world: World) -> None:
    answer = await world.send(identity.ORG_CREATE, {"name": "maybe"}, query={"dry_run": "true"})
    assert (answer.status_code, answer.json()["name"]) == (201, "maybe")
    assert [org.name for org in (await world.call(identity.ORG_LIST)).items] == ["acme"]


async def test_a_sibling_projects_service_account_sees_nothing_not_even_that_there_is_something(world: World) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org.org_id)
    token = await world.service_account("robot", sibling.project_id)
    for endpoint in registry.ENDPOINTS:
        if "{project_id}" not in endpoint.path or endpoint.audience != "caller":
            continue
        names = set(re.findall(r"{(\w+)}", endpoint.path)) - {"project_id"}
        options: dict[str, Any] = {name: "x" for name in names}
        there = await world.send(endpoint, {}, token=token, **options)
        absent = await world.send(endpoint, {}, token=token, **{**options, "project_id": "proj_absent"})
        assert (endpoint.name, there.status_code) == (endpoint.name, 404)
        assert _without_correlation(there.json()) == _without_correlation(absent.json())


async def test_a_denial_is_audited(world: World) -> None:
    token = await world.service_account("robot")
    answer = await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": "another"}, token=token)
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_permissions")
    rows = (await world.call(audit.AUDIT_LIST)).items
    denied = [row for row in rows if row.action == "authz.deny"]
    assert [(row.actor_type, row.target) for row in denied] == [("service_account", "identity.service_account.create")]


async def test_a_wrong_password_and_an_unknown_name_answer_alike(world: World) -> None:
    wrong = await world.send(identity.LOGIN, {"name": "admin", "password": "no"})
    unknown = await world.send(identity.LOGIN, {"name": "nobody", "password": PASSWORD})
    assert wrong.status_code == unknown.status_code == 401
    assert _without_correlation(wrong.json()) == _without_correlation(unknown.json())


async def test_a_token_stops_working_when_it_expires(world: World) -> None:
    world.clock.forward(world.site.settings.session_ttl_s + 1)
    with pytest.raises(errors.TokenExpired):
        await world.call(identity.ME)


async def test_a_node_token_opens_no_route_of_people_and_the_other_way_round(world: World) -> None:
    node = await world.node("n1")
    assert (await world.send(identity.ME, token=node.token)).status_code == 401
    by_name = registry.BY_NAME["node.task.next"]
    assert (await world.send(by_name)).status_code == 401


async def test_pages_walk_through_everything_once(world: World) -> None:
    for number in range(5):
        await world.call(identity.ORG_CREATE, {"name": f"org-{number}"})
    seen, token = [], ""
    while True:
        page = await world.call(identity.ORG_LIST, query={"page_size": 2, "page_token": token})
        seen += [org.name for org in page.items]
        if page.next_page_token is None:
            break
        token = page.next_page_token
    assert seen == ["acme", *(f"org-{number}" for number in range(5))]


async def test_a_body_over_the_limit_is_refused(world: World) -> None:
    answer = await world.send(identity.ORG_CREATE, {"name": "x" * 1_100_000})
    assert answer.status_code == 413


async def test_the_project_header_must_match_the_path(world: World) -> None:
    answer = await world.send(capacity.ALLOCATION_LIST, headers={"X-Project-ID": "proj_other"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("header", ["hidden", "other"])
async def test_the_project_header_reveals_no_name_of_a_hidden_project(world: World, header: str) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    hidden = (await world.call(identity.PROJECT_CREATE, {"name": "hidden"}, org_id=org_id)).project_id
    token = await world.service_account()
    headers = {"X-Project-ID": header, "X-Correlation-ID": "same"}
    answers = [
        await world.send(identity.PROJECT_GET, token=token, headers=headers, project_id=project_id)
        for project_id in (hidden, "proj_" + "0" * 26)
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content
    shown = [{name: value for name, value in answer.headers.items() if name != "traceparent"} for answer in answers]
    assert shown[0] == shown[1]


async def test_events_are_waited_for(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, _toy())
    waiting = asyncio.create_task(world.call(events.EVENT_LIST, query={"wait_s": 20}))
    await until(lambda: world.site.hub.waiting == 1)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
    page = await waiting
    assert [event.type for event in page.items] == ["catalog.entitlement.changed"]
    after = await world.call(events.EVENT_LIST, query={"after": page.cursor})
    assert after.items == []


async def test_an_unknown_instance_is_not_found(world: World) -> None:
    with pytest.raises(errors.NotFound):
        await world.call(instances.INSTANCE_GET, instance_id="inst_absent")


def _toy() -> dict[str, object]:
    return {
        "slug": "toy",
        "display_name": "Toy",
        "version": "1.0.0",
        "runtime_backend": "toy",
        "operating_modes": ["tenant_dedicated"],
        "control_plane_scopes": ["project"],
        "roles": [{"component_key": "head", "max": 1}],
        "topologies": {"solo": {"head": "allocation"}},
        "deploy_form": {"type": "object", "properties": {"allocation": {"type": "string"}}},
    }


def _without_correlation(problem: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in problem.items() if key != "correlation_id"}
