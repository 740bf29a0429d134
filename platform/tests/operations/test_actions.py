"""Actions an app declares, and previews of what an operation would hit: both are asked of the app's controller."""

import asyncio
import dataclasses
from typing import Any

import httpx
import pytest
from gpuaas_contract import actions, audit, errors, instances, operations
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.kit import hub
from gpuaas_platform.operations import actions as invoking
from gpuaas_platform.operations import previews, reconcile
from gpuaas_platform.operations.routes import routes
from platform_world import World
from scripted_controller import CHANGES, Cluster, exits, publish_version, take_exit

DECLARED: dict[str, Any] = {
    "permissions": {
        "shop.queue.flush": {"meaning": "empty the queue", "roles": ["project_member"]},
        "shop.till.open": {"meaning": "open the till", "roles": ["project_admin"]},
    },
    "actions": [
        {
            "name": "flush",
            "title": "Empty the queue",
            "permission": "shop.queue.flush",
            "input_schema": {
                "type": "object",
                "properties": {"queue": {"type": "string"}},
                "required": ["queue"],
                "additionalProperties": False,
            },
            "deadline_s": 60,
        },
        {
            "name": "open-till",
            "title": "Open the till",
            "permission": "shop.till.open",
            "input_schema": {"type": "object"},
        },
        {
            "name": "rebalance",
            "title": "Rebalance",
            "permission": "shop.queue.flush",
            "input_schema": {"type": "object"},
            "exclusive": True,
        },
        {
            "name": "queue.list",
            "title": "List the queue",
            "permission": "shop.queue.flush",
            "input_schema": {"type": "object"},
            "result": {
                "columns": [{"name": "item", "title": "Item"}, {"name": "place", "title": "Place", "kind": "integer"}]
            },
        },
        {
            "name": "queue.watch",
            "title": "Watch the queue",
            "permission": "shop.queue.flush",
            "input_schema": {"type": "object"},
            "reading": True,
            "result": {"columns": [{"name": "item", "title": "Item"}]},
        },
    ],
}
FLUSH = {"inputs": {"queue": "night"}}


