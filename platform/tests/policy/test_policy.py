"""Overlays over HTTP: who may change which, what they refuse where, and how every verdict is explained."""

import re
from pathlib import Path
from typing import Any

import pytest
from gpuaas_contract import audit, bindings, capacity, catalog, errors, events, identity, instances, policy, users
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.policy import Choice, Overlay
from platform_world import PASSWORD, World

SETS: dict[str, Endpoint[Overlay, policy.ChangedPolicyLayer]] = {
    "global": policy.GLOBAL_SET,
    "org": policy.ORG_SET,
    "project": policy.PROJECT_SET,
}
GETS = {"global": policy.GLOBAL_GET, "org": policy.ORG_GET, "project": policy.PROJECT_GET}


async def test_without_overlays_everything_is_allowed(world: World) -> None:
    explained = await world.call(
        policy.EXPLAIN, policy.ExplainPolicy(region="moon", sku="huge", artifact_source="x", app="y")
    )
    assert [(verdict.subject, verdict.allowed, verdict.layer) for verdict in explained.verdicts] == [
        ("region", True, None),
        ("sku", True, None),
        ("artifact_source", True, None),
        ("app", True, None),
    ]
    assert (explained.effective, explained.limits, explained.ineffective) == (Overlay(), [], [])
    for layer, endpoint in GETS.items():
        present = await world.call(endpoint, org_id=await _org_id(world))
        assert (present.layer, present.revision, present.overlay) == (layer, 0, Overlay())


async def test_an_overlay_is_read_back_trimmed_and_with_a_new_revision(world: World) -> None:
    org_id = await _org_id(world)
    for layer, endpoint in SETS.items():
        for revision in (1, 2):
            body = Overlay(skus=Choice(allow=[" a* ", "a*"], deny=["ab"]), instances_max=revision, reason="try")
            changed = await world.call(endpoint, body, org_id=org_id)
            assert changed.overlay.skus == Choice(allow=["a*"], deny=["ab"])
            assert (changed.revision, changed.changed_at) == (revision, world.clock())
            present = await world.call(GETS[layer], org_id=org_id)
            assert (present.overlay, present.revision, present.changed_by) == (
                changed.overlay,
                revision,
                changed.changed_by,
            )


async def test_every_refusal_names_the_first_layer_that_refuses(world: World) -> None:
    await _set(world, "global", regions=Choice(deny=["moon*"]))
    await _set(world, "org", regions=Choice(allow=["eu-*", "moon-1"]), reason="data stays in Europe")
    await _set(world, "project", regions=Choice(allow=["eu-1"]))
    verdicts = {}
    for region in ("moon-1", "us-1", "eu-2", "eu-1"):
        (verdict,) = (await world.call(policy.EXPLAIN, policy.ExplainPolicy(region=region))).verdicts
        verdicts[region] = (verdict.allowed, verdict.layer, verdict.rule)
    assert verdicts == {
        "moon-1": (False, "global", "policy of global denies regions moon*"),
        "us-1": (False, "org", "policy of org allows only regions eu-*, moon-1 (data stays in Europe)"),
        "eu-2": (False, "project", "policy of project allows only regions eu-1"),
        "eu-1": (True, "project", "policy of project allows regions eu-1"),
    }


async def test_an_artifact_source_is_explained_by_its_prefix(world: World) -> None:
    await _set(world, "org", artifact_sources=Choice(allow=["registry/team/*"]))
    for source, allowed in (("registry/team/image", True), ("registry/other/image", False)):
        (verdict,) = (await world.call(policy.EXPLAIN, policy.ExplainPolicy(artifact_source=source))).verdicts
        assert (verdict.allowed, verdict.layer) == (allowed, "org")


