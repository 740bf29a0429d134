"""Parts of handlers that every app has: work on machines, removals, and what only force allows."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import Operation as Record
from gpuaas_contract.runtime import STEP_REPORT
from gpuaas_sdk.controller import App, Member, Operation, Permanent, members
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.testing import FakeMachines, FakePlatform
from kv_footprint import KV, receipt_of
from msgspec.structs import replace

Working = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture
def instance(platform: FakePlatform) -> Instance:
    return platform.add_instance({"head": ["n1"], "worker": ["n2", "n3"]}, ready=True)


def _worker(platform: FakePlatform, instance: Instance) -> Member:
    return next(member for member in platform.members(instance) if member.node_name == "n2")


async def _end(platform: FakePlatform, working: Working, request: Record) -> Record:
    async with working():
        return await platform.ended(request.operation_id)


async def test_a_failure_on_a_machine_is_in_the_detail_of_the_member(
    app: App, platform: FakePlatform, working: Working, instance: Instance
) -> None:
    async def install(machine: Machine) -> None:
        raise Permanent("the disk is full")

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        work = [member for member in op.members if member.component_key == "worker"]
        await op.each(work, lambda member: members.on_machine(op, member, "install", install))

    ended = await _end(platform, working, platform.request(instance, "stop"))
    detail = platform.member(_worker(platform, instance).member_id).adapter_detail
    assert ended.status == "failed"
    assert detail == {"phase": "install", "machine": "n2 (n2)", "error": "the disk is full"}


def test_work_that_concerns_machines_is_done_once_on_a_machine_with_two_roles(platform: FakePlatform) -> None:
    shared = platform.add_instance({"head": ["n1"], "worker": ["n1", "n2"]}, ready=True)
    chosen = members.one_per_machine(platform.members(shared))
    assert sorted(member.node_name for member in chosen) == ["n1", "n2"]


@pytest.mark.parametrize("force", [False, True])
async def test_what_only_force_allows_is_refused_without_it_and_shown_with_it(
    app: App, platform: FakePlatform, working: Working, instance: Instance, force: bool
) -> None:
    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await op.step("check", members.only_by_force, op, "the queue is unknown", "use force")

    ended = await _end(platform, working, platform.request(instance, "stop", force=force))
    shown = "continuing because force was requested, although the queue is unknown"
    reported = [body.message for name, body in platform.calls if name == STEP_REPORT.name]
    assert (shown in reported) == force
    assert (ended.error is not None and ended.error.failure_class == "refused") != force


async def test_all_silent_machines_are_named_in_one_refusal(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working, instance: Instance
) -> None:
    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await members.require_answers(op, op.members, "start them", consequence="nothing is stopped", patience_s=0.1)

    for name in ("n2", "n3"):
        machines.host(name).reachable = False
    ended = await _end(platform, working, platform.request(instance, "stop"))
    assert ended.error is not None
    assert ended.error.message.startswith("machines n2 (n2), n3 (n3) do not answer, so nothing is stopped")


async def test_a_removal_states_what_it_took_off_and_its_undo_is_refused_once_it_began(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working, instance: Instance
) -> None:
    kv = replace(KV, roles={"worker": KV.roles["server"]})
    intact: list[str] = []

    @app.operation("remove", role="worker")
    async def remove(op: Operation) -> None:
        async def leave(member: Member) -> None:
            members.require_intact(op, member)
            await members.begin_removal(op, member, members.never_ready())
            await op.on(member, lambda machine: members.take_off(op, member, machine, kv))
            with pytest.raises(Permanent, match="has already begun and cannot be undone"):
                members.require_intact(op, member)
            intact.append(member.node_name)
            await op.report(member, status="removed")

        await op.each(op.to_do, leave)

    worker = _worker(platform, instance)
    receipt = replace(receipt_of("worker"), instance_id=instance.instance_id)
    await receipts.write(Machine(machines.host("n2")), kv, receipt)
    ended = await _end(platform, working, platform.request(instance, "remove", [worker], component_key="worker"))
    assert ended.status == "succeeded", ended.error
    assert intact == ["n2"]
    assert "packages (1): kv-server" in ended.targets[0].removed


async def test_what_a_role_that_no_member_has_any_more_left_is_taken_off_with_the_last_one(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working, instance: Instance
) -> None:
    """People ended the removal of the role `server` by force before it was done, and added a worker there later."""
    kv = replace(KV, roles={"worker": KV.roles["server"], "server": KV.roles["proxy"]})

    @app.operation("remove", role="worker")
    async def remove(op: Operation) -> None:
        async def leave(member: Member) -> None:
            await members.begin_removal(op, member, members.never_ready())
            await op.on(member, lambda machine: members.take_off(op, member, machine, kv))
            await op.report(member, status="removed")

        await op.each(op.to_do, leave)

    worker = _worker(platform, instance)
    receipt = replace(receipt_of("server", "worker"), instance_id=instance.instance_id)
    await receipts.write(Machine(machines.host("n2")), kv, receipt)
    ended = await _end(platform, working, platform.request(instance, "remove", [worker], component_key="worker"))
    assert ended.status == "succeeded", ended.error
    assert "packages (1): kv-server" in ended.targets[0].removed
    assert not [item for item in ended.targets[0].left if "another role" in item.why]


async def test_a_silent_machine_is_given_up_with_what_remains_there(
    app: App, platform: FakePlatform, working: Working, instance: Instance
) -> None:
    @app.operation("decommission")
    async def decommission(op: Operation) -> None:
        for member in op.members:
            await members.give_up(op, member, KV)

    await _end(platform, working, platform.request(instance, "decommission", force=True))
    gone = next(member for member in platform.records.members.values() if member.node_name == "n2")
    assert gone.status == "tombstoned"
    assert receipts.path_of(KV, instance.instance_id) in gone.adapter_detail["left_behind"]


async def test_a_member_whose_add_did_not_begin_leaves_without_a_look_at_its_machine(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working, instance: Instance
) -> None:
    @app.operation("remove", role="worker")
    async def remove(op: Operation) -> None:
        await op.each(op.to_do, lambda member: members.leave_untouched(op, member))

    new = platform.records.add_member(instance, "worker", "n4")
    ended = await _end(platform, working, platform.request(instance, "remove", [new], component_key="worker"))
    assert ended.status == "succeeded", ended.error
    assert machines.connected == []
    assert ended.targets[0].removed == ["nothing: the member had not been added to its machine"]
