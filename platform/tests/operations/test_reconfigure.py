"""Inputs of a running instance: which can be changed, what a change leaves behind, and the way back."""

import asyncio
from typing import Any

import pytest
from gpuaas_contract import catalog, errors, instances, operations
from gpuaas_platform.kit import hub
from gpuaas_platform.operations import previews
from platform_world import World
from scripted_controller import CHANGEABLE_FORM, Cluster, evidence, publish_version, take_exit


async def test_a_reconfigure_changes_the_named_inputs_and_keeps_the_others(world: World) -> None:
    cluster = await Cluster.running(world)
    before = (await cluster.instance()).inputs
    operation = await cluster.change("reconfigure", inputs={"color": "green"})
    after = {**before, "color": "green"}
    assert (operation.inputs_before, operation.inputs) == (before, after)
    assert (await cluster.instance()).inputs == before
    assert (await cluster.controller.carry_out()).status == "succeeded"
    instance = await cluster.instance()
    assert (instance.status, instance.inputs, instance.inputs_before) == ("running", after, before)


async def test_the_inputs_before_return_by_one_request_and_again(world: World) -> None:
    cluster = await Cluster.running(world)
    with pytest.raises(errors.Conflict, match="was not reconfigured"):
        await cluster.change("reconfigure", previous=True)
    for request, color in (
        ({"inputs": {"color": "green"}}, "green"),
        ({"previous": True}, None),
        ({"previous": True}, "green"),
    ):
        await cluster.change("reconfigure", **request)
        await cluster.controller.carry_out()
        assert (await cluster.instance()).inputs.get("color") == color