@pytest.fixture(autouse=True)
def patient_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who asks for a preview waits until the scripted controller has answered, even on a busy host."""
    monkeypatch.setattr(previews, "ANSWER_WAIT_S", hub.WAIT_MAX_S)


async def _invoke(cluster: Cluster, action: str, body: Any = None, **options: Any) -> operations.Operation:
    return await cluster.world.call(
        actions.ACTION_INVOKE, body or {}, instance_id=cluster.instance_id, action=action, **options
    )


async def test_an_action_is_an_operation_with_inputs_and_a_result(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    asked = await _invoke(cluster, "flush", {**FLUSH, "reason": "end of day"})
    assert (asked.kind, asked.action, asked.inputs, asked.targets) == ("action", "flush", {"queue": "night"}, [])
    assert (asked.deadline_at - asked.created_at).total_seconds() == 60
    held = await cluster.controller.take()
    await held.step("flush")
    ended = await held.complete(result={"dropped": 3})
    assert (ended.status, ended.result) == ("succeeded", {"dropped": 3})
    assert await cluster.status() == "running"
    trail = (await world.call(audit.AUDIT_LIST, query={"action": "apps.action.invoke"})).items
    assert [(row.result, row.correlation_id) for row in trail] == [("success", asked.correlation_id)]


async def test_an_action_is_allowed_by_the_key_the_app_named_and_the_denial_is_on_the_record(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    viewer = await world.person("vic", "viewer", world.project_id)
    member = await world.person("mia", "project_member", world.project_id)
    admin = await world.person("ada", "project_admin", world.project_id)
    for token, action, body in ((viewer.token, "flush", FLUSH), (member.token, "open-till", {})):
        with pytest.raises(errors.PermissionDenied) as denied:
            await _invoke(cluster, action, body, token=token)
        assert denied.value.details["permission"].startswith("shop.")
    assert (await _invoke(cluster, "flush", FLUSH, token=member.token)).requested_by == member.user_id
    assert (await _invoke(cluster, "open-till", token=admin.token)).requested_by == admin.user_id
    trail = (await world.call(audit.AUDIT_LIST, query={"action": "authz.deny"})).items
    assert [(row.actor_id, row.details["permission"]) for row in trail] == [
        (viewer.user_id, "shop.queue.flush"),
        (member.user_id, "shop.till.open"),
    ]


async def test_a_later_version_changes_who_may_act_on_an_instance_only_by_an_upgrade(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    viewer = await world.person("vic", "viewer", world.project_id)
    member = await world.person("mia", "project_member", world.project_id)
    wider = {"shop.queue.flush": {"meaning": "empty the queue", "roles": ["viewer"]}}
    narrower = {"shop.queue.flush": {"meaning": "empty the queue", "roles": ["tenant_admin"]}}
    for version, changed in (("9.0.0", wider), ("9.1.0", narrower)):
        await publish_version(world, version, **DECLARED | {"permissions": DECLARED["permissions"] | changed})
        with pytest.raises(errors.PermissionDenied):
            await _invoke(cluster, "flush", FLUSH, token=viewer.token)
        assert (await _invoke(cluster, "flush", FLUSH, token=member.token)).requested_by == member.user_id


async def test_inputs_that_do_not_fit_the_actions_schema_are_refused_by_field(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    for inputs, field in (({"queue": 7}, "queue"), ({}, "queue"), ({"queue": "x", "kue": 1}, "kue")):
        with pytest.raises(errors.ValidationFailed) as refused:
            await _invoke(cluster, "flush", {"inputs": inputs})
        assert field in str(refused.value.details["fields"])
    with pytest.raises(errors.NotFound, match="did you mean `flush`"):
        await _invoke(cluster, "flus")
    assert await cluster.controller.finds_nothing()


async def test_a_result_fits_the_columns_that_the_manifest_declares(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    await _invoke(cluster, "queue.list")
    held = await cluster.controller.take()
    for wrong in ({"dropped": 3}, {"rows": [{"item": "bread"}]}, {"rows": [{"item": "bread", "place": "first"}]}):
        with pytest.raises(errors.ValidationFailed, match=r"The result of queue\.list does not fit the columns"):
            await held.complete(result=wrong)
    ended = await held.complete(result={"rows": [{"item": "bread", "place": 1}]})
    assert (ended.status, ended.result) == ("succeeded", {"rows": [{"item": "bread", "place": 1}]})


async def test_a_short_action_answers_its_caller_with_the_result(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    asking = asyncio.create_task(_invoke(cluster, "flush", FLUSH, query={"wait_s": 30}))
    held = await cluster.controller.take(wait_s=30)
    await held.complete(result={"dropped": 0})
    answered = await asking
    assert (answered.status, answered.result) == ("succeeded", {"dropped": 0})


async def test_a_dry_run_of_an_action_states_what_was_checked_and_that_the_app_was_not_asked(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    checked = await _invoke(cluster, "flush", FLUSH, query={"dry_run": "true"})
    assert checked.preview == operations.Preview(answered=False, notes=list(invoking.CHECKED))
    assert "The app was not asked" in " ".join(invoking.CHECKED)
    assert await cluster.controller.finds_nothing()


async def test_an_action_that_takes_longer_than_its_caller_waits_continues(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    asked = await _invoke(cluster, "flush", FLUSH, query={"wait_s": 0})
    assert asked.status == "accepted"
    await (await cluster.controller.take()).complete()
    assert (await world.operation(asked.operation_id)).status == "succeeded"


async def test_an_action_blocks_other_operations_only_when_it_is_exclusive(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    hand = (await cluster.hands())[0]
    await cluster.operate("drain", hand)
    await _invoke(cluster, "flush", FLUSH)
    with pytest.raises(errors.OperationInProgress):
        await _invoke(cluster, "rebalance")
    await cluster.controller.carry_out()
    await (await cluster.controller.take()).complete()
    alone = await _invoke(cluster, "rebalance")
    assert alone.exclusive
    for refused in (
        _invoke(cluster, "flush", FLUSH),
        _invoke(cluster, "rebalance"),
        cluster.operate("resume", hand),
        cluster.change("restart"),
    ):
        with pytest.raises(errors.OperationInProgress) as held:
            await refused
        assert held.value.details["operation_id"] == alone.operation_id
    await (await cluster.controller.take()).complete()
    await cluster.operate("resume", hand)


async def test_an_action_that_only_reads_runs_beside_an_exclusive_one(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    assert (await _invoke(cluster, "queue.watch")).reading
    alone = await _invoke(cluster, "rebalance")
    assert (alone.exclusive, alone.reading) == (True, False)
    assert (await _invoke(cluster, "queue.watch")).status == "accepted"


async def test_a_failed_exclusive_action_waits_for_its_turn_to_be_retried(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    failed = await _invoke(cluster, "rebalance")
    await (await cluster.controller.take()).fail()
    assert await exits(world, failed) == {"retry"}
    draining = await cluster.operate("drain", (await cluster.hands())[0])
    with pytest.raises(errors.OperationInProgress):
        await take_exit(world, failed, "retry")
    await take_exit(world, draining, "cancel")
    await take_exit(world, failed, "retry")
    assert (await (await cluster.controller.take()).complete()).status == "succeeded"


async def test_members_are_not_given_up_while_an_exclusive_action_runs(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    failed = await cluster.operate("remove", (await cluster.hands())[0])
    await (await cluster.controller.take()).fail()
    alone = await _invoke(cluster, "rebalance")
    held = await cluster.controller.take()
    for name in ("tombstone", "force_complete", "retry", "compensate"):
        with pytest.raises(errors.OperationInProgress) as refused:
            await take_exit(world, failed, name)
        assert refused.value.details["operation_id"] == alone.operation_id
    await held.complete()
    assert (await take_exit(world, failed, "tombstone")).status == "succeeded"


async def test_a_cancelled_action_ends_cancelled_unless_it_brought_a_result(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    for result, status in ((None, "cancelled"), ({"dropped": 1}, "succeeded")):
        asked = await _invoke(cluster, "flush", FLUSH)
        held = await cluster.controller.take()
        await take_exit(world, asked, "cancel")
        assert (await held.complete(result=result)).status == status


async def test_an_action_that_is_never_claimed_expires_at_its_own_deadline(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    asked = await _invoke(cluster, "flush", FLUSH)
    world.clock.forward(61)
    await reconcile.sweep(world.site)
    ended = await world.operation(asked.operation_id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, await cluster.status()) == ("failed", "never_claimed", "running")
    assert await exits(world, asked) == {"retry"}


async def test_an_action_needs_a_running_instance(world: World) -> None:
    cluster = await Cluster.running(world, **DECLARED)
    await cluster.change("stop")
    await cluster.controller.carry_out()
    with pytest.raises(errors.Conflict, match="flush needs it running") as refused:
        await _invoke(cluster, "flush", FLUSH)
    assert refused.value.fix == f"gpuaas start {(await cluster.instance()).name}"


async def test_an_action_is_not_run_by_another_version_than_the_one_that_declared_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The permission is checked before the transaction; an upgrade may end in between."""
    cluster = await Cluster.running(world, **DECLARED)
    await publish_version(world, "1.1.0", **DECLARED, upgrades_from=["1.0.0"])
    authorise = invoking.authorise

    async def upgraded_before_the_write(call: Any, body: Any) -> invoking.Invocation:
        invocation = await authorise(call, body)
        await cluster.change("upgrade", version="1.1.0")
        await cluster.controller.carry_out()
        return invocation

    handlers = [
        dataclasses.replace(handler, authorise=upgraded_before_the_write)
        if handler.endpoint is actions.ACTION_INVOKE
        else handler
        for handler in routes.handlers
    ]
    monkeypatch.setattr(routes, "handlers", handlers)
    application = http.application(world.site, server.DOMAINS)
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        later = dataclasses.replace(cluster, world=dataclasses.replace(world, http=client))
        with pytest.raises(errors.Conflict, match="was upgraded"):
            await _invoke(later, "flush", FLUSH)
    await _invoke(cluster, "flush", FLUSH)


