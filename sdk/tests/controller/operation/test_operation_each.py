"""Operations on many members: one failure does not stop the others, unless there is a stop rule."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from gpuaas_contract.runtime import MEMBER_REPORT
from gpuaas_sdk.controller import App, Evidence, Member, Operation, Permanent
from gpuaas_sdk.testing import FakeMachines, FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


async def nothing() -> None:
    return None


async def join(op: Operation, member: Member) -> None:
    await op.report(member, status="provisioning")
    await op.step("join", nothing, member=member)
    await op.report(member, status="joining")
    await op.report(member, status="ready")


async def test_members_after_enough_failures_are_not_begun(app: App, platform: FakePlatform, working: Working) -> None:
    begun: list[str] = []

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        async def one(member: Member) -> None:
            begun.append(member.node_name)
            await op.report(member, status="provisioning")
            raise Permanent("no GPU answers")

        await op.each(op.to_do, one)

    instance = platform.add_instance({"worker": [f"n{number}" for number in range(1, 7)]})
    request = platform.request(instance, "add", component_key="worker", stop_after_failures=2)
    async with working():
        ended = await platform.ended(request.operation_id)
    assert begun == ["n1", "n2"]
    assert [target.outcome for target in ended.targets] == ["failed"] * 2 + ["skipped"] * 4
    assert ended.error is not None
    assert ended.error.code == "members_failed"
    assert [member.node_name for member in platform.members(instance)] == ["n1", "n2"]


async def test_a_member_that_is_skipped_while_it_begins_is_no_bug_of_the_controller(
    app: App, platform: FakePlatform, working: Working
) -> None:
    skipped = asyncio.Event()

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        async def one(member: Member) -> None:
            if member.node_name == "n1":
                raise Permanent("no GPU answers")
            await skipped.wait()
            await join(op, member)

        await op.each(op.to_do, one, at_once=2)

    instance = platform.add_instance({"worker": ["n1", "n2"]})
    request = platform.request(instance, "add", component_key="worker", stop_after_failures=1)
    async with working():
        await platform.until(request.operation_id, lambda now: now.targets[1].outcome == "skipped")
        skipped.set()
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert ended.error.code == "members_failed"
    assert "1 of 2 members failed: n1: no GPU answers" in ended.error.message


async def test_without_a_stop_rule_an_illegal_report_fails_with_its_own_error_and_no_further_read(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        async def one(member: Member) -> None:
            await op.report(member, status="drained")

        await op.each(op.to_do, one)

    instance = platform.add_instance({"worker": ["n1"]})
    request = platform.request(instance, "add", component_key="worker")
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert "cannot go from requested to drained" in ended.error.message
    assert "apps.operation.get" not in [name for name, _ in platform.calls]


async def test_a_retry_goes_on_with_the_members_that_failed(app: App, platform: FakePlatform, working: Working) -> None:
    seen: list[tuple[int, list[str]]] = []

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        seen.append((op.attempt, [member.node_name for member in op.to_do]))

        async def one(member: Member) -> None:
            if (op.attempt, member.node_name) == (1, "n2"):
                raise Permanent("no GPU answers")
            await join(op, member)

        await op.each(op.to_do, one)

    instance = platform.add_instance({"worker": ["n1", "n2", "n3"]})
    operation_id = platform.request(instance, "add", component_key="worker").operation_id
    async with working():
        assert (await platform.ended(operation_id)).status == "failed"
        platform.retry(operation_id)
        ended = await platform.ended(operation_id)
    assert ended.status == "succeeded", ended.error
    assert seen == [(1, ["n1", "n2", "n3"]), (2, ["n2"])]


async def test_a_replaced_member_keeps_its_id_and_moves_to_its_new_machine(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    @app.operation("replace", role="worker")
    async def replace(op: Operation) -> None:
        member = op.targets[0]
        assert op.replacement(member) == "alloc_n9"
        seen = Evidence(state="idle", source="the scheduler", observed_at=platform.records.clock())
        await op.report(member, status="removing", evidence=seen)
        await (await op.machine(member)).run("systemctl", "stop", "demo")
        moved = await op.report(member, status="provisioning")
        await (await op.machine(moved)).run("systemctl", "start", "demo")
        await op.report(moved, status="joining")
        await op.report(moved, status="ready")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    before = platform.members(instance)[0]
    request = platform.request(instance, "replace", [before], component_key="worker", replacements=["n9"])
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.status == "succeeded", ended.error
    after = platform.members(instance)[0]
    assert (after.member_id, after.node_name) == (before.member_id, "n9")
    assert ended.targets[0].previous_allocation_id == "alloc_n1"
    assert ("systemctl", "stop", "demo") in machines.host("n1").ran
    assert ("systemctl", "start", "demo") in machines.host("n9").ran


async def test_a_handler_prepares_the_new_machine_of_a_member_that_still_works_on_its_old_one(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    seen: list[tuple[str, str, str]] = []
    has_moved: list[bool] = []

    @app.operation("replace", role="worker")
    async def replace(op: Operation) -> None:
        member = op.targets[0]
        has_moved.append(op.has_moved(member))
        spare = await op.at_replacement(member)
        await op.on(spare, lambda machine: machine.run("systemctl", "start", "demo"))
        seen.append((spare.allocation_id, spare.address, op.now(member).node_name))
        idle = Evidence(state="idle", source="the scheduler", observed_at=platform.records.clock())
        await op.report(member, status="removing", evidence=idle)
        for status in ("provisioning", "joining", "ready"):
            await op.report(member, status=status)
        has_moved.append(op.has_moved(member))
        seen.append((*_place(await op.at_replacement(member)), op.now(member).node_name))

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    members = platform.members(instance)
    request = platform.request(instance, "replace", members, component_key="worker", replacements=["n9"])
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.status == "succeeded", ended.error
    assert seen == [("alloc_n9", "n9", "n1"), ("alloc_n9", "n9", "n9")]
    assert has_moved == [False, True]
    assert ("systemctl", "start", "demo") in machines.host("n9").ran
    assert [target.host for target in machines.connected] == ["n9"], "one connection, with the access of the address"


def _place(member: Member) -> tuple[str, str]:
    return member.allocation_id, member.address


async def test_a_handler_sees_the_holds_on_its_members(app: App, platform: FakePlatform, working: Working) -> None:
    held: list[tuple[str, str]] = []

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        held.extend((hold.member_id, hold.reason) for hold in op.holds)
        await op.each(op.targets, lambda member: _drained(op, member))

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    member = platform.members(instance)[0]
    platform.hold(member, reason="the fan is loud")
    async with working():
        ended = await platform.ended(platform.request(instance, "stop").operation_id)
    assert ended.status == "succeeded", ended.error
    assert held == [(member.member_id, "the fan is loud")]
    assert platform.records.instances[instance.instance_id].status == "stopped"
    assert [name for name, _ in platform.calls].count(MEMBER_REPORT.name) == 1


async def _drained(op: Operation, member: Member) -> None:
    await op.report(member, status="drained")
