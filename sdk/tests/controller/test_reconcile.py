"""Between operations: the reconcile handler reads the current state, reports it, and cannot stop the controller."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from gpuaas_contract.instances import INSTANCE_GET
from gpuaas_sdk.controller import App, Operation, Reconciliation, RefusedObservation, ReportedCondition
from gpuaas_sdk.testing import FakePlatform
from msgspec.structs import replace

Working = Callable[..., AbstractAsyncContextManager[None]]


async def test_what_the_handler_sees_is_on_record(app: App, platform: FakePlatform, working: Working) -> None:
    reported = asyncio.Event()

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        member = now.members[0]
        await now.report_runtime(
            [ReportedCondition(type="HeadAnswers", status="false", reason="Timeout", message="no ping for 9 s")],
            [now.seen(member, "degraded", reason="slow disk", detail={"disk": "sda"}, version="2.1")],
        )
        reported.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await reported.wait()
    member = platform.members(instance)[0]
    assert (member.status, member.status_reason, member.observed_version) == ("degraded", "slow disk", "2.1")
    settled = platform.records.instances[instance.instance_id]
    assert settled.status == "degraded"
    assert {condition.type: condition.status for condition in settled.conditions} == {"HeadAnswers": "false"}


async def test_steady_looks_change_nothing(app: App, platform: FakePlatform, working: Working) -> None:
    looks, enough = [0], asyncio.Event()

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        await now.report_runtime([ReportedCondition(type="HeadAnswers", status="true")], [now.seen(now.members[0])])
        looks[0] += 1
        if looks[0] >= 5:
            enough.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await enough.wait()
    assert platform.records.instances[instance.instance_id].revision == instance.revision + 1
    assert platform.members(instance)[0].revision == 1


async def test_no_check_runs_while_an_operation_works_on_the_instance(
    app: App, platform: FakePlatform, working: Working
) -> None:
    at_work, looked_elsewhere, looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    looks = list[tuple[str, bool]]()

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        at_work.set()
        await looked_elsewhere.wait()
        await op.report(op.targets[0], status="drained")
        at_work.clear()

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        looks.append((now.instance.name, at_work.is_set()))
        if looks.count(("idle", True)) == 2:
            looked_elsewhere.set()
        if now.instance.name == "busy" and now.members[0].status == "drained":
            looked.set()

    instance = platform.add_instance({"worker": ["n1"]}, name="busy", ready=True)
    platform.add_instance({"worker": ["n2"]}, name="idle", ready=True)
    async with working(), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "drain", component_key="worker").operation_id)
        await looked.wait()
    assert ("busy", True) not in looks


async def test_a_look_under_way_gives_way_to_an_operation(app: App, platform: FakePlatform, working: Working) -> None:
    looking, gave_way = asyncio.Event(), asyncio.Event()

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await gave_way.wait()

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        looking.set()
        try:
            await asyncio.Event().wait()
        finally:
            gave_way.set()

    instance = platform.add_instance({}, ready=True)
    async with working(), asyncio.timeout(60):
        await looking.wait()
        ended = await platform.ended(platform.request(instance, "stop").operation_id)
    assert ended.status == "succeeded", ended.error


async def test_an_instance_is_looked_at_right_after_its_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looked = asyncio.Event()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        return None

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        looked.set()

    instance = platform.add_instance({})
    async with working(reconcile_every_s=3600), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "deploy").operation_id)
        await looked.wait()


async def test_a_handler_that_raises_is_asked_again_and_operations_go_on(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looks, again = list[str](), asyncio.Event()

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        return None

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        looks.append(now.instance.status)
        if "stopped" in looks:
            again.set()
        raise KeyError("gpu")

    instance = platform.add_instance({}, ready=True)
    async with working(), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "stop").operation_id)
        await again.wait()
    assert looks.count("running") + looks.count("stopped") == len(looks)


async def test_an_observation_of_a_changed_member_is_refused_and_repeated(
    app: App, platform: FakePlatform, working: Working
) -> None:
    answers, done = list[list[RefusedObservation]](), asyncio.Event()

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        member = now.members[0]
        if not answers:
            platform.records.change_member(member, status_reason="changed by the test")
        answers.append(await now.report_runtime(members=[now.seen(member, "degraded")]))
        if len(answers) == 2:
            done.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await done.wait()
    assert [[refused.code for refused in answer] for answer in answers[:2]] == [["stale"], []]
    assert platform.members(instance)[0].status == "degraded"


async def test_only_instances_of_the_app_that_are_ones_own_and_settled_are_looked_at(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen, swept = set[str](), asyncio.Event()
    mine = platform.add_instance({}, name="mine", ready=True)
    foreign = platform.add_instance({}, name="foreign", ready=True)
    platform.records.instances[foreign.instance_id] = replace(foreign, operator_service_account_id="sa_other")
    platform.add_instance({}, name="requested")

    @app.reconcile
    async def look(now: Reconciliation) -> None:
        seen.add(now.instance.name)
        if [name for name, _ in platform.calls].count(INSTANCE_GET.name) >= 3:
            swept.set()

    async with working(), asyncio.timeout(60):
        await swept.wait()
    assert seen == {mine.name}