async def test_a_dry_run_returns_the_controllers_report_of_the_work_at_stake(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    seen = {
        "answered": True,
        "source": "script",
        "running_work": [{"work_id": "job-7", "member_ids": [hand], "gpus": 8}],
        "gpu_hours_at_stake": 12.5,
        "irreversible": ["local scratch"],
    }
    for kind in ("drain", "remove"):
        asking = asyncio.create_task(_dry_run(cluster, {"kind": kind, "member_ids": [hand]}))
        held = await cluster.controller.take(wait_s=30)
        assert (held.operation.kind, held.operation.preview_of) == ("preview", kind)
        assert held.operation.inputs == {"member_ids": [hand]}
        with pytest.raises(errors.ValidationFailed):
            await held.complete()
        await held.complete(preview=seen)
        answer = (await asking).json()
        assert (answer["kind"], answer["preview"]["gpu_hours_at_stake"]) == (kind, 12.5)
        assert answer["preview"]["running_work"][0]["work_id"] == "job-7"
    assert (await cluster.statuses(hand), await cluster.status()) == (["ready"], "running")
    assert await cluster.controller.finds_nothing()


async def test_a_preview_disturbs_no_operation_and_none_disturbs_it(world: World) -> None:
    cluster = await Cluster.running(world)
    first, second = await cluster.hands()
    await cluster.operate("drain", first)
    draining = await cluster.controller.take()
    asking = asyncio.create_task(_dry_run(cluster, {"kind": "drain", "member_ids": [second]}))
    held = await cluster.controller.take(wait_s=30)
    await cluster.operate("drain", second)
    await held.complete(preview={"answered": True})
    assert (await asking).status_code == 202
    assert (await draining.carry_out()).status == "succeeded"


@pytest.mark.parametrize("force", [False, True])
async def test_a_preview_has_the_force_of_its_request_and_returns_the_refusal(world: World, force: bool) -> None:
    cluster = await Cluster.running(world)
    body = {"kind": "remove", "member_ids": [(await cluster.hands())[0]], "force": force, "reason": "tried"}
    asking = asyncio.create_task(_dry_run(cluster, body))
    held = await cluster.controller.take(wait_s=30)
    assert held.operation.force is force
    await held.complete(preview={"answered": True, "refusal": "2 jobs run"})
    assert (await asking).json()["preview"]["refusal"] == "2 jobs run"


async def test_a_controller_that_cannot_answer_leaves_the_preview_unknown(world: World) -> None:
    cluster = await Cluster.running(world)
    body = {"kind": "drain", "member_ids": [(await cluster.hands())[0]]}
    asking = asyncio.create_task(_dry_run(cluster, body))
    await (await cluster.controller.take(wait_s=30)).fail()
    preview = (await asking).json()["preview"]
    assert (preview["answered"], preview["notes"]) == (False, ["The app's controller could not say: it broke"])


@pytest.mark.parametrize("verb", ["stop", "restart", "decommission"])
async def test_without_a_controller_a_preview_reports_that_nothing_is_known(
    world: World, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "ANSWER_WAIT_S", 0.05)
    cluster = await Cluster.running(world, hands=1)
    answer = await world.send(CHANGES[verb], {}, query={"dry_run": "true"}, instance_id=cluster.instance_id)
    planned = answer.json()
    assert (planned["kind"], planned["status"], len(planned["targets"])) == (verb, "accepted", 2)
    assert planned["preview"]["answered"] is False
    assert "No app controller answered" in planned["preview"]["notes"][0]
    assert await cluster.status() == "running"


async def test_a_dry_run_of_an_add_asks_no_controller(world: World) -> None:
    cluster = await Cluster.running(world)
    (machine,) = await cluster.machines(1)
    answer = await _dry_run(cluster, {"kind": "add", "component_key": "hand", "allocation_ids": [machine]})
    assert (answer.status_code, answer.json()["preview"]) == (202, None)
    assert await cluster.controller.finds_nothing()
    assert machine not in await cluster.bound()


async def _dry_run(cluster: Cluster, body: dict[str, Any]) -> httpx.Response:
    return await cluster.world.send(
        instances.MEMBER_OPERATION_CREATE, body, query={"dry_run": "true"}, instance_id=cluster.instance_id
    )