async def test_entries_wider_than_the_layers_above_are_kept_and_called_ineffective(world: World) -> None:
    await _set(world, "global", skus=Choice(deny=["old-*"]), instances_max=4)
    await _set(world, "org", skus=Choice(allow=["gpu-*", "old-1"]))
    wide = await _set(world, "project", skus=Choice(allow=["gpu-1", "cpu-1", "*", "old-1"]), instances_max=9)
    assert [(entry.field, entry.entry, entry.extent, entry.narrowed_by) for entry in wide.ineffective] == [
        ("skus.allow", "cpu-1", "whole", "org"),
        ("skus.allow", "*", "part", "global"),
        ("skus.allow", "old-1", "whole", "global"),
        ("instances_max", "9", "whole", "global"),
    ]
    assert wide.overlay.skus.allow == ["gpu-1", "cpu-1", "*", "old-1"]
    explained = await world.call(policy.EXPLAIN, policy.ExplainPolicy(sku="cpu-1"))
    assert (explained.verdicts[0].allowed, explained.verdicts[0].layer) == (False, "org")
    assert [(entry.layer, entry.entry) for entry in explained.ineffective][:2] == [
        ("org", "old-1"),
        ("project", "cpu-1"),
    ]
    assert explained.effective.skus.allow == ["gpu-*", "gpu-1", "old-1"]
    assert explained.effective.skus.deny == ["old-*"]
    assert [(limit.max, limit.layer) for limit in explained.limits] == [(4, "global")]


async def test_a_change_is_an_event_and_audited_and_the_same_again_is_no_second_event(world: World) -> None:
    for _ in range(2):
        changed = await _set(world, "project", apps=Choice(deny=["toy"]), reason="licence ended")
        assert changed.revision == 1
    changes = [event for event in (await world.call(events.EVENT_LIST)).items if event.type == "policy.overlay.changed"]
    assert [event.payload for event in changes] == [
        {
            "layer": "project",
            "scope": world.project_id,
            "revision": 1,
            "changed": ["apps", "reason"],
            "reason": "licence ended",
        }
    ]
    rows = (await world.call(audit.AUDIT_LIST)).items
    assert [row.result for row in rows if row.action == "policy.project.set"] == ["success", "success"]


async def test_a_dry_run_reports_ineffective_entries_and_changes_nothing(world: World) -> None:
    await _set(world, "org", apps=Choice(deny=["toy"]))
    wanted = Overlay(apps=Choice(allow=["toy"]))
    answer = await world.send(policy.PROJECT_SET, wanted, query={"dry_run": "true"})
    assert [item["entry"] for item in answer.json()["ineffective"]] == ["toy"]
    assert (await world.call(policy.PROJECT_GET)).revision == 0


