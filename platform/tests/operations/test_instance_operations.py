"""Operations on the whole instance: what they leave behind when they succeed, fail or are cancelled."""

from typing import Any

import pytest
from gpuaas_contract import errors, instances, operations
from platform_world import MANIFEST, World
from scripted_controller import Cluster, evidence, exits, publish_version, take_exit

NEXT = {"upgrades_from": ["1.0.*"], "rollback_to": ["1.0.0"]}


async def test_an_instance_is_stopped_started_restarted_and_torn_down(world: World) -> None:
    cluster = await Cluster.running(world)
    whole = await cluster.bound()
    for verb, during, after, members in (
        ("stop", "stopping", "stopped", {"drained"}),
        ("start", "starting", "running", {"ready"}),
        ("restart", "starting", "running", {"ready"}),
    ):
        operation = await cluster.change(verb, reason="maintenance")
        assert (len(operation.targets), operation.reason) == (3, "maintenance")
        assert await cluster.status() == during
        assert (await cluster.controller.carry_out()).status == "succeeded"
        listed = await cluster.members()
        assert (await cluster.status(), {member.status for member in listed.values()}) == (after, members)
        assert await cluster.bound() == whole
    await cluster.change("decommission")
    assert await cluster.status() == "deleting"
    await cluster.controller.carry_out()
    assert (await cluster.status(), await cluster.bound()) == ("deleted", set())
    kinds = [event["kind"] for event in await cluster.event_payloads("apps.instance.running")]
    assert kinds == ["deploy", "start", "restart"]


async def test_an_instance_operation_needs_a_time_that_makes_sense(world: World) -> None:
    cluster = await Cluster.requested(world)
    for verb in ("stop", "start", "restart", "decommission"):
        with pytest.raises((errors.Conflict, errors.OperationInProgress)):
            await cluster.change(verb)
    await cluster.controller.carry_out()
    with pytest.raises(errors.Conflict, match="is running; start needs it failed or stopped"):
        await cluster.change("start")
    await cluster.change("stop")
    await cluster.controller.carry_out()
    for verb in ("stop", "restart"):
        with pytest.raises(errors.Conflict, match="is stopped") as refused:
            await cluster.change(verb)
        assert refused.value.fix == f"gpuaas start {(await cluster.instance()).name}"
    with pytest.raises(errors.Conflict, match="can be changed only while it runs") as refused:
        await cluster.operate("drain", (await cluster.hands())[0])
    assert refused.value.fix == f"gpuaas start {(await cluster.instance()).name}"


async def test_a_refused_request_for_a_member_names_the_command_that_helps(world: World) -> None:
    cluster = await Cluster.running(world)
    (first, *_), name = await cluster.hands(), (await cluster.instance()).name
    member = await cluster.member(first)
    with pytest.raises(errors.NotFound) as unknown:
        await cluster.operate("drain", "gpu-99")
    assert unknown.value.fix == f"gpuaas get members {name}"
    with pytest.raises(errors.Conflict) as taken:
        await cluster.operate("replace", first, allocation_ids=[member.allocation_id])
    assert taken.value.message == f"{member.node_name} ({member.allocation_id}) already has the hand {first}."
    assert "gpuaas get allocations" in taken.value.fix


async def test_a_machine_of_another_instance_is_refused_with_the_names_of_both(world: World) -> None:
    cluster = await Cluster.running(world)
    member, used_by = await cluster.member((await cluster.hands())[0]), await cluster.instance()
    with pytest.raises(errors.Conflict) as taken:
        await world.deploy("two", hand_allocations=[member.allocation_id])
    place = f"{member.node_name} ({member.allocation_id})"
    assert taken.value.message == f"{place} is used by the instance {used_by.name} ({used_by.instance_id})."
    assert taken.value.fix == "Choose a machine that no instance uses: gpuaas get allocations"
    assert taken.value.details == {"instance_ids": [used_by.instance_id]}


