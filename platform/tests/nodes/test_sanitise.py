"""A provisioner reinstalls released nodes. A node is clean after its word and a new enrolment with its token."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import provisioner_hook
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import capacity, errors, events, node
from gpuaas_platform import server
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes.sanitise.http import HttpProvisioner
from gpuaas_platform.nodes.sanitise.port import Unavailable
from gpuaas_platform.nodes.sanitise.reconcile import Sweep
from platform_world import Node, World, enrol_body
from provisioner_hook import Hook
from tenancy_world import REASON, allocate, other_project, released, shown


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    with provisioner_hook.running(tmp_path) as running:
        yield running


@pytest.fixture
def provisioner(hook: Hook) -> HttpProvisioner:
    return HttpProvisioner(hook.url, hook.token_file)


@pytest.fixture
def settings(settings: Settings, hook: Hook) -> Settings:
    """Of a platform with a provisioner, which reinstalls nodes 600 s after their release."""
    return dataclasses.replace(settings, sanitise_url=hook.url, sanitise_token_file=hook.token_file)


@pytest.fixture
def sweep(world: World, provisioner: HttpProvisioner) -> Sweep:
    return Sweep(world.site, provisioner)


async def sanitising(world: World, sweep: Sweep, hook: Hook) -> Node:
    """A node that the provisioner was asked to reinstall."""
    machine = await released(world)
    world.clock.forward(600)
    await sweep.sweep()
    assert len(hook.orders) == 1
    return machine


async def enrol(world: World, hook: Hook, key: Ed25519PrivateKey | None = None) -> None:
    """Enrol the machine with the token of the last order."""
    order = hook.orders[-1]
    await world.call(node.ENROL, enrol_body(order.token, order.name, key or Ed25519PrivateKey.generate()), token="")


async def test_the_provisioner_and_a_new_enrolment_make_a_node_clean(world: World, sweep: Sweep, hook: Hook) -> None:
    await sanitising(world, sweep, hook)
    rival = await other_project(world)
    assert (await shown(world)).tenancy == "sanitising"
    with pytest.raises(errors.NoCapacity, match="1 being sanitised"):
        await allocate(world, rival)
    hook.answer("done")
    await sweep.sweep()
    assert (await shown(world)).tenancy == "sanitising", "the machine has not enrolled again"
    await enrol(world, hook)
    await sweep.sweep()
    clean = await shown(world)
    assert (clean.tenancy, clean.sanitised_by, clean.used_by_project_id, clean.sanitising) == (
        "clean",
        f"provisioner:{hook.url.split('/')[2]}",
        "",
        None,
    )
    assert (await allocate(world, rival)).node_name == "n1"
    recorded = (await world.call(events.PLATFORM_EVENT_LIST, query={"limit": 500})).items
    changes = [event.payload for event in recorded if event.type == "capacity.node.changed"]
    assert [(change["tenancy"], change["reason"]) for change in changes[1:]] == [
        ("sanitising", "sanitising: the node's last allocation was released"),
        ("sanitising", "the provisioner has reinstalled it"),
        ("sanitising", "the node enrolled again with a new key"),
        ("clean", f"sanitised by {clean.sanitised_by}"),
    ]


async def test_an_enrolment_before_the_provisioner_is_done_waits_for_it(world: World, sweep: Sweep, hook: Hook) -> None:
    await sanitising(world, sweep, hook)
    await enrol(world, hook)
    await sweep.sweep()
    assert (await shown(world)).tenancy == "sanitising"
    hook.answer("done")
    await sweep.sweep()
    assert (await shown(world)).tenancy == "clean"


async def test_the_old_machine_loses_its_identity_and_cannot_come_back(world: World, sweep: Sweep, hook: Hook) -> None:
    machine = await released(world)
    operators = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    world.clock.forward(600)
    await sweep.sweep()
    with pytest.raises(errors.TokenInvalid):
        await world.call(node.TASK_NEXT, token=machine.token)
    with pytest.raises(errors.CredentialsInvalid):
        await world.node_login(machine)
    with pytest.raises(errors.CredentialsInvalid, match="only a token of its provisioner"):
        await world.call(node.ENROL, enrol_body(operators.token, "n1", Ed25519PrivateKey.generate()), token="")
    with pytest.raises(errors.CredentialsInvalid, match="was not reinstalled"):
        await enrol(world, hook, machine.key)


async def test_the_same_project_can_take_a_node_until_it_is_reinstalled(world: World, sweep: Sweep, hook: Hook) -> None:
    await released(world)
    world.clock.forward(590)
    await sweep.sweep()
    await allocate(world, world.project_id)
    world.clock.forward(600)
    await sweep.sweep()
    assert hook.orders == []


async def test_a_cordoned_node_is_left_as_it_is_for_the_operator_who_checks_it(
    world: World, sweep: Sweep, hook: Hook
) -> None:
    await released(world)
    await world.call(capacity.NODE_CORDON, REASON, node_id="n1")
    world.clock.forward(600)
    await sweep.sweep()
    assert hook.orders == []
    await world.call(capacity.NODE_UNCORDON, REASON, node_id="n1")
    await sweep.sweep()
    assert [order.name for order in hook.orders] == ["n1"]


async def test_a_failure_of_the_provisioner_quarantines_the_node(world: World, sweep: Sweep, hook: Hook) -> None:
    await sanitising(world, sweep, hook)
    hook.answer("failed", "the power controller does not answer")
    await sweep.sweep()
    failed = await shown(world)
    assert failed.tenancy == "quarantined"
    assert failed.tenancy_reason == "the provisioner failed: the power controller does not answer"
    with pytest.raises(errors.NoCapacity, match="1 quarantined"):
        await allocate(world, world.project_id)
    with pytest.raises(errors.CredentialsInvalid, match="attempt to sanitise the node that has ended"):
        await enrol(world, hook)


async def test_a_copy_of_the_old_key_does_not_pass_as_a_new_one_after_a_failed_attempt(
    world: World, sweep: Sweep, hook: Hook
) -> None:
    machine = await sanitising(world, sweep, hook)
    hook.answer("failed")
    await sweep.sweep()
    again = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    await world.call(node.ENROL, enrol_body(again.token, "n1", machine.key), token="")
    with pytest.raises(errors.Conflict, match="may have a copy"):
        await world.call(capacity.NODE_MARK_SANITISED, REASON, node_id="n1")


async def test_a_machine_that_does_not_enrol_again_is_quarantined_in_the_end(
    world: World, sweep: Sweep, hook: Hook
) -> None:
    await sanitising(world, sweep, hook)
    hook.answer("done")
    await sweep.sweep()
    world.clock.forward(3600)
    await sweep.sweep()
    assert (await shown(world)).tenancy_reason == (
        "not sanitised in time: the machine is reinstalled but has not enrolled again"
    )


async def test_an_operator_starts_another_attempt_with_a_new_id(world: World, sweep: Sweep, hook: Hook) -> None:
    await sanitising(world, sweep, hook)
    hook.answer("failed")
    await sweep.sweep()
    begun = await world.call(capacity.NODE_SANITISE, REASON, node_id="n1")
    assert begun.sanitising is not None
    assert begun.sanitising.reason == REASON["reason"]
    with pytest.raises(errors.Conflict, match="is being sanitised"):
        await world.call(capacity.NODE_SANITISE, REASON, node_id="n1")
    await sweep.sweep()
    assert len({order.attempt_id for order in hook.orders}) == 2


async def test_an_order_that_the_provisioner_lost_is_sent_again_with_the_same_id(
    world: World, sweep: Sweep, hook: Hook
) -> None:
    await sanitising(world, sweep, hook)
    hook.answers.clear()
    await sweep.sweep()
    first, second = hook.orders
    assert first.attempt_id == second.attempt_id
    assert first.token != second.token
    hook.answer("done")
    key = Ed25519PrivateKey.generate()
    await world.call(node.ENROL, enrol_body(first.token, "n1", key), token="")
    await sweep.sweep()
    assert (await shown(world)).tenancy == "clean", "each token of the attempt works"


async def test_a_provisioner_that_does_not_answer_is_asked_again_until_the_attempt_ends(
    world: World, sweep: Sweep, hook: Hook
) -> None:
    await released(world)
    world.clock.forward(600)
    hook.token_file.write_text("a wrong token")
    await sweep.sweep()
    assert ((await shown(world)).tenancy, hook.orders) == ("sanitising", [])
    world.clock.forward(3600)
    await sweep.sweep()
    assert "answered 401" in (await shown(world)).tenancy_reason


async def test_the_hook_gets_no_order_without_its_token(hook: Hook, provisioner: HttpProvisioner) -> None:
    assert (await provisioner.state("sanitise_1")).state == "unknown"
    hook.token_file.write_text("a wrong token")
    with pytest.raises(Unavailable, match="401"):
        await provisioner.state("sanitise_1")


@pytest.mark.parametrize("url", ["http://maas.example/hook", "ftp://127.0.0.1/", "maas"])
def test_a_provisioner_without_encryption_is_refused(settings: Settings, url: str, tmp_path: Path) -> None:
    changed = dataclasses.replace(settings, sanitise_url=url, sanitise_token_file=tmp_path / "token")
    with pytest.raises(server.CannotStart, match="not an https URL"):
        server.open_provisioner(changed)
