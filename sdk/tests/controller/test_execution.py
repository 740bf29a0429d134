"""The controller kit against the platform in memory: steps, retries, ends, crashes, lost leases."""

import asyncio
import datetime
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from gpuaas_contract.errors import LeaseLost
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.runtime import STEP_REPORT, ClaimOperation, ReportStep
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import (
    AccessBundle,
    App,
    Command,
    Connection,
    Drift,
    Evidence,
    Lost,
    Member,
    NeedsOperator,
    Operation,
    Permanent,
    Temporary,
)
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]
Lossy = Callable[[str], AbstractAsyncContextManager[tuple[str, Any]]]


def states(operation: OperationRecord) -> dict[str, str]:
    return {step.name: step.state for step in operation.steps}


def step_reports(platform: FakePlatform) -> list[tuple[str, str, str]]:
    reports = [body for name, body in platform.calls if name == STEP_REPORT.name]
    return [(report.name, report.state, report.message) for report in reports]


async def nothing() -> None:
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_handler_that_returns_completes_its_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        for member in op.targets:
            await op.report(member, status="provisioning")
            await op.report(member, status="joining", detail={"partition": "all"})
            await op.report(member, status="ready", version="24.11")
        await op.step("publish", op.publish_access, AccessBundle(commands=[Command(title="Run", line="srun hostname")]))

    instance = platform.add_instance({"head": ["n0"], "worker": ["n1", "n2"]}, inputs={"size": 3})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert (ended.status, states(ended)) == ("succeeded", {"publish": "succeeded"})
    assert {member.status for member in platform.members(instance)} == {"ready"}
    assert {member.observed_version for member in platform.members(instance)} == {"24.11"}
    assert {member.adapter_detail["partition"] for member in platform.members(instance)} == {"all"}
    assert platform.access_bundle(instance).commands[0].line == "srun hostname"
    assert platform.records.instances[instance.instance_id].status == "running"


async def test_after_a_crash_another_runner_goes_on_and_repeats_no_finished_step(
    app: App, platform: FakePlatform, working: Working
) -> None:
    ran: list[str] = []
    in_second, crashed = asyncio.Event(), asyncio.Event()

    async def second() -> None:
        ran.append("second")
        in_second.set()
        if not crashed.is_set():
            await for_ever()

    async def first() -> None:
        ran.append("first")

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("first", first)
        await op.step("second", second)

    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    async with working("one"), asyncio.timeout(60):
        await in_second.wait()
    crashed.set()
    left = platform.operation(operation_id)
    assert (left.status, states(left)) == ("running", {"first": "succeeded", "second": "running"})
    async with working("two"):
        platform.expire_lease(operation_id)
        ended = await platform.ended(operation_id)
    assert (ended.status, ended.epoch, ended.attempts) == ("succeeded", 2, 2)
    assert ran == ["first", "second", "second"]


async def test_finished_steps_are_known_by_member(app: App, platform: FakePlatform, working: Working) -> None:
    ran: list[str] = []

    async def install(member: Member) -> None:
        ran.append(member.node_name)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        for member in op.targets:
            await op.step("install", install, member, member=member)
            await op.step("install", install, member, member=member)

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert (ended.status, ran) == ("succeeded", ["n1", "n2"])