async def test_what_the_app_does_not_declare_cannot_be_asked_for(world: World) -> None:
    cluster = await Cluster.running(world, instance_operations=["stop"], deploy_form=MANIFEST["deploy_form"])
    for verb in ("start", "restart", "rollback", "reconfigure"):
        with pytest.raises(errors.Conflict, match=f"does not offer {verb}") as refused:
            await cluster.change(verb)
        assert refused.value.details == {"operations": ["stop"]}


@pytest.mark.parametrize(
    ("verb", "undoing", "status"),
    [("stop", ["ready"], "running"), ("restart", ["ready"], "running"), ("start", ["drained"], "stopped")],
)
async def test_a_cancelled_change_leaves_the_instance_as_it_was(
    world: World, verb: str, undoing: list[str], status: str
) -> None:
    cluster = await Cluster.running(world)
    if verb == "start":
        await cluster.change("stop")
        await cluster.controller.carry_out()
    operation = await cluster.change(verb)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "ready" if verb == "start" else "draining")
    assert (await take_exit(world, operation, "cancel")).status == "cancelling"
    await held.report(held.member_ids[0], *undoing)
    ended = await held.complete(undone=True)
    assert (ended.status, ended.exits_taken[0].too_late) == ("cancelled", False)
    assert await cluster.status() == status
    assert await _last_operation(cluster) == ("true", "cancelled")


@pytest.mark.parametrize("verb", ["upgrade", "rollback", "restart", "reconfigure"])
async def test_a_change_that_was_done_before_its_controller_saw_the_cancel_is_done(world: World, verb: str) -> None:
    cluster = await _ready_for(world, verb)
    operation = await _ask(cluster, verb)
    held = await cluster.controller.take()
    await take_exit(world, operation, "cancel")
    await held.bring(held.member_ids)
    ended = await held.complete()
    assert (ended.status, {target.outcome for target in ended.targets}) == ("succeeded", {"succeeded"})
    assert [(taken.name, taken.too_late) for taken in ended.exits_taken] == [("cancel", True)]
    instance = await cluster.instance()
    assert (instance.status, instance.app_version) == ("running", operation.to_version or instance.app_version)
    assert await _last_operation(cluster) == ("true", "succeeded")
    message = next(condition for condition in instance.conditions if condition.type == "LastOperationSucceeded").message
    assert message == f"{verb} succeeded; the cancel came too late; operations on members show in the members"


async def test_a_decommission_cancelled_before_its_claim_leaves_the_instance_as_it_was(world: World) -> None:
    cluster = await Cluster.running(world)
    operation = await cluster.change("decommission")
    assert await cluster.status() == "deleting"
    assert (await take_exit(world, operation, "cancel")).status == "cancelled"
    assert (await cluster.status(), (await cluster.instance()).baseline) == ("running", "up")
    assert await cluster.bound() == await cluster.occupied()


async def test_a_cancelled_deploy_leaves_nothing_but_an_instance_to_tear_down(world: World) -> None:
    cluster = await Cluster.requested(world)
    deploy = (await cluster.instance()).last_operation_id
    await take_exit(world, await world.operation(deploy), "cancel")
    assert (await cluster.status(), await cluster.bound()) == ("failed", set())
    assert await _last_operation(cluster) == ("false", "cancelled")
    await cluster.change("decommission")
    assert (await cluster.controller.carry_out()).status == "succeeded"
    assert await cluster.status() == "deleted"


@pytest.mark.parametrize("verb", ["stop", "start", "restart", "decommission", "upgrade", "rollback", "reconfigure"])
async def test_a_failed_change_is_reported_and_can_be_retried(world: World, verb: str) -> None:
    cluster = await _ready_for(world, verb)
    operation = await _ask(cluster, verb)
    held = await cluster.controller.take()
    failed = await held.fail("needs_operator", "no_answer")
    assert failed.error is not None
    assert (failed.status, failed.error.retryable) == ("failed", False)
    survives = verb in ("upgrade", "rollback", "reconfigure")
    assert await cluster.status() == ("degraded" if survives else "failed")
    assert await _last_operation(cluster) == ("false", "no_answer")
    undoable = {"compensate"} if verb != "decommission" else set()
    assert await exits(world, operation) == {"retry", "tombstone", "force_complete"} | undoable
    await take_exit(world, operation, "retry")
    assert await cluster.status() == _DURING[verb]
    assert (await cluster.controller.carry_out()).status == "succeeded"
    assert await cluster.status() == _AFTER[verb]
    assert await _last_operation(cluster) == ("true", "succeeded")
    assert await cluster.bound() == await cluster.occupied()