async def test_null_returns_an_input_to_its_default(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.change("reconfigure", inputs={"speed": 3, "color": "red"})
    await cluster.controller.carry_out()
    operation = await cluster.change("reconfigure", inputs={"speed": None})
    assert "speed" not in operation.inputs
    assert operation.inputs["color"] == "red"


@pytest.mark.parametrize(
    ("request_body", "error", "field"),
    [
        ({"inputs": {"head_allocation": "elsewhere"}}, errors.ValidationFailed, "inputs.head_allocation"),
        ({"inputs": {"wheels": 4}}, errors.ValidationFailed, "inputs.wheels"),
        ({"inputs": {"speed": 10_001}}, errors.ValidationFailed, "speed"),
        ({"inputs": {"speed": 1}, "previous": True}, errors.ValidationFailed, "previous"),
        ({}, errors.Conflict, None),
        ({"inputs": {"speed": None}}, errors.Conflict, None),
    ],
)
async def test_what_cannot_be_changed_is_refused_and_nothing_starts(
    world: World, request_body: dict[str, Any], error: type[errors.ApiError], field: str | None
) -> None:
    cluster = await Cluster.running(world)
    with pytest.raises(error) as refused:
        await cluster.change("reconfigure", **request_body)
    details = refused.value.details or {}
    assert details.get("field", next(iter(details.get("fields", ())), None)) == field
    assert await cluster.status() == "running"


async def test_true_in_place_of_one_is_a_change(world: World) -> None:
    form = {**CHANGEABLE_FORM, "properties": {**CHANGEABLE_FORM["properties"], "speed": {catalog.CHANGEABLE: True}}}
    cluster = await Cluster.running(world, deploy_form=form)
    await cluster.change("reconfigure", inputs={"speed": 1})
    await cluster.controller.carry_out()
    await cluster.change("reconfigure", inputs={"speed": True})
    await cluster.controller.carry_out()
    assert (await cluster.instance()).inputs["speed"] is True


@pytest.mark.parametrize("end", ["fail", "cancel"])
async def test_a_reconfigure_that_does_not_succeed_keeps_the_inputs(world: World, end: str) -> None:
    cluster = await Cluster.running(world)
    before = (await cluster.instance()).inputs
    operation = await cluster.change("reconfigure", inputs={"color": "green"})
    held = await cluster.controller.take()
    if end == "fail":
        await held.fail()
    else:
        await take_exit(world, operation, "cancel")
        await held.complete(undone=True)
    instance = await cluster.instance()
    assert (instance.inputs, instance.inputs_before) == (before, {})
    assert instance.status == ("degraded" if end == "fail" else "running")


async def test_an_upgrade_forgets_the_inputs_before_the_reconfigure(world: World) -> None:
    """The new version may not have the inputs of the version before."""
    cluster = await Cluster.running(world)
    await cluster.change("reconfigure", inputs={"color": "green"})
    await cluster.controller.carry_out()
    await publish_version(world, "1.1.0", upgrades_from=["1.0.*"])
    await cluster.change("upgrade", version="1.1.0")
    await cluster.controller.carry_out()
    instance = await cluster.instance()
    assert (instance.inputs["color"], instance.inputs_before) == ("green", {})


@pytest.mark.parametrize("verb", ["reconfigure", "upgrade", "restart"])
async def test_a_member_that_was_drained_before_stays_drained(world: World, verb: str) -> None:
    cluster = await Cluster.running(world)
    await publish_version(world, "1.1.0", upgrades_from=["1.0.*"])
    hand = (await cluster.hands())[0]
    await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    bodies: dict[str, Any] = {"reconfigure": {"inputs": {"color": "green"}}, "upgrade": {"version": "1.1.0"}}
    await cluster.change(verb, **bodies.get(verb, {}))
    held = await cluster.controller.take()
    others = [member_id for member_id in held.member_ids if member_id != hand]
    for member_id in others:
        await held.report(member_id, "draining", "drained", "ready", evidence=evidence(world.clock()))
    assert (await held.complete()).status == "succeeded"
    assert (await cluster.members())[hand].status == "drained"


@pytest.mark.parametrize("is_undone", [False, True])
async def test_a_member_that_had_failed_before_does_not_stop_a_reconfigure(world: World, is_undone: bool) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("drain", hand)
    failing = await cluster.controller.take()
    await failing.report(hand, "failed")
    await failing.complete()
    operation = await cluster.change("reconfigure", inputs={"color": "green"})
    held = await cluster.controller.take()
    if is_undone:
        await take_exit(world, operation, "cancel")
    ended = await held.complete(undone=is_undone)
    assert ended.status == ("cancelled" if is_undone else "succeeded")
    assert (await cluster.members())[hand].status == "failed"
    assert (await cluster.instance()).inputs.get("color") == (None if is_undone else "green")


async def test_a_hold_keeps_a_drained_member_out_of_work_through_a_reconfigure(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    await cluster.hold(hand, "no_work")
    await cluster.change("reconfigure", inputs={"color": "green"})
    held = await cluster.controller.take()
    with pytest.raises(errors.MemberHeld):
        await held.report(hand, "ready")
    assert (await held.complete()).status == "succeeded"


async def test_a_dry_run_sends_the_wanted_inputs_to_the_controller_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "ANSWER_WAIT_S", hub.WAIT_MAX_S)
    cluster = await Cluster.running(world)
    before = (await cluster.instance()).inputs
    request = world.call(
        instances.RECONFIGURE,
        {"inputs": {"color": "green"}},
        query={"dry_run": "true"},
        instance_id=cluster.instance_id,
    )
    asking = asyncio.create_task(request)
    held = await cluster.controller.take(wait_s=30)
    assert (held.operation.preview_of, held.operation.inputs["inputs"]) == ("reconfigure", {**before, "color": "green"})
    change = {"subject": "color", "before": "none", "after": "green", "effect": "restarts the brush"}
    await held.complete(preview={"answered": True, "source": "script", "changes": [change]})
    planned = await asking
    assert planned.preview is not None
    assert planned.preview.changes == [operations.PlannedChange(**change)]
    assert (await cluster.status(), (await cluster.instance()).inputs) == ("running", before)