async def test_each_layer_is_changed_by_its_own_admin_only(world: World) -> None:
    org_id = await _org_id(world)
    callers = {
        "project_admin": await _person(world, "pat", "project_admin", world.project_id),
        "project_member": await _person(world, "max", "project_member", world.project_id),
        "tenant_admin": await _person(world, "tess", "tenant_admin", org_id),
        "service_account": await world.service_account(),
    }
    answers = {
        (role, layer): (await world.send(endpoint, Overlay(), token=token, org_id=org_id)).status_code
        for role, token in callers.items()
        for layer, endpoint in SETS.items()
    }
    assert answers == {
        ("project_admin", "global"): 404,
        ("project_admin", "org"): 404,
        ("project_admin", "project"): 200,
        ("project_member", "global"): 404,
        ("project_member", "org"): 404,
        ("project_member", "project"): 403,
        ("tenant_admin", "global"): 404,
        ("tenant_admin", "org"): 200,
        ("tenant_admin", "project"): 200,
        ("service_account", "global"): 404,
        ("service_account", "org"): 404,
        ("service_account", "project"): 403,
    }
    readers = {role: (await world.send(policy.PROJECT_GET, token=token)).status_code for role, token in callers.items()}
    assert set(readers.values()) == {200}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"regions": {"allow": ["a*b"]}}, "regions.allow"),
        ({"skus": {"deny": [""]}}, "skus.deny"),
        ({"apps": {"deny": ["x" * 201]}}, "apps.deny"),
        ({"allocations_max": -1}, "allocations_max"),
    ],
)
async def test_an_overlay_that_is_not_sound_is_refused_by_field(world: World, body: Any, field: str) -> None:
    answer = await world.send(policy.PROJECT_SET, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert answer.json()["details"]["field"] == field


async def test_a_node_that_policy_refuses_is_skipped_and_the_answer_gives_the_reason(world: World) -> None:
    await world.node("a", region="us-1", sku="big")
    await world.node("b", region="eu-1", sku="old")
    await _set(world, "global", regions=Choice(deny=["us-*"]))
    await _set(world, "project", skus=Choice(deny=["old"]), reason="too slow")
    with pytest.raises(errors.NoCapacity) as refused:
        await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    assert refused.value.details["why_not"] == {
        "a": "policy of global denies regions us-*",
        "b": "policy of project denies skus old (too slow)",
    }
    await world.node("c", region="eu-1", sku="big")
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
    assert (created.node_name, created.region, created.sku) == ("c", "eu-1", "big")


async def test_a_region_or_sku_asked_for_by_name_is_refused_by_policy_at_once(world: World) -> None:
    await world.node("n1")
    await _set(world, "org", regions=Choice(allow=["eu-*"]), skus=Choice(deny=["standard"]))
    for wanted, subject in (
        (capacity.CreateAllocation(region="local"), "region"),
        (capacity.CreateAllocation(sku="standard"), "sku"),
    ):
        with pytest.raises(errors.PolicyDenied) as refused:
            await world.call(capacity.ALLOCATION_CREATE, wanted)
        assert (refused.value.details["layer"], refused.value.details["subject"]) == ("org", subject)
        assert refused.value.details["rule"] in refused.value.message


async def test_what_a_policy_denies_is_in_the_audit_trail_also_as_a_dry_run(world: World) -> None:
    await _set(world, "org", regions=Choice(allow=["eu-*"]))
    for dry_run, correlation_id in (("false", "ticket-1"), ("true", "ticket-2")):
        answer = await world.send(
            capacity.ALLOCATION_CREATE,
            capacity.CreateAllocation(region="local"),
            query={"dry_run": dry_run},
            headers={"X-Correlation-ID": correlation_id},
        )
        assert answer.status_code == 422
        (row,) = (await world.call(audit.AUDIT_LIST, query={"correlation_id": correlation_id})).items
        assert (row.action, row.target, row.result) == ("policy.deny", "capacity.allocation.create", "failure")
        assert (row.details["layer"], row.details["value"]) == ("org", "local")


async def test_one_allocation_too_many_is_refused_until_one_is_released(world: World) -> None:
    first = await world.node("n1")
    await world.node("n2")
    await _set(world, "project", allocations_max=7)
    await _set(world, "org", allocations_max=1)
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
    await world.finish_task(first)
    answer = await world.send(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    assert (answer.status_code, answer.json()["code"]) == (422, "policy_denied")
    assert answer.json()["details"] == {
        "layer": "org",
        "rule": "policy of org sets allocations_max to 1",
        "limit": "allocations_max",
        "max": 1,
        "present": 1,
        "asked": 1,
    }
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=created.allocation_id)
    await world.finish_task(first)
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())


async def test_a_limit_of_any_layer_counts_within_one_project(world: World) -> None:
    await world.node("n1")
    await world.node("n2")
    await _set(world, "global", allocations_max=1)
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=await _org_id(world))
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(), project_id=sibling.project_id)


async def test_a_denied_app_is_neither_shown_nor_deployed_and_comes_back_with_the_policy(world: World) -> None:
    await world.entitled_app()
    shown = (await world.call(catalog.PROJECT_APP_LIST)).items
    assert [app.app_slug for app in shown] == ["toy"]
    await _set(world, "org", apps=Choice(deny=["to*"]))
    assert (await world.call(catalog.PROJECT_APP_LIST)).items == []
    with pytest.raises(errors.PolicyDenied) as refused:
        await world.deploy("one")
    assert refused.value.details["layer"] == "org"
    await _set(world, "org")
    await world.deploy("two")