_DURING = {
    "stop": "stopping",
    "start": "starting",
    "restart": "starting",
    "decommission": "deleting",
    "upgrade": "upgrading",
    "rollback": "rolling_back",
    "reconfigure": "reconfiguring",
}
_AFTER = {**dict.fromkeys(_DURING, "running"), "stop": "stopped", "decommission": "deleted"}


@pytest.mark.parametrize(("verb", "undone"), [("stop", "ready"), ("start", "drained"), ("upgrade", "ready")])
async def test_a_failed_change_is_undone_member_by_member(world: World, verb: str, undone: str) -> None:
    cluster = await _ready_for(world, verb)
    operation = await _ask(cluster, verb)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], *(["ready"] if verb == "start" else ["draining", "drained"]))
    await held.fail()
    await take_exit(world, operation, "compensate")
    undoing = await cluster.controller.take()
    assert undoing.operation.compensating
    with pytest.raises(errors.Conflict, match=f"each must be {undone}"):
        await undoing.complete()
    await undoing.report(undoing.member_ids[0], undone)
    ended = await undoing.complete()
    assert (ended.status, {target.outcome for target in ended.targets}) == ("cancelled", {"cancelled"})
    assert (await cluster.instance()).app_version == "1.0.0"
    assert set(await cluster.statuses(*undoing.member_ids)) == {undone}


async def test_a_failed_stop_or_start_leaves_a_way_back_without_its_exits(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.change("stop")
    await (await cluster.controller.take()).fail()
    assert await cluster.status() == "failed"
    await cluster.change("start")
    assert (await cluster.controller.carry_out()).status == "succeeded"
    assert await cluster.status() == "running"
    await cluster.change("stop")
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "failed")
    await held.bring(held.member_ids[1:])
    ended = await held.complete()
    assert [target.outcome for target in ended.targets] == ["failed", "succeeded", "succeeded"]
    await cluster.change("decommission", force=True, reason="it is broken")
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_an_upgrade_changes_version_and_inputs_and_a_rollback_goes_back_once(world: World) -> None:
    cluster = await Cluster.running(world)
    await publish_version(world, "1.1.0", **NEXT)
    before = await cluster.instance()
    with pytest.raises(errors.Conflict, match="no version to return to"):
        await cluster.change("rollback")
    inputs = {**before.inputs, "color": "green"}
    upgrade = await cluster.change("upgrade", version="1.1.0", inputs=inputs)
    assert (upgrade.from_version, upgrade.to_version) == ("1.0.0", "1.1.0")
    during = await cluster.instance()
    assert (during.status, during.app_version, during.inputs) == ("upgrading", "1.0.0", before.inputs)
    await cluster.controller.carry_out()
    after = await cluster.instance()
    assert (after.status, after.app_version, after.previous_version) == ("running", "1.1.0", "1.0.0")
    assert after.inputs == inputs
    rollback = await cluster.change("rollback")
    assert (rollback.from_version, rollback.to_version) == ("1.1.0", "1.0.0")
    await cluster.controller.carry_out()
    back = await cluster.instance()
    assert (back.status, back.app_version, back.previous_version) == ("running", "1.0.0", "")
    assert (rollback.inputs, back.inputs) == (before.inputs, before.inputs)
    with pytest.raises(errors.Conflict, match="no version to return to"):
        await cluster.change("rollback")


async def test_an_upgrade_is_given_secrets_for_what_the_new_version_declares(world: World) -> None:
    cluster = await Cluster.running(world, secret_purposes=[])
    await publish_version(world, "1.1.0", **NEXT)
    await cluster.change("restart")
    restart = await cluster.controller.take()
    with pytest.raises(errors.PurposeUndeclared):
        await restart.issue()
    await restart.carry_out()
    await cluster.change("upgrade", version="1.1.0")
    assert (await (await cluster.controller.take()).issue()).secret.purpose == "role_join"


