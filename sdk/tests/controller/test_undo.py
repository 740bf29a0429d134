"""Cancel and compensate: the handler stops at its next await, the undo handler takes back what is half done."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from gpuaas_contract.errors import ExitUnavailable
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import ExitTaken
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import HEARTBEAT, STEP_REPORT, ClaimOperation
from gpuaas_sdk.controller import App, Member, Operation, Permanent, rules
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


def states(operation: OperationRecord) -> dict[str, str]:
    return {step.name: step.state for step in operation.steps}


async def nothing() -> None:
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


def undoes_add(app: App) -> None:
    @app.undo("add", role="worker")
    async def undo(op: Operation) -> None:
        assert op.backs_out
        for member in op.to_do:
            await op.report(member, status="removing")
            await op.step("take it off", nothing, member=member)
            await op.report(member, status="removed")


def adds_until_cancelled(app: App) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        for member in op.to_do:
            await op.report(member, status="provisioning")
            await op.step("install", for_ever, member=member)


def wanted(platform: FakePlatform, *nodes: str) -> tuple[Instance, OperationRecord]:
    instance = platform.add_instance({"worker": nodes})
    return instance, platform.request(instance, "add", component_key="worker")


def heartbeats(platform: FakePlatform) -> int:
    return [name for name, _ in platform.calls].count(HEARTBEAT.name)


def installing(operation: OperationRecord) -> bool:
    return states(operation) == {"install": "running"}


async def test_a_cancel_stops_the_handler_and_has_its_work_undone(
    app: App, platform: FakePlatform, working: Working
) -> None:
    adds_until_cancelled(app)
    undoes_add(app)
    instance, operation = wanted(platform, "n1")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, installing)
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, states(ended)) == ("cancelled", {"install": "failed", "take it off": "succeeded"})
    assert ended.steps[0].message == "stopped because the operation was cancelled"
    assert [target.outcome for target in ended.targets] == ["cancelled"]
    assert platform.members(instance) == []


async def test_a_step_that_an_earlier_controller_left_running_ends_before_another_one_undoes_the_work(
    app: App, platform: FakePlatform, working: Working
) -> None:
    adds_until_cancelled(app)
    undoes_add(app)
    _, operation = wanted(platform, "n1")
    async with working():
        await platform.until(operation.operation_id, installing)
    platform.expire_lease(operation.operation_id)
    platform.cancel(operation.operation_id)
    async with working():
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, states(ended)) == ("cancelled", {"install": "failed", "take it off": "succeeded"})


async def test_an_undo_step_runs_although_a_forward_step_of_the_same_name_succeeded(
    app: App, platform: FakePlatform, working: Working
) -> None:
    ran: list[str] = []

    async def service(op: Operation) -> None:
        ran.append("stop" if op.backs_out else "start")

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        await op.report(op.targets[0], status="provisioning")
        await op.step("service", service, op, member=op.targets[0])
        await op.step("wait", for_ever)

    @app.undo("add", role="worker")
    async def undo(op: Operation) -> None:
        await op.step("service", service, op, member=op.targets[0])
        await op.report(op.targets[0], status="removing")
        await op.report(op.targets[0], status="removed")

    _, operation = wanted(platform, "n1")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, lambda now: states(now).get("wait") == "running")
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, ran) == ("cancelled", ["start", "stop"])


async def test_the_receipt_of_a_step_reports_a_cancel_before_the_next_heartbeat(
    app: App, platform: FakePlatform, working: Working
) -> None:
    cancelled = asyncio.Event()

    async def install(op: Operation) -> None:
        await cancelled.wait()
        await op.say("unpacking")
        await for_ever()

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        await op.step("install", install, op)

    undoes_add(app)
    _, operation = wanted(platform, "n1")
    async with working(lease_s=60):
        await platform.until(operation.operation_id, lambda now: installing(now) and heartbeats(platform) == 1)
        platform.cancel(operation.operation_id)
        cancelled.set()
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, heartbeats(platform)) == ("cancelled", 1)


async def test_without_an_undo_handler_a_claimed_operation_cannot_be_cancelled(
    app: App, platform: FakePlatform, working: Working
) -> None:
    adds_until_cancelled(app)
    _, operation = wanted(platform, "n1")
    async with working(lease_s=6):
        claimed = await platform.until(operation.operation_id, installing)
        assert not claimed.can_undo
        with pytest.raises(ExitUnavailable):
            platform.cancel(operation.operation_id)


async def test_a_controller_that_lost_its_undo_handler_needs_an_operator(
    app: App, platform: FakePlatform, working: Working
) -> None:
    adds_until_cancelled(app)
    app.undo("add", role="worker")(_nothing)
    _, operation = wanted(platform, "n1")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, installing)
        platform.cancel(operation.operation_id)
        app._handlers.undos.clear()
        ended = await platform.ended(operation.operation_id)
    assert ended.error is not None
    assert (ended.status, ended.error.failure_class) == ("failed", "needs_operator")
    assert "demo cannot undo add" in ended.error.message
    assert ended.operation_id in ended.error.fix


async def test_a_handler_that_ends_well_in_spite_of_a_cancel_has_succeeded(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        member = op.targets[0]
        await _join(op, member)
        try:
            await op.step("install", for_ever)
        except asyncio.CancelledError:
            return

    @app.undo("add", role="worker")
    async def undo(op: Operation) -> None:
        raise AssertionError("finished work is not undone")

    instance, operation = wanted(platform, "n1")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, installing)
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, platform.members(instance)[0].status) == ("succeeded", "ready")


async def test_the_kit_reports_that_it_undid_where_members_look_the_same_either_way(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("upgrade")
    async def upgrade(op: Operation) -> None:
        await op.step("install", for_ever)

    @app.undo("upgrade")
    async def undo(op: Operation) -> None:
        await op.step("leave it as it was", nothing)

    operation = platform.request(platform.add_instance({"worker": ["n1"]}, ready=True), "upgrade")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, installing)
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, ended.exits_taken[0].too_late) == ("cancelled", False)


async def test_a_cancelled_operation_whose_controller_died_is_undone_by_the_next_one(
    app: App, platform: FakePlatform, working: Working
) -> None:
    adds_until_cancelled(app)
    undoes_add(app)
    _, operation = wanted(platform, "n1")
    async with working("one"):
        await platform.until(operation.operation_id, installing)
    platform.cancel(operation.operation_id)
    async with working("two"):
        platform.expire_lease(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, ended.attempts) == ("cancelled", 2)
    assert states(ended)["take it off"] == "succeeded"


async def test_an_action_that_is_cancelled_has_nothing_to_undo(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.action("rotate")
    async def rotate(op: Operation) -> None:
        await op.step("install", for_ever)

    operation = platform.invoke(platform.add_instance({}, ready=True), "rotate")
    async with working(lease_s=6):
        await platform.until(operation.operation_id, installing)
        platform.cancel(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, ended.result) == ("cancelled", None)


async def test_a_failed_operation_is_compensated_by_its_undo_handler_alone(
    app: App, platform: FakePlatform, working: Working
) -> None:
    tries: list[int] = []

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        tries.append(op.attempt)
        await op.report(op.targets[0], status="provisioning")
        raise Permanent("no GPU answers")

    undoes_add(app)
    instance, operation = wanted(platform, "n1", "n2")
    async with working():
        assert (await platform.ended(operation.operation_id)).status == "failed"
        platform.compensate(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert (ended.status, tries) == ("cancelled", [1])
    assert platform.members(instance) == []


async def test_a_retry_after_undoing_does_everything_again(app: App, platform: FakePlatform, working: Working) -> None:
    done: list[str] = []

    async def do(what: str) -> None:
        done.append(what)

    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        member = op.targets[0]
        await op.step("install", do, "install")
        if op.attempt == 1:
            raise Permanent("no GPU answers")
        await _join(op, member)

    @app.undo("add", role="worker")
    async def undo(op: Operation) -> None:
        await op.step("take it off", do, "take it off")
        raise Permanent("the disk is read-only")

    _, operation = wanted(platform, "n1")
    async with working():
        assert (await platform.ended(operation.operation_id)).status == "failed"
        platform.compensate(operation.operation_id)
        assert (await platform.ended(operation.operation_id)).status == "failed"
        platform.retry(operation.operation_id)
        ended = await platform.ended(operation.operation_id)
    assert ended.status == "succeeded", ended.error
    assert done == ["install", "take it off", "install"]


@pytest.mark.parametrize(
    ("exits", "finished"),
    [
        ([], {("install", "")}),
        (["retry", "retry"], {("install", "")}),
        (["compensate"], set()),
        (["retry", "compensate", "compensate"], set()),
        (["compensate", "retry"], set()),
    ],
)
async def test_steps_count_as_done_until_the_operation_turns_round(
    app: App, platform: FakePlatform, exits: list[str], finished: set[tuple[str, str]]
) -> None:
    _, operation = wanted(platform, "n1")
    claim = platform.runtime.claim(ClaimOperation(app_slug="demo", holder="one", claim_id="c"))
    report = STEP_REPORT.request(epoch=claim.epoch, name="install", state="succeeded")
    platform.runtime.report_step(operation.operation_id, report)
    done = platform.operation(operation.operation_id)
    taken = [
        ExitTaken(name=name, taken_by="test", reason="", taken_at=platform.records.clock())  # type: ignore[arg-type]
        for name in exits
    ]
    fields = {name: getattr(done, name) for name in done.__struct_fields__}
    assert rules.finished_steps(OperationRecord(**{**fields, "exits_taken": taken})) == finished


async def _join(op: Operation, member: Member) -> None:
    if member.status in ("requested", "failed"):
        await op.report(member, status="provisioning")
    await op.report(member, status="joining")
    await op.report(member, status="ready")


async def _nothing(op: Operation) -> None:
    """Undo nothing."""
