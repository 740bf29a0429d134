"""A step has its undo beside it: the kit undoes what began, the last step first, also in another process."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_sdk.controller import App, Evidence, Member, Operation, Permanent, Temporary, rules
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


class Queue:
    """An app whose add has a step of the operation, then two of each member, then waits or fails."""

    def __init__(self, app: App, *, fails: bool = False) -> None:
        self.done: list[str] = []
        self.undo_fails_at = ""
        self.attempts_that_fail = 1
        note = self.note

        @app.step("open")
        async def open_queue(op: Operation) -> None:
            note("open")

        @open_queue.undo
        async def close_queue(op: Operation) -> None:
            note("close")

        @app.step("start")
        async def start(op: Operation, member: Member) -> None:
            note(f"start {member.node_name}")

        @start.undo
        async def stop(op: Operation, member: Member) -> None:
            note(f"stop {member.node_name}")

        @app.step("join")
        async def join(op: Operation, member: Member) -> None:
            note(f"join {member.node_name}")
            if fails and op.attempt <= self.attempts_that_fail:
                raise Permanent("no answer")
            if not fails:
                await for_ever()

        @join.undo
        async def leave(op: Operation, member: Member) -> None:
            note(f"leave {member.node_name}")

        @app.operation("add", role="worker")
        async def add(op: Operation) -> None:
            await open_queue(op)

            async def one(member: Member) -> None:
                await op.advance(member, "provisioning")
                await start(op, member)
                await join(op, member)
                await op.advance(member, "joining")
                await op.report(member, status="ready")

            await op.each(op.to_do, one)

    def note(self, what: str) -> None:
        self.done.append(what)
        if what == self.undo_fails_at:
            self.undo_fails_at = ""
            raise Permanent("the disk is read-only")


async def for_ever() -> None:
    await asyncio.Event().wait()


def joining(operation: OperationRecord) -> bool:
    return sum((step.name, step.state) == ("join", "running") for step in operation.steps) == len(operation.targets)


def per_member(done: list[str], node_name: str) -> list[str]:
    return [what for what in done if what.endswith(node_name)]


async def test_a_cancel_undoes_begun_steps_the_last_one_first_and_removes_the_members(
    app: App, platform: FakePlatform, working: Working
) -> None:
    queue = Queue(app)
    app.undo_by_steps("add", role="worker")
    instance = platform.add_instance({"worker": ["n1", "n2"]})
    operation = platform.request(instance, "add", component_key="worker")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, joining)
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, platform.members(instance)) == ("cancelled", [])
    for name in ("n1", "n2"):
        assert per_member(queue.done, name) == [f"start {name}", f"join {name}", f"leave {name}", f"stop {name}"]
    assert (queue.done[0], queue.done[-1]) == ("open", "close")


async def test_another_process_undoes_a_failed_operation_from_the_record_alone(
    app: App, platform: FakePlatform, working: Working
) -> None:
    queue = Queue(app, fails=True)
    app.undo_by_steps("add", role="worker")
    instance = platform.add_instance({"worker": ["n1"]})
    operation = platform.request(instance, "add", component_key="worker")
    async with working("one"):
        assert (await platform.ended(operation.operation_id)).status == "failed"
    platform.compensate(operation.operation_id)
    async with working("two"):
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, platform.members(instance)) == ("cancelled", []), ended.error
    assert queue.done == ["open", "start n1", "join n1", "leave n1", "stop n1", "close"]


async def test_an_undo_that_failed_continues_with_the_step_that_it_did_not_undo(
    app: App, platform: FakePlatform, working: Working
) -> None:
    queue = Queue(app, fails=True)
    queue.undo_fails_at = "stop n1"
    app.undo_by_steps("add", role="worker")
    instance = platform.add_instance({"worker": ["n1"]})
    operation = platform.request(instance, "add", component_key="worker")
    async with working():
        await platform.ended(operation.operation_id)
        platform.compensate(operation.operation_id)
        assert (await platform.ended(operation.operation_id)).status == "failed"
        platform.compensate(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert ended.status == "cancelled", ended.error
    assert queue.done[3:] == ["leave n1", "stop n1", "stop n1", "close"]


async def test_an_undo_handler_of_the_app_can_undo_the_steps_and_report_itself(
    app: App, platform: FakePlatform, working: Working
) -> None:
    queue = Queue(app, fails=True)

    @app.undo("add", role="worker")
    async def undo(op: Operation) -> None:
        await op.undo_steps()
        for member in op.to_do:
            queue.note("report")
            await op.report(member, status="removing")
            await op.report(member, status="removed")

    operation = platform.request(platform.add_instance({"worker": ["n1"]}), "add", component_key="worker")
    async with working():
        await platform.ended(operation.operation_id)
        platform.compensate(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, queue.done[-2:]) == ("cancelled", ["close", "report"])


async def test_a_drain_that_is_undone_returns_its_member_to_ready(
    app: App, platform: FakePlatform, working: Working
) -> None:
    done: list[str] = []

    @app.step("close")
    async def close(op: Operation, member: Member) -> None:
        done.append("close")

    @close.undo
    async def reopen(op: Operation, member: Member) -> None:
        done.append("reopen")

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        await close(op, op.targets[0])
        await op.report(op.targets[0], status="draining")
        await op.step("wait", for_ever)

    app.undo_by_steps("drain", role="worker")
    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    operation = platform.request(instance, "drain", component_key="worker")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, lambda now: [step.name for step in now.steps] == ["close", "wait"])
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, done) == ("cancelled", ["close", "reopen"]), ended.error
    assert platform.members(instance)[0].status == "ready"


@pytest.mark.parametrize("gives_evidence", [True, False])
async def test_a_member_that_was_ready_is_taken_back_only_with_evidence(
    app: App, platform: FakePlatform, working: Working, *, gives_evidence: bool
) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        await op.advance(op.targets[0], "joining")
        await op.report(op.targets[0], status="ready")
        raise Permanent("the other member failed")

    async def look(op: Operation, member: Member) -> Evidence:
        return Evidence(state="idle", source="the queue", observed_at=platform.records.clock())

    app.undo_by_steps("add", role="worker", evidence=look if gives_evidence else None)
    instance = platform.add_instance({"worker": ["n1", "n2"]})
    operation = platform.request(instance, "add", component_key="worker")
    async with working():
        await platform.ended(operation.operation_id)
        platform.compensate(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert ended.status == ("cancelled" if gives_evidence else "failed"), ended.error
    if not gives_evidence:
        assert ended.error is not None
        assert "n1 was ready, and the app gives no evidence" in ended.error.message


async def test_a_step_fails_after_its_last_attempt(app: App, platform: FakePlatform, working: Working) -> None:
    tries: list[int] = []

    @app.step("ask", attempts=3)
    async def ask(op: Operation) -> None:
        tries.append(1)
        raise Temporary("the head does not answer", after_s=0)

    app.operation("deploy")(ask)
    operation = platform.request(platform.add_instance({}), "deploy")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert (len(tries), ended.steps[0].state) == (3, "failed")
    assert ended.error.message == "3 attempts failed; the last error was: the head does not answer"


async def test_a_step_that_takes_too_long_is_stopped_and_fails_with_what_it_waited_for(
    app: App, platform: FakePlatform, working: Working
) -> None:
    stopped: list[str] = []

    @app.step("sync", within_s=2)
    async def sync(op: Operation) -> None:
        try:
            await op.say("3 of 9 shards are copied")
            await asyncio.Event().wait()
        finally:
            stopped.append("sync")

    app.operation("deploy")(sync)
    operation = platform.request(platform.add_instance({}), "deploy")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert ended.error.message == "sync did not end within 2 s; the last message was: 3 of 9 shards are copied"
    assert (stopped, ended.steps[0].state) == (["sync"], "failed")


async def test_a_time_out_of_the_step_itself_is_not_its_limit(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.step("ask", within_s=60)
    async def ask(op: Operation) -> None:
        raise TimeoutError("the socket timed out")

    app.operation("deploy")(ask)
    operation = platform.request(platform.add_instance({}), "deploy")
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert "the socket timed out" in ended.error.message


def test_steps_of_members_between_two_of_the_operation_are_one_round() -> None:
    begun = [("open", ""), ("start", "a"), ("start", "b"), ("join", "a"), ("wait", ""), ("tune", ""), ("load", "b")]
    assert rules.undo_order(begun, {"open", "start", "join", "tune", "load"}) == [
        {"b": ["load"]},
        {"": ["tune"]},
        {"a": ["join", "start"], "b": ["start"]},
        {"": ["open"]},
    ]


def test_a_step_takes_the_operation_and_at_most_a_member(app: App) -> None:
    async def start(op: Operation, member: Member, port: int) -> None:
        return None

    with pytest.raises(ValueError, match="at most a member"):
        app.step("start")(start)


def test_a_step_and_its_undo_are_declared_once(app: App) -> None:
    async def start(op: Operation) -> None:
        return None

    step = app.step("start")(start)
    step.undo(start)
    with pytest.raises(ValueError, match="already has an undo"):
        step.undo(start)
    with pytest.raises(ValueError, match="already has a step 'start'"):
        app.step("start")(start)