async def test_one_step_name_for_several_members_at_once_is_refused(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.each(op.targets, lambda member: op.step("install", nothing))

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert "pass member=… to run it once per member" in ended.error.message


async def test_a_newer_claim_stops_the_old_handler_before_it_reports_again(
    app: App, platform: FakePlatform, working: Working
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await for_ever()
        finally:
            stopped.set()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("work", work)

    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    async with working(lease_s=6), asyncio.timeout(60):
        await started.wait()
        platform.expire_lease(operation_id)
        newer = platform.runtime.claim(ClaimOperation(app_slug="demo", holder="other", claim_id="c", lease_s=60))
        await stopped.wait()
    assert newer.epoch == 2
    assert platform.operation(operation_id).status == "running"
    assert step_reports(platform) == [("work", "running", "")]


async def test_a_reclaimed_operation_starts_only_after_the_old_handler_has_cleaned_up(
    app: App, platform: FakePlatform, working: Working
) -> None:
    happened: list[str] = []
    started = asyncio.Event()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        if op.id != operation_id:
            return
        happened.append(f"attempt {op.attempt} started")
        if op.attempt > 1:
            return
        started.set()
        try:
            await for_ever()
        finally:
            # A whole operation of another instance fits into this clean-up, so the second attempt has time to start.
            await platform.ended(platform.request(platform.add_instance({}), "deploy").operation_id)
            happened.append("attempt 1 cleaned up")

    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    async with working(lease_s=60):
        await started.wait()
        platform.expire_lease(operation_id)
        ended = await platform.ended(operation_id)
    assert ended.status == "succeeded"
    assert happened == ["attempt 1 started", "attempt 1 cleaned up", "attempt 2 started"]


async def test_a_handler_stops_when_no_heartbeat_was_answered_for_a_whole_lease(
    app: App, client: Client, platform: FakePlatform, working: Working, lossy: Lossy
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await for_ever()
        finally:
            stopped.set()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("work", work)

    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    async with (
        lossy(client.server) as (wired, wire),
        platform.client(wired) as lossy_client,
        working(lease_s=1, wire=lossy_client),
        asyncio.timeout(60),
    ):
        await started.wait()
        wire.answers_to_lose = 1_000_000
        await stopped.wait()
    assert platform.operation(operation_id).status == "running"


async def test_a_report_with_an_old_epoch_is_refused(app: App, client: Client, platform: FakePlatform) -> None:
    operation_id = platform.request(platform.add_instance({}), "deploy").operation_id
    with pytest.raises(LeaseLost):
        await client.call(
            STEP_REPORT,
            ReportStep(epoch=0, name="x", state="running"),
            project_id=platform.project_id,
            operation_id=operation_id,
        )


async def test_a_refused_report_ends_the_handler_at_once(app: App, platform: FakePlatform, working: Working) -> None:
    started, stopped, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(op: Operation) -> None:
        started.set()
        try:
            await go_on.wait()
            await op.say("still here")
            await for_ever()
        finally:
            stopped.set()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("work", work, op)

    operation_id = platform.request(platform.add_instance({}), "deploy", deadline_s=3600).operation_id
    async with working(lease_s=60), asyncio.timeout(60):
        await started.wait()
        operation = platform.operation(operation_id)
        platform.records.operations[operation_id] = _with_epoch(operation, operation.epoch + 1)
        go_on.set()
        await stopped.wait()
    assert platform.operation(operation_id).status == "running"


async def test_a_temporary_failure_is_retried_and_reported(app: App, platform: FakePlatform, working: Working) -> None:
    tries: list[int] = []

    async def join() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise Temporary("the head does not answer yet", after_s=0.01)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("join", join)

    instance = platform.add_instance({})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert (ended.status, len(tries)) == ("succeeded", 4)
    assert step_reports(platform) == [
        ("join", "running", ""),
        ("join", "running", "the head does not answer yet"),
        ("join", "succeeded", ""),
    ]


async def test_a_temporary_failure_outside_a_step_repeats_the_handler(
    app: App, platform: FakePlatform, working: Working
) -> None:
    tries: list[int] = []

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("prepare", nothing)
        tries.append(1)
        if len(tries) < 3:
            raise Temporary("not yet", after_s=0.01)

    instance = platform.add_instance({})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert (ended.status, len(tries)) == ("succeeded", 3)


async def test_a_temporary_failure_that_would_outlast_the_deadline_is_final(
    app: App, platform: FakePlatform, working: Working
) -> None:
    async def join() -> None:
        raise Temporary("the head does not answer yet", after_s=50)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("join", join)

    instance = platform.add_instance({})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy", deadline_s=30).operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("app_failed", "repairable")
    assert "the head does not answer yet" in ended.error.message
    assert states(ended) == {"join": "failed"}


async def test_the_same_words_are_sent_once(app: App, platform: FakePlatform, working: Working) -> None:
    async def wait(op: Operation) -> None:
        for message in ("1 job runs", "1 job runs", "idle", "1 job runs"):
            await op.say(message)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.say("outside a step only the log contains this")
        await op.step("drain", wait, op)

    instance = platform.add_instance({})
    async with working():
        await platform.ended(platform.request(instance, "deploy").operation_id)
    assert [message for _, state, message in step_reports(platform) if state == "running"] == [
        "",
        "1 job runs",
        "idle",
        "1 job runs",
    ]


async def test_words_reach_the_step_of_their_own_member(app: App, platform: FakePlatform, working: Working) -> None:
    async def talk(op: Operation, member: Member) -> None:
        await op.say(f"here is {member.node_name}")
        await barrier.wait()
        await op.say(f"{member.node_name} again")
        raise Permanent(f"{member.node_name} is tired")

    barrier = asyncio.Barrier(2)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.each(op.targets, lambda member: op.step("talk", talk, op, member, member=member))

    instance = platform.add_instance({"worker": ["n1", "n2"]})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    nodes = {member.member_id: member.node_name for member in platform.records.members.values()}
    assert {nodes[step.member_id]: step.message for step in ended.steps} == {"n1": "n1 is tired", "n2": "n2 is tired"}
    reports = [body for name, body in platform.calls if name == STEP_REPORT.name and "again" in body.message]
    assert all(nodes[report.member_id] in report.message for report in reports)


async def test_one_failed_member_leaves_the_others_to_their_end(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        async def join(member: Member) -> None:
            await op.report(member, status="provisioning")
            if member.node_name == "n2":
                raise Permanent("no GPU answers", fix="nvidia-smi")
            if member.node_name == "n3":
                await op.report(member, status="joining", detail={"munge": "down"})
                raise NeedsOperator("munge key differs")
            await op.report(member, status="joining")
            await op.report(member, status="ready")

        await op.each(op.targets, join)

    instance = platform.add_instance({"worker": ["n1", "n2", "n3"]})
    async with working():
        request = platform.request(instance, "add", component_key="worker")
        ended = await platform.ended(request.operation_id)
    by_node = {member.node_name: member for member in platform.members(instance)}
    assert {node: member.status for node, member in by_node.items()} == {"n1": "ready", "n2": "failed", "n3": "failed"}
    assert by_node["n2"].status_reason == "no GPU answers"
    assert by_node["n2"].adapter_detail == {"error": "no GPU answers"}
    assert by_node["n3"].adapter_detail == {"munge": "down"}
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("members_failed", "needs_operator")
    assert "n2: no GPU answers" in ended.error.message
    assert "n3: munge key differs" in ended.error.message
    assert ended.error.fix == "nvidia-smi"


@pytest.mark.parametrize(
    ("error", "code", "failure_class", "fix"),
    [
        (Permanent("wrong input", fix="gpuaas get"), "app_failed", "repairable", "gpuaas get"),
        (NeedsOperator("two heads claim to be first"), "app_failed", "needs_operator", ""),
        (Drift("the head runs another version"), "app_failed", "drift", ""),
        (Lost("the machine burnt down"), "app_failed", "lost", ""),
        (KeyError("gpu"), "controller_bug", "retryable", None),
    ],
)
async def test_the_type_of_an_error_decides_how_the_operation_fails(
    app: App, platform: FakePlatform, working: Working, error: Exception, code: str, failure_class: str, fix: str | None
) -> None:
    async def fail() -> None:
        raise error

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("work", fail)

    instance = platform.add_instance({})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == (code, failure_class)
    assert fix is None or ended.error.fix == fix
    assert states(ended) == {"work": "failed"}
    assert platform.records.instances[instance.instance_id].status == "failed"


async def test_a_kind_without_a_handler_is_not_supported(platform: FakePlatform, working: Working) -> None:
    instance = platform.add_instance({})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert ended.error.code == "not_supported"


async def test_a_removal_without_evidence_is_refused_and_with_it_accepted(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen = Evidence(state="idle", source="scontrol", observed_at=datetime.datetime.now(datetime.UTC))

    @app.operation("remove")
    async def remove(op: Operation) -> None:
        for member in op.targets:
            await op.report(member, status="removing", evidence=seen if op.reason == "shown" else None)
            await op.report(member, status="removed")
        assert op.targets[0].status == "removed"
        assert op.targets[0] not in op.members

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    first, second = platform.members(instance)
    async with working():
        bare = await platform.ended(platform.request(instance, "remove", [first]).operation_id)
        shown = await platform.ended(platform.request(instance, "remove", [second], reason="shown").operation_id)
    assert bare.error is not None
    assert bare.error.message.startswith("EvidenceMissing")
    assert bare.targets[0].outcome == "failed"
    assert shown.status == "succeeded"
    assert shown.targets[0].evidence == seen


async def test_a_handler_that_returns_before_its_members_are_there_has_not_succeeded(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.report(op.targets[0], status="provisioning")

    instance = platform.add_instance({"head": ["n0"]})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert "is provisioning; each must be ready" in ended.error.message


async def test_an_illegal_move_of_a_member_is_a_bug_of_the_controller(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.report(op.targets[0], status="drained")

    instance = platform.add_instance({"head": ["n0"]})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("controller_bug", "retryable")
    assert "from requested to drained" in ended.error.message


async def test_operations_of_several_instances_run_at_once(app: App, platform: FakePlatform, working: Working) -> None:
    together = asyncio.Barrier(3)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await together.wait()

    requests = [platform.request(platform.add_instance({}, name=f"demo{i}"), "deploy") for i in range(3)]
    async with working():
        ends = [await platform.ended(request.operation_id) for request in requests]
    assert [end.status for end in ends] == ["succeeded"] * 3


async def test_lost_answers_change_nothing(
    app: App, client: Client, platform: FakePlatform, working: Working, lossy: Lossy
) -> None:
    ran: list[str] = []

    async def work() -> None:
        ran.append("work")

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("work", work)
        await op.publish_access(AccessBundle(endpoints=[Connection(name="ui", url="https://n0")]))

    instance = platform.add_instance({})
    async with lossy(client.server) as (wired, wire), platform.client(wired) as lossy_client:
        wire.answers_to_lose = 3
        async with working(wire=lossy_client):
            ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert (ended.status, ended.epoch, ran) == ("succeeded", 1, ["work"])


def _with_epoch(operation: OperationRecord, epoch: int) -> OperationRecord:
    fields = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return OperationRecord(**{**fields, "epoch": epoch})