async def test_policy_does_not_change_the_answer_for_an_app_without_entitlement(world: World) -> None:
    await world.entitled_app()
    await world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=False), app_slug="toy")
    body = instances.DeployInstance(name="x", app_slug="toy", topology="pair")
    before = await world.send(instances.INSTANCE_CREATE, body)
    await _set(world, "global", apps=Choice(deny=["toy"]))
    after = await world.send(instances.INSTANCE_CREATE, body)
    assert before.json()["code"] == after.json()["code"] == "not_entitled"
    assert before.json()["message"] == after.json()["message"]


async def test_instances_and_their_members_are_limited_at_deploy(world: World) -> None:
    await world.entitled_app()
    await _set(world, "org", members_per_instance_max=2, instances_max=1)
    with pytest.raises(errors.PolicyDenied) as wide:
        await world.deploy("wide", hands=2)
    assert (wide.value.details["limit"], wide.value.details["asked"]) == ("members_per_instance_max", 3)
    await world.deploy("one", hands=1)
    with pytest.raises(errors.PolicyDenied) as second:
        await world.deploy("two", hands=1)
    assert (second.value.details["limit"], second.value.details["present"]) == ("instances_max", 1)


async def test_members_of_all_roles_are_limited_when_one_is_added(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token, hands=1)
    more = [(await world.allocation(name)).allocation_id for name in ("more-1", "more-2")]
    await _set(world, "project", members_per_instance_max=3)
    options: dict[str, Any] = {"instance_id": deployed.instance.instance_id}
    body = {"kind": "add", "component_key": "hand", "allocation_ids": more}
    with pytest.raises(errors.PolicyDenied) as refused:
        await world.call(instances.MEMBER_OPERATION_CREATE, body, **options)
    assert (refused.value.details["layer"], refused.value.details["present"]) == ("project", 2)
    await world.call(instances.MEMBER_OPERATION_CREATE, {**body, "allocation_ids": more[:1]}, **options)


async def test_a_running_instance_stays_when_a_policy_becomes_narrower(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token, hands=1)
    await _set(world, "global", apps=Choice(allow=[]), regions=Choice(allow=[]), instances_max=0, allocations_max=0)
    instance = await world.call(instances.INSTANCE_GET, instance_id=deployed.instance.instance_id)
    assert instance.status == "running"
    hands = [member.member_id for member in await world.members(instance.instance_id) if member.component_key == "hand"]
    body = {"kind": "drain", "member_ids": hands}
    await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id=instance.instance_id)


async def test_can_i_names_the_binding_that_allows(world: World) -> None:
    token = await _person(world, "pat", "project_admin", world.project_id)
    answer = await _can_i(world, token, permission="capacity.allocation.create", project_id=world.project_id)
    assert answer.allowed
    assert answer.decided_by == policy.DecidedByBinding(role="project_admin", scope=world.project_id)
    assert "project_admin" in answer.explanation


async def test_can_i_names_the_overlay_that_refuses(world: World) -> None:
    await _set(world, "org", regions=Choice(deny=["us-*"]))
    token = await _person(world, "pat", "project_admin", world.project_id)
    asked = {"permission": "capacity.allocation.create", "project_id": world.project_id}
    refused = await _can_i(world, token, **asked, region="us-1", sku="any", app="toy")
    assert not refused.allowed
    assert refused.decided_by == policy.DecidedByOverlay(layer="org", rule="policy of org denies regions us-*")
    assert (await _can_i(world, token, **asked, region="eu-1")).allowed


async def test_can_i_denies_when_no_role_contains_the_permission(world: World) -> None:
    token = await _person(world, "pat", "project_admin", world.project_id)
    for asked in (
        {"permission": "policy.overlay.change_global"},
        {"permission": "catalog.entitlement.change", "project_id": world.project_id},
    ):
        answer = await _can_i(world, token, **asked)
        assert (answer.allowed, answer.decided_by) == (False, policy.DecidedByNone())


