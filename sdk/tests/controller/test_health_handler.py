"""Between operations: the health handler reads the current state, reports it, and cannot stop the controller."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from gpuaas_contract.access import MACHINE_ACCESS
from gpuaas_contract.errors import Conflict, LeaseLost, NotFound, StewardBudgetUsed
from gpuaas_contract.instances import INSTANCE_GET, Condition, Steward
from gpuaas_contract.posix import POSIX_PEOPLE
from gpuaas_contract.runtime import RUNTIME_REPORT
from gpuaas_contract.stewardships import RENEW
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import (
    HEALTH_CHECK_WORKS,
    App,
    HealthSettings,
    Operation,
    PosixPerson,
    Reconciliation,
    RefusedObservation,
    ReportedCondition,
    Requested,
    RunnerSettings,
    observers,
)
from gpuaas_sdk.controller.stewardships import Stewardships
from gpuaas_sdk.machine import CommandFailed, Machine, MachineTarget, MachineUnreachable
from gpuaas_sdk.testing import FakeMachines, FakePlatform
from msgspec.structs import replace

Working = Callable[..., AbstractAsyncContextManager[None]]
ADA = PosixPerson(
    user_id="user_1", name="Ada", login="ada", uid=20001, gid=20001, state="active", is_admin=False, public_keys=[]
)


def _no_such_route() -> str:
    """Answer as a platform of the release before."""
    raise NotFound


async def test_what_the_handler_sees_is_on_record(app: App, platform: FakePlatform, working: Working) -> None:
    reported = asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        member = now.members[0]
        await now.report(
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

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.report([ReportedCondition(type="HeadAnswers", status="true")], [now.seen(now.members[0])])
        looks[0] += 1
        if looks[0] >= 5:
            enough.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await enough.wait()
    assert platform.records.instances[instance.instance_id].revision == instance.revision + 1
    assert platform.members(instance)[0].revision == 1


async def test_no_check_runs_while_an_operation_works_on_the_whole_instance(
    app: App, platform: FakePlatform, working: Working
) -> None:
    at_work, looked_elsewhere, looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    looks = list[tuple[str, bool]]()

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        at_work.set()
        await looked_elsewhere.wait()
        at_work.clear()

    @app.health()
    async def look(now: Reconciliation) -> None:
        looks.append((now.instance.name, at_work.is_set()))
        if looks.count(("idle", True)) == 2:
            looked_elsewhere.set()
        if now.instance.name == "busy" and looked_elsewhere.is_set():
            looked.set()

    instance = platform.add_instance({"worker": ["n1"]}, name="busy", ready=True)
    platform.add_instance({"worker": ["n2"]}, name="idle", ready=True)
    async with working(), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "stop").operation_id)
        await looked.wait()
    assert ("busy", True) not in looks


async def test_the_other_members_are_looked_at_while_an_operation_works_on_one(
    app: App, platform: FakePlatform, working: Working
) -> None:
    at_work, seen = asyncio.Event(), asyncio.Event()

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        at_work.set()
        await seen.wait()
        await op.report(op.targets[0], status="drained")

    @app.health()
    async def look(now: Reconciliation) -> None:
        if at_work.is_set() and not seen.is_set():
            silent = [now.seen(member, "failed", reason="no answer") for member in now.members]
            refused = await now.report(members=silent)
            assert [each.code for each in refused] == ["operation_in_progress"]
            seen.set()

    instance = platform.add_instance({"worker": ["n1", "n2"]}, ready=True)
    drained, other = platform.members(instance)
    async with working(), asyncio.timeout(60):
        asked = platform.request(instance, "drain", [drained], component_key="worker")
        await platform.ended(asked.operation_id)
    assert {member.member_id: member.status for member in platform.members(instance)} == {
        drained.member_id: "drained",
        other.member_id: "failed",
    }


async def test_a_look_that_began_beside_an_operation_begins_again_after_it(
    app: App, platform: FakePlatform, working: Working
) -> None:
    at_work, beside, after = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        at_work.set()
        await beside.wait()
        await op.report(op.targets[0], status="drained")

    @app.health()
    async def look(now: Reconciliation) -> None:
        if now.members[0].status == "drained":
            after.set()
        elif at_work.is_set():
            beside.set()
            await asyncio.Event().wait()

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "drain", component_key="worker").operation_id)
        await after.wait()


async def test_a_look_under_way_gives_way_to_an_operation(app: App, platform: FakePlatform, working: Working) -> None:
    looking, gave_way = asyncio.Event(), asyncio.Event()

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await gave_way.wait()

    @app.health()
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


async def test_a_controller_that_stops_ends_its_operations_before_it_gives_up_its_stewardships(
    app: App, platform: FakePlatform, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, looked, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    release = Stewardships.release

    async def slow_release(stewardships: Stewardships) -> None:
        await ended.wait()
        await release(stewardships)

    monkeypatch.setattr(Stewardships, "release", slow_release)

    @app.operation("drain", role="worker")
    async def drain(op: Operation) -> None:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.health()
    async def look(now: Reconciliation) -> None:
        looked.set()

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    async with asyncio.timeout(60), working():
        platform.request(instance, "drain", component_key="worker")
        await at_work.wait()
        await looked.wait()


async def test_an_instance_is_looked_at_right_after_its_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looked = asyncio.Event()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        return None

    @app.health()
    async def look(now: Reconciliation) -> None:
        looked.set()

    instance = platform.add_instance({})
    async with working(look_every_s=3600), asyncio.timeout(60):
        await platform.ended(platform.request(instance, "deploy").operation_id)
        await looked.wait()


async def test_a_handler_that_raises_is_asked_again_and_operations_go_on(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looks, again = list[str](), asyncio.Event()

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        return None

    @app.health()
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

    @app.health()
    async def look(now: Reconciliation) -> None:
        member = now.members[0]
        if not answers:
            platform.records.change_member(member, status_reason="changed by the test")
        answers.append(await now.report(members=[now.seen(member, "degraded")]))
        if len(answers) == 2:
            done.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await done.wait()
    assert [[refused.code for refused in answer] for answer in answers[:2]] == [["stale"], []]
    assert platform.members(instance)[0].status == "degraded"


async def test_a_member_that_changed_during_the_look_is_no_reason_for_a_request(
    app: App, platform: FakePlatform, working: Working
) -> None:
    answers, done = list[Requested](), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        member = now.members[0]
        if not answers:
            platform.records.change_member(member, status_reason="changed by the test")
        await now.report(members=[now.seen(member, "degraded")])
        answers.append(await now.request("repair", [member], "the service is down"))
        if len(answers) == 2:
            done.set()

    platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await done.wait()
    assert [(isinstance(answer.refusal, Conflict), bool(answer.operation)) for answer in answers[:2]] == [
        (True, False),
        (False, True),
    ]


async def test_a_request_that_the_state_of_the_member_does_not_allow_is_a_refusal(
    app: App, platform: FakePlatform, working: Working
) -> None:
    answers, done = list[Requested](), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        platform.records.change_member(now.members[0], status="removing")
        answers.append(await now.request("repair", now.members, "the service is down"))
        done.set()

    platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await done.wait()
    assert isinstance(answers[0].refusal, Conflict)


async def test_only_instances_of_the_app_that_are_ones_own_and_settled_are_looked_at(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen, swept = set[str](), asyncio.Event()
    mine = platform.add_instance({}, name="mine", ready=True)
    foreign = platform.add_instance({}, name="foreign", ready=True)
    platform.records.instances[foreign.instance_id] = replace(foreign, operator_service_account_id="sa_other")
    platform.add_instance({}, name="requested")

    @app.health()
    async def look(now: Reconciliation) -> None:
        seen.add(now.instance.name)
        if [name for name, _ in platform.calls].count(RENEW.name) >= 2:
            swept.set()

    async with working(), asyncio.timeout(60):
        await swept.wait()
    assert seen == {mine.name}


async def test_a_handler_that_crashes_or_takes_too_long_is_a_condition_until_it_works_again(
    app: App, platform: FakePlatform, working: Working
) -> None:
    broken, hangs, works = asyncio.Event(), asyncio.Event(), asyncio.Event()
    broken.set()

    @app.health()
    async def look(now: Reconciliation) -> None:
        if broken.is_set():
            raise KeyError("gpu")
        if hangs.is_set():
            await asyncio.Event().wait()
        works.set()

    instance = platform.add_instance({}, ready=True)

    async def condition(status: str, reason: str) -> Condition:
        while True:
            for present in platform.instance(instance.instance_id).conditions:
                if (present.type, present.status, present.reason) == (HEALTH_CHECK_WORKS, status, reason):
                    return present
            await asyncio.sleep(0.01)

    async with working(look_s_max=0.3), asyncio.timeout(60):
        crashed = await condition("false", "crashed")
        assert crashed.message == "The health check of the app crashed: KeyError: 'gpu'"
        assert platform.instance(instance.instance_id).status == "degraded"
        hangs.set()
        broken.clear()
        assert "did not end within 0.3 s" in (await condition("false", "timed_out")).message
        hangs.clear()
        await condition("true", "")
    assert platform.instance(instance.instance_id).status == "running"


async def test_a_second_process_looks_only_after_the_first_is_gone(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.health()
    async def look(now: Reconciliation) -> None:
        return None

    instance = platform.add_instance({}, ready=True)

    async def steward(holder: str) -> Steward:
        while True:
            shown = platform.instance(instance.instance_id).steward
            if shown is not None and shown.holder.startswith(holder) and shown.observed_at is not None:
                return shown
            await asyncio.sleep(0.01)

    async def renewed(times: int) -> None:
        wanted = platform.stewards.renewals + times
        while platform.stewards.renewals < wanted:  # noqa: ASYNC110 - a fact of another object
            await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        async with working("one"):
            first = await steward("one/")
            async with working("two"):
                await renewed(6)
                assert (await steward("one/")).epoch == first.epoch
        async with working("two"):
            assert (await steward("two/")).epoch == first.epoch + 1


async def test_a_look_reads_nothing_while_nothing_has_changed(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looks, enough = [0], asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.report([ReportedCondition(type="HeadAnswers", status="true")], [now.seen(now.members[0])])
        looks[0] += 1
        if looks[0] >= 20:
            enough.set()

    platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await enough.wait()
    names = [name for name, _ in platform.calls]
    assert (names.count(INSTANCE_GET.name), names.count(RUNTIME_REPORT.name)) == (1, 1)


async def test_a_change_by_someone_else_is_read_at_the_next_look(
    app: App, platform: FakePlatform, working: Working
) -> None:
    first, changed = asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        first.set()
        if now.instance.status_reason == "1 member is degraded":
            changed.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await first.wait()
        platform.records.change_member(platform.members(instance)[0], status="degraded")
        platform.records.update_status(platform.records.instances[instance.instance_id])
        await changed.wait()


async def test_a_repair_that_the_handler_requests_runs_and_the_limit_is_asked_for_once(
    app: App, platform: FakePlatform, working: Working
) -> None:
    answers, repaired, refused = list[Requested](), list[str](), asyncio.Event()

    @app.operation("repair", role="worker")
    async def repair(op: Operation) -> None:
        repaired.append(op.reason)

    @app.health()
    async def look(now: Reconciliation) -> None:
        answers.append(await now.request("repair", now.members, "slurmd is stopped"))
        if sum(isinstance(answer.refusal, StewardBudgetUsed) for answer in answers) == 3:
            refused.set()

    platform.add_instance({"worker": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await refused.wait()
    assert repaired == ["slurmd is stopped"] * 3
    used = [answer.refusal for answer in answers if isinstance(answer.refusal, StewardBudgetUsed)]
    assert used[0] is used[2], "the platform was asked again before the next request is possible"


async def test_a_repair_that_a_person_cancels_stops_and_is_not_requested_again(
    app: App, platform: FakePlatform, working: Working
) -> None:
    refused, begun = asyncio.Event(), asyncio.Event()

    @app.operation("repair", role="worker")
    async def repair(op: Operation) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.health()
    async def look(now: Reconciliation) -> None:
        if isinstance((await now.request("repair", now.members, "slurmd is stopped")).refusal, StewardBudgetUsed):
            refused.set()

    instance = platform.add_instance({"worker": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await begun.wait()
        (operation,) = platform.records.operations.values()
        assert not operation.can_undo
        platform.cancel(operation.operation_id)
        assert (await platform.ended(operation.operation_id)).status == "cancelled"
        await refused.wait()
    assert [item.kind for item in platform.records.operations.values()] == ["repair"]
    assert platform.members(instance)[0].status == "ready"


async def test_actions_that_run_again_and_again_do_not_stop_looks(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looking, release, ended, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()

    @app.action("rotate")
    async def rotate(_: Operation) -> dict[str, str]:
        return {}

    @app.health()
    async def look(_: Reconciliation) -> None:
        looking.set()
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.append("by an action")
            raise
        ended.set()

    instance = platform.add_instance({}, ready=True)
    async with working(look_every_s=3600), asyncio.timeout(60):
        await looking.wait()
        for _ in range(3):
            await platform.ended(platform.invoke(instance, "rotate").operation_id)
        release.set()
        await ended.wait()
        assert cancelled == []


async def test_a_process_that_lost_the_stewardship_reports_nothing(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looking, taken, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        looking.set()
        await taken.wait()
        try:
            await now.report([ReportedCondition(type="Late", status="true")])
        except LeaseLost:
            refused.set()
            raise

    instance = platform.add_instance({}, ready=True)
    async with working(look_every_s=3600), asyncio.timeout(60):
        await looking.wait()
        steward = platform.stewards.by_instance[instance.instance_id]
        platform.stewards.by_instance[instance.instance_id] = replace(steward, holder="other", epoch=steward.epoch + 1)
        taken.set()
        await refused.wait()
    assert platform.instance(instance.instance_id).conditions == []


async def test_a_process_whose_report_was_refused_for_its_epoch_closes_its_connections(
    app: App, platform: FakePlatform, working: Working, machines: FakeMachines
) -> None:
    connected, taken = asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.machine(now.members[0])
        connected.set()
        await taken.wait()
        await now.report([ReportedCondition(type="Late", status="true")])

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(look_every_s=3600), asyncio.timeout(60):
        await connected.wait()
        steward, later = platform.stewards.by_instance[instance.instance_id], datetime.timedelta(hours=1)
        other = replace(steward, holder="other", epoch=steward.epoch + 1, expires_at=steward.expires_at + later)
        platform.stewards.by_instance[instance.instance_id] = other
        taken.set()
        while machines.open_connections:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)


async def test_a_connection_that_cannot_be_closed_delays_no_renewal(
    app: App, platform: FakePlatform, client: Client, machines: FakeMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "CLOSE_S", 3600.0)
    connected, closing, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.machine(now.members[0])
        connected.set()

    @contextlib.asynccontextmanager
    async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
        async with machines.connect(target) as machine:
            yield machine
        closing.set()
        await closed.wait()  # a frozen machine does not confirm the end

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    settings = RunnerSettings(claim_wait_s=0.05, health=HealthSettings(interval_s=3600, lease_s=3))
    running = asyncio.ensure_future(
        app.runner(client, platform.project_id, "one", settings=settings, connect=connect).run()
    )
    async with asyncio.timeout(60):
        await connected.wait()
        steward = platform.stewards.by_instance[instance.instance_id]
        platform.stewards.by_instance[instance.instance_id] = replace(steward, holder="other", epoch=steward.epoch + 1)
        await closing.wait()
        renewals = platform.stewards.renewals
        while platform.stewards.renewals == renewals:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
        closed.set()
        running.cancel()
        await asyncio.wait({running})


async def test_a_machine_is_read_over_one_connection_that_cannot_write_and_ends_with_the_process(
    app: App, platform: FakePlatform, working: Working, machines: FakeMachines
) -> None:
    looks, enough = list[str](), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        machine = await now.machine(now.members[0])
        await machine.run("df", "/")
        with pytest.raises(CommandFailed, match="Permission denied"):
            await machine.put("/etc/motd", "hello")
        looks.append(machine.hostname)
        if len(looks) == 5:
            enough.set()

    platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await enough.wait()
        assert machines.open_connections == 1
    assert machines.open_connections == 0
    (target,) = machines.connected
    assert (target.user, target.is_privileged) == ("observer", False)
    assert [name for name, _ in platform.calls].count(MACHINE_ACCESS.name) == 1
    assert machines.host("n1").files == {}


async def test_what_a_handler_keeps_lasts_until_another_process_looks(
    app: App, platform: FakePlatform, working: Working
) -> None:
    looks, three, lost = list[int](), asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        now.kept["looks"] = now.kept.get("looks", 0) + 1
        looks.append(now.kept["looks"])
        if looks[-1] == 3:
            three.set()
        if three.is_set() and looks[-1] == 1:
            lost.set()

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await three.wait()
        steward = platform.stewards.by_instance[instance.instance_id]
        other = replace(steward, holder="other", epoch=steward.epoch + 1, expires_at=platform.records.clock())
        platform.stewards.by_instance[instance.instance_id] = other
        await lost.wait()
    assert looks[:3] == [1, 2, 3]


async def test_a_process_that_stops_closes_the_connections_of_all_instances_at_the_same_time(
    app: App, platform: FakePlatform, client: Client, machines: FakeMachines
) -> None:
    looked, both_looked = set[str](), asyncio.Event()
    closing, closed = asyncio.Barrier(2), list[str]()

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.machine(now.members[0])
        looked.add(now.instance.name)
        if len(looked) == 2:
            both_looked.set()

    @contextlib.asynccontextmanager
    async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
        async with machines.connect(target) as machine:
            yield machine
        await closing.wait()
        closed.append(target.host)

    platform.add_instance({"head": ["n1"]}, name="one", ready=True)
    platform.add_instance({"head": ["n2"]}, name="two", ready=True)
    runner = app.runner(client, platform.project_id, "test", connect=connect)
    running = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(60):
        await both_looked.wait()
        running.cancel()
        await asyncio.wait({running})
    assert sorted(closed) == ["n1", "n2"]


async def test_a_sample_from_before_a_change_of_a_member_is_not_used_after_it(
    app: App, platform: FakePlatform, working: Working, machines: FakeMachines
) -> None:
    samples, first, changed = list[tuple[str, str]](), asyncio.Event(), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        member, host = now.members[0], machines.host("n1")
        if member.status == "degraded" and len(host.printed) == 1:
            host.printed += ["observed before, printed after", "degraded"]
        samples.append((member.status, await now.sample(member, "print('…')", silent_s=20)))
        (changed if member.status == "degraded" else first).set()

    machines.host("n1").printed = ["ready"]
    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working(), asyncio.timeout(60):
        await first.wait()
        platform.records.change_member(platform.members(instance)[0], status="degraded")
        platform.records.update_status(platform.records.instances[instance.instance_id])
        await changed.wait()
    assert set(samples) == {("ready", "ready"), ("degraded", "degraded")}


async def test_a_machine_that_does_not_answer_is_tried_again_with_the_same_certificate(
    app: App, platform: FakePlatform, working: Working, machines: FakeMachines
) -> None:
    failures, again = list[str](), asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        try:
            await (await now.machine(now.members[0])).run("df", "/")
            again.set()
        except MachineUnreachable as error:
            failures.append(str(error))
            machines.host("n1").reachable = len(failures) == 3

    platform.add_instance({"head": ["n1"]}, ready=True)
    machines.host("n1").reachable = False
    async with working(), asyncio.timeout(60):
        await again.wait()
    assert (len(failures), [name for name, _ in platform.calls].count(MACHINE_ACCESS.name)) == (3, 1)


async def test_the_people_of_the_project_are_read_once_for_all_instances(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen, enough = dict[str, tuple[PosixPerson, ...]](), asyncio.Event()
    platform.records.people.append(ADA)

    @app.health()
    async def look(now: Reconciliation) -> None:
        seen[now.instance.name] = await now.people()
        if len(seen) == 3:
            enough.set()

    for name in ("one", "two", "three"):
        platform.add_instance({}, name=name, ready=True)
    async with working(look_every_s=3600), asyncio.timeout(60):
        await enough.wait()
    assert seen == dict.fromkeys(("one", "two", "three"), (ADA,))
    assert [name for name, _ in platform.calls].count(POSIX_PEOPLE.name) == 1


async def test_a_change_of_the_people_causes_a_look_that_sees_it_at_every_instance(
    app: App, platform: FakePlatform, working: Working
) -> None:
    seen, joined = dict[str, list[str]](), {"one": asyncio.Event(), "two": asyncio.Event()}
    first = asyncio.Event()

    @app.health()
    async def look(now: Reconciliation) -> None:
        seen[now.instance.name] = [person.login for person in await now.people()]
        if len(seen) == 2:
            first.set()
        if "ada" in seen[now.instance.name]:
            joined[now.instance.name].set()

    for name in joined:
        platform.add_instance({}, name=name, ready=True)
    async with working(look_every_s=3600), asyncio.timeout(60):
        await first.wait()
        assert seen == {"one": [], "two": []}
        platform.records.people.append(ADA)
        for event in joined.values():
            await event.wait()
    assert seen == {"one": ["ada"], "two": ["ada"]}


async def test_without_a_platform_that_can_wait_people_are_read_at_each_interval(
    app: App, platform: FakePlatform, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = asyncio.Event()
    monkeypatch.setattr(platform.records, "people_digest", _no_such_route)

    @app.health()
    async def look(now: Reconciliation) -> None:
        if await now.people():
            joined.set()

    platform.add_instance({}, ready=True)
    async with working(look_every_s=0.05), asyncio.timeout(60):
        platform.records.people.append(ADA)
        await joined.wait()
