"""A refusal leaves everything as it was, and every wait shows for what."""

import asyncio
import datetime
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from gpuaas_sdk.controller import App, Check, Evidence, MachineAway, Member, Operation, Permanent, Refused, Temporary
from gpuaas_sdk.testing import FakeMachines, FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


async def test_a_refused_decommission_leaves_instance_and_members_as_they_were(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("decommission")
    async def decommission(op: Operation) -> None:
        raise Refused("2 jobs run", fix="wait for them")

    instance = platform.add_instance({"head": ["n1"], "worker": ["n2"]}, ready=True)
    request = platform.request(instance, "decommission")
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.error.failure_class) == ("failed", "refused", "refused")
    assert ended.error.fix == "wait for them"
    assert platform.records.instances[instance.instance_id].status == "running"
    assert {member.status for member in platform.members(instance)} == {"ready"}


async def test_a_refused_deploy_can_be_retried(app: App, platform: FakePlatform, working: Working) -> None:
    refuses = [True]

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        if refuses.pop():
            refuses.append(False)
            raise Refused("the name is taken")
        for member in op.to_do:
            await op.advance(member, "joining")
            await op.report(member, status="ready")

    instance = platform.add_instance({"head": ["n1"]})
    request = platform.request(instance, "deploy")
    async with working():
        await platform.ended(request.operation_id)
        refused = platform.records.instances[instance.instance_id]
        assert (refused.status, "the name is taken" in refused.status_reason) == ("requested", True)
        assert [member.status for member in platform.members(instance)] == ["requested"]
        platform.retry(request.operation_id)
        ended = await platform.ended(request.operation_id)
    assert ended.status == "succeeded", ended.error
    assert platform.records.instances[instance.instance_id].status == "running"


async def test_a_member_that_is_refused_keeps_its_status_and_the_others_go_on(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        async def one(member: Member) -> None:
            await op.report(member, status="draining")
            if member.node_name == "n1":
                raise Refused("another user drains it")
            await op.report(member, status="drained")

        results = await op.each(op.to_do, one, raises=False)
        assert [member.node_name for member in results.ok] == ["n2"]
        assert [member.node_name for member, _ in results.failed] == ["n1"]

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        ended = await platform.ended(request.operation_id)
    assert [(target.outcome, target.error) for target in ended.targets] == [
        ("refused", "another user drains it"),
        ("succeeded", ""),
    ]
    assert ended.error is not None
    assert ended.error.failure_class == "refused"
    assert [member.status for member in platform.members(instance)] == ["ready", "drained"]


async def test_a_failure_that_each_returned_still_fails_the_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        async def one(member: Member) -> None:
            raise Permanent("no answer", fix="look")

        await op.each(op.to_do, one, raises=False)

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class, ended.error.fix) == ("members_failed", "repairable", "look")


async def test_a_wait_outside_a_step_is_shown_as_a_step_that_ends(
    app: App, platform: FakePlatform, working: Working
) -> None:
    answers = asyncio.Event()

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        if not answers.is_set():
            raise Temporary("the scheduler does not answer", after_s=0.01)
        await op.report(op.to_do[0], status="drained")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        shown = await platform.until(request.operation_id, lambda now: bool(now.steps))
        assert (shown.steps[0].name, shown.steps[0].message) == ("wait", "the scheduler does not answer")
        answers.set()
        ended = await platform.ended(request.operation_id)
    assert ended.status == "succeeded", ended.error
    assert [step.state for step in ended.steps] == ["succeeded"]


async def test_until_shows_each_reason_and_counts_a_temporary_error_as_one(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen: list[str] = []
    answers: list[Check | Temporary] = [Check(True), Temporary("the scheduler is away"), Check(False, "2 jobs run")]

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        async def quiet() -> Check:
            if seen_now := [step.message for step in platform.operation(op.id).steps if step.message]:
                seen.extend(message for message in seen_now if message not in seen)
            answer = answers.pop()
            if isinstance(answer, Temporary):
                raise answer
            return answer

        async def wait() -> None:
            assert (await op.until(quiet, every_s=0.01)).ok

        await op.step("wait for jobs", wait)
        await op.report(op.to_do[0], status="drained")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        assert (await platform.ended(request.operation_id)).status == "succeeded"
    assert seen == ["2 jobs run", "the scheduler is away"]


async def test_until_ends_at_its_time_limit_and_fails_at_the_deadline(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        async def never() -> Check:
            return Check(False, "2 jobs run")

        assert await op.until(never, every_s=0.01, within_s=0.05) == Check(False, "2 jobs run")
        await op.until(never, every_s=0.01)

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker", deadline_s=3)
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert ended.error.code == "deadline_passed" or "2 jobs run" in ended.error.message


async def test_a_machine_that_is_off_costs_one_certificate_however_often_it_is_tried(
    app: App, platform: FakePlatform, working: Working, machines: FakeMachines
) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        member = op.to_do[0]
        with pytest.raises(MachineAway, match="machine n1"):
            await op.on(member, lambda machine: machine.run("true"), patience_s=0.3)
        assert not await op.answers(member, patience_s=0.1)
        await op.report(member, status="drained")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    machines.host("n1").reachable = False
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        assert (await platform.ended(request.operation_id)).status == "succeeded"
    assert [name for name, _ in platform.calls].count("access.machine.grant") == 1
    assert len(machines.connected) > 2


async def test_a_refusal_of_an_undo_is_a_failure(app: App, platform: FakePlatform, working: Working) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        await op.report(op.to_do[0], status="draining")
        raise Permanent("no answer")

    @app.undo("drain", role="worker")
    async def undo(op: Operation) -> None:
        raise Refused("it cannot be undone")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working():
        await platform.ended(request.operation_id)
        platform.compensate(request.operation_id)
        ended = await platform.ended(request.operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("app_failed", "repairable")
    assert [member.status for member in platform.members(instance)] == ["draining"]


async def test_evidence_has_the_time_of_the_observation(app: App, platform: FakePlatform, working: Working) -> None:
    looked_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=9)

    @app.operation("remove", role="worker")
    async def remove(op: Operation) -> None:
        evidence = Evidence(state="idle", source="squeue", observed_at=looked_at)
        await op.report(op.to_do[0], status="removing", evidence=evidence)
        await op.report(op.to_do[0], status="removed")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "remove", component_key="worker")
    async with working():
        ended = await platform.ended(request.operation_id)
    assert ended.targets[0].evidence is not None
    assert ended.targets[0].evidence.observed_at == looked_at


async def test_failures_before_a_cancel_do_not_fail_the_undo(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        async def one(member: Member) -> None:
            raise Permanent("no answer")

        await op.each(op.to_do, one, raises=False)
        await op.step("wait", _for_ever)

    @app.undo("drain", role="worker")
    async def undo(op: Operation) -> None:
        for member in op.to_do:
            await op.report(member, status="ready")

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    request = platform.request(instance, "drain", component_key="worker")
    async with working(lease_s=3):
        await platform.until(request.operation_id, lambda now: bool(now.steps))
        platform.cancel(request.operation_id)
        ended = await platform.ended(request.operation_id)
    assert ended.status == "cancelled", ended.error


async def _for_ever() -> None:
    await asyncio.Event().wait()