async def test_an_upgrade_needs_a_version_that_takes_it_and_inputs_that_fit(world: World) -> None:
    cluster = await Cluster.running(world)
    await publish_version(world, "1.1.0", **NEXT)
    await publish_version(world, "2.0.0", upgrades_from=["1.1.*"])
    with pytest.raises(errors.Conflict, match="cannot be reached from"):
        await cluster.change("upgrade", version="2.0.0")
    with pytest.raises(errors.NotFound, match="There is no toy 3"):
        await cluster.change("upgrade", version="3.0.0")
    with pytest.raises(errors.ValidationFailed):
        await cluster.change("upgrade", version="1.1.0", inputs={"color": "blue"})
    assert await cluster.controller.finds_nothing()


async def test_a_failed_upgrade_keeps_the_version_and_the_next_one_clears_the_condition(world: World) -> None:
    cluster = await Cluster.running(world)
    await publish_version(world, "1.1.0", **NEXT)
    failed = await cluster.change("upgrade", version="1.1.0")
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "draining", "drained")
    await held.fail()
    instance = await cluster.instance()
    assert (instance.status, instance.baseline, instance.app_version) == ("degraded", "up", "1.0.0")
    assert instance.status_reason == "LastOperationSucceeded: it broke"
    assert await exits(world, failed) == {"retry", "compensate", "force_complete", "tombstone"}
    await cluster.change("upgrade", version="1.1.0")
    await cluster.controller.carry_out()
    assert (await cluster.status(), (await cluster.instance()).app_version) == ("running", "1.1.0")


async def test_a_decommission_that_fails_half_way_is_finished_by_the_next_one(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.change("decommission")
    held = await cluster.controller.take()
    first, second, third = held.member_ids
    await held.report(first, "removing", "removed", evidence=evidence(world.clock()))
    await held.report(second, "removing", evidence=evidence(world.clock()))
    await held.fail("lost")
    assert await cluster.statuses(first, second, third) == ["removed", "failed", "ready"]
    assert await cluster.bound() == await cluster.occupied()
    again = await cluster.change("decommission")
    assert [target.member_id for target in again.targets] == [second, third]
    await cluster.controller.carry_out()
    assert (await cluster.status(), await cluster.bound()) == ("deleted", set())


async def test_a_deleted_instance_takes_nothing_more_and_frees_its_name(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.change("decommission")
    await cluster.controller.carry_out()
    for verb in ("stop", "start", "restart", "decommission"):
        with pytest.raises(errors.Conflict, match="is deleted"):
            await cluster.change(verb)
    machines = await cluster.machines(2)
    inputs = {"head_allocation": machines[0], "hand_allocations": machines[1:]}
    body = instances.DeployInstance(name="one", app_slug="toy", topology="pair", inputs=inputs)
    assert (await world.call(instances.INSTANCE_CREATE, body)).instance.name == "one"


async def _ready_for(world: World, verb: str) -> Cluster:
    """A cluster in a state from which this can be asked for."""
    cluster = await Cluster.running(world, hands=1)
    if verb == "start":
        await cluster.change("stop")
        await cluster.controller.carry_out()
    if verb in ("upgrade", "rollback"):
        await publish_version(world, "1.1.0", **NEXT)
    if verb == "rollback":
        await cluster.change("upgrade", version="1.1.0")
        await cluster.controller.carry_out()
    return cluster


async def _ask(cluster: Cluster, verb: str) -> operations.Operation:
    requests: dict[str, Any] = {"upgrade": {"version": "1.1.0"}, "reconfigure": {"inputs": {"color": "green"}}}
    return await cluster.change(verb, **requests.get(verb, {}))


async def _last_operation(cluster: Cluster) -> tuple[str, str]:
    """Status and reason of the instance's condition about its last operation."""
    conditions = {condition.type: condition for condition in (await cluster.instance()).conditions}
    return conditions["LastOperationSucceeded"].status, conditions["LastOperationSucceeded"].reason