async def test_can_i_answers_alike_for_what_is_hidden_and_what_is_absent(world: World) -> None:
    org = await world.call(identity.ORG_CREATE, {"name": "other"})
    project = await world.call(identity.PROJECT_CREATE, {"name": "hidden"}, org_id=org.org_id)
    token = await world.service_account()
    asked: dict[str, str] = {"permission": "apps.instance.read", "region": "us-1"}
    places = [
        {"project_id": project.project_id},
        {"project_id": "proj_absent"},
        {"org_id": org.org_id},
        {"org_id": "org_absent"},
    ]
    answers = [await _can_i(world, token, **asked, **place) for place in places]
    assert answers == [answers[0]] * 4
    assert not answers[0].allowed


async def test_can_i_agrees_with_what_the_route_then_does(world: World) -> None:
    org_id = await _org_id(world)
    tokens = [
        world.token,
        await _person(world, "tess", "tenant_admin", org_id),
        await _person(world, "pat", "project_admin", world.project_id),
        await _person(world, "vic", "viewer", world.project_id),
        await world.service_account(),
    ]
    routes: list[tuple[Endpoint[Any, Any], dict[str, str]]] = [
        (policy.GLOBAL_SET, {}),
        (policy.ORG_SET, {"org_id": org_id}),
        (policy.PROJECT_SET, {"project_id": world.project_id}),
        (policy.PROJECT_GET, {"project_id": world.project_id}),
        (capacity.NODE_LIST, {}),
    ]
    for token in tokens:
        for endpoint, place in routes:
            forecast = await _can_i(world, token, permission=endpoint.permission, **place)
            answer = await world.send(endpoint, {}, token=token, org_id=org_id)
            assert (endpoint.name, forecast.allowed) == (endpoint.name, answer.status_code == 200)


async def test_can_i_refuses_an_unknown_permission_and_two_places_at_once(world: World) -> None:
    for asked in (
        {"permission": "no.such.key"},
        {"permission": "apps.instance.read", "project_id": "a", "org_id": "b"},
    ):
        with pytest.raises(errors.ValidationFailed):
            await _can_i(world, world.token, **asked)


async def _set(world: World, layer: str, **overlay: Any) -> policy.ChangedPolicyLayer:
    return await world.call(SETS[layer], Overlay(**overlay), org_id=await _org_id(world))


async def _org_id(world: World) -> str:
    return (await world.call(identity.ORG_LIST)).items[0].org_id


async def _can_i(world: World, token: str, **asked: str) -> policy.CanIAnswer:
    return await world.call(policy.CAN_I, asked, token=token)


async def _person(world: World, name: str, role: str, scope: str) -> str:
    """The token of a new person with one role."""
    user = await world.call(users.USER_CREATE, users.CreateUser(name=name, password=PASSWORD))
    body = bindings.BindRole(user_id=user.user_id, role=role)
    if scope == world.project_id:
        await world.call(bindings.PROJECT_BINDING_CREATE, body)
    else:
        await world.call(bindings.ORG_BINDING_CREATE, body, org_id=scope)
    return (await world.call(identity.LOGIN, identity.Login(name=name, password=PASSWORD))).access_token


async def test_the_changes_in_the_documentation_work_as_they_are_written(world: World) -> None:
    page = Path(__file__).parents[3] / "docs/explanation/policy.md"
    examples = re.findall(r"curl -sX PUT \$API(\S+) (.*?) --json '\n?(.*?)'", page.read_text(), re.DOTALL)
    assert len(examples) == 2
    values = {"$TOKEN": world.token, "$ORG": await _org_id(world), "$PROJECT": world.project_id}
    for path, options, body in examples:
        for name, value in values.items():
            path, options = path.replace(name, value), options.replace(name, value)
        headers = dict(header.split(": ", 1) for _, header in re.findall(r"-H (['\"])(.*?)\1", options))
        answer = await world.http.request("PUT", path, content=body.encode(), headers=headers)
        assert answer.status_code == 200, answer.text
