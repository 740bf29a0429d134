"""What a controller reports of itself: failures between operations and its log, bounded, and without secrets."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
import structlog
from gpuaas_contract import characters
from gpuaas_contract.controllers import (
    CONTROLLER_LOG,
    FAILURES_MAX,
    LINE_BYTES_MAX,
    LINES_MAX,
    ControllerFailure,
    ControllerLogLine,
    ControllerReport,
    ControllerState,
)
from gpuaas_contract.errors import CircuitOpen, NotFound, ValidationFailed
from gpuaas_contract.protocol import controllers as rules
from gpuaas_contract.runtime import CLAIM, ClaimOperation
from gpuaas_contract.stewardships import OPERATION_REQUEST
from gpuaas_sdk.client import Client, request
from gpuaas_sdk.controller import App, HealthSettings, Operation, Reconciliation, RunnerSettings, logs
from gpuaas_sdk.controller.redaction import REDACTED, Redaction
from gpuaas_sdk.controller.self_report import NotedFailure, SelfReport
from gpuaas_sdk.machine import MachineUnreachable
from gpuaas_sdk.testing import FakeMachines, FakePlatform
from gpuaas_sdk.testing.platform.edge import Fate, Received

log = structlog.get_logger()
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
CRASHED = NotedFailure("look", "crashed", "KeyError: 'gpu'")


@pytest.fixture(autouse=True)
def as_in_a_controller() -> Iterator[None]:
    logs.configure()
    yield
    structlog.reset_defaults()


def due(report: SelfReport) -> ControllerReport:
    sent = report.due()
    assert sent is not None
    return sent


def test_a_failure_counts_the_looks_in_a_row_and_ends_with_a_look_that_works() -> None:
    report = SelfReport(0)
    for second in range(3):
        report.looked("inst_1", [CRASHED], now=NOW + second * SECOND)
    (failure,) = due(report).failures
    assert (failure.count, failure.failed_since, failure.observed_at) == (3, NOW, NOW + 2 * SECOND)
    assert (failure.task, failure.code, failure.instance_id) == ("look", "crashed", "inst_1")
    report.looked("inst_1", [], now=NOW)
    assert due(report).failures == []


def test_failures_of_other_instances_stay_when_one_works_again() -> None:
    report = SelfReport(0)
    for name in ("inst_1", "inst_2"):
        report.looked(name, [CRASHED])
    report.looked("inst_1", [])
    assert [failure.instance_id for failure in due(report).failures] == ["inst_2"]
    report.forget("inst_2")
    assert due(report).failures == []


def test_nothing_is_sent_while_nothing_has_changed_and_not_more_often_than_allowed() -> None:
    time = [0.0]
    report = SelfReport(5, clock=lambda: time[0])
    assert due(report).number == 1
    report.log.add("info", "e", {})
    assert report.due() is None, "reported twice within the interval"
    time[0] = 5
    assert [line.event for line in due(report).log] == ["e"]
    time[0] = 10
    assert report.due() is None, "reported without a change"


def test_a_quiet_process_reports_before_it_counts_as_ended() -> None:
    time = [0.0]
    report = SelfReport(5, clock=lambda: time[0])
    known = rules.state(due(report), NOW)
    predecessor = msgspec.structs.replace(due(SelfReport(5)), started_at=known.started_at - SECOND)
    for step in range(1, 31):
        time[0] = step * 20.0
        now = NOW + step * 20 * SECOND
        sent = report.due()
        known = rules.state(sent, now) if sent is not None else known
        assert not rules.replaces(known, predecessor, now)
    assert known.number <= 11, "an unchanged report is sent with each claim"


def test_a_report_has_the_newest_lines_and_failures_only() -> None:
    report = SelfReport(0)
    for number in range(LINES_MAX + 10):
        report.log.add("error", f"e{number}", {"text": "x" * 10_000, **{f"k{n}": "y" * 200 for n in range(20)}})
    for number in range(FAILURES_MAX + 5):
        report.looked(f"inst_{number}", [CRASHED], now=NOW + number * SECOND)
    sent = due(report)
    assert [line.event for line in sent.log] == [f"e{number}" for number in range(10, LINES_MAX + 10)]
    assert max(len(msgspec.json.encode(line.fields)) for line in sent.log) <= LINE_BYTES_MAX
    assert (len(sent.failures), sent.failures_total) == (FAILURES_MAX, FAILURES_MAX + 5)
    assert sent.failures[0].instance_id == f"inst_{FAILURES_MAX + 4}"
    assert msgspec.json.decode(msgspec.json.encode(sent), type=ControllerReport) == sent, "the platform would refuse it"


def test_secrets_are_replaced_in_failures_and_lines_also_in_those_from_before() -> None:
    report, secret = SelfReport(0), "s3cret-of-a-member"
    report.looked("inst_1", [NotedFailure("look", "crashed", "x" * 490 + secret)])
    report.log.add("warning", "join.failed", {"command": ["join", f"--token={secret}"]})
    report.log.redaction.hide(secret)
    sent = due(report)
    assert secret[:8] not in msgspec.json.encode(sent).decode()
    assert sent.log[0].fields == {"command": ["join", f"--token={REDACTED}"]}


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\x1b", "\u202e", "\udcff"])
def test_a_report_of_any_characters_is_one_that_the_platform_accepts(character: str) -> None:
    report = SelfReport(0)
    with logs.collected(report.log):
        log.info(f"{character * 300}", text=character * 600, **{f"{character}key": {character: [character]}})
        log.info("line.long", text="x" * 490 + character, more="y" * 380 + character * 100)
    report.looked("inst_1", [NotedFailure("look", "crashed", character * 600)])
    content = request.content(CLAIM, ClaimOperation(app_slug="a", holder="h", claim_id="c", report=due(report)))
    assert content is not None
    sent = msgspec.json.decode(content, type=ClaimOperation).report
    assert sent is not None
    assert (len(sent.log), len(sent.failures)) == (2, 1)
    assert max(len(msgspec.json.encode(line.fields)) for line in sent.log) <= LINE_BYTES_MAX
    assert characters.refused(content.decode()) == ""


def test_numbers_that_the_platform_refuses_are_sent_as_text() -> None:
    report = SelfReport(0)
    report.log.add("info", "e", {"jobs": 2**64 - 2, "least": -(2**63), "most": 2**63 - 1})
    assert due(report).log[0].fields == {"jobs": "18446744073709551614", "least": -(2**63), "most": 2**63 - 1}


def test_values_that_only_look_like_text_and_numbers_are_sent_as_such() -> None:
    class Name(str):
        __slots__ = ()

    class Size(int):
        pass

    report = SelfReport(0)
    report.log.add("info", "e", {"name": Name("n1"), "size": Size(3), "ratio": float("inf")})
    assert msgspec.json.decode(msgspec.json.encode(due(report).log[0].fields)) == {
        "name": "n1",
        "size": 3,
        "ratio": "inf",
    }


def test_a_line_is_cleaned_again_only_if_there_is_a_new_secret() -> None:
    report = SelfReport(0)
    report.log.redaction.hide("a-secret")
    for number in range(3):
        report.log.add("info", f"e{number}", {"token": "another-secret"})
    before = report.log.newest()
    report.log.redaction.hide("a-secret")
    report.log.add("info", "e3", {})
    after = report.log.newest()
    assert [id(line) for line in after[:3]] == [id(line) for line in before]
    report.log.redaction.hide("another-secret")
    assert [line.fields for line in report.log.newest()] == [{"token": REDACTED}] * 3 + [{}]


def test_very_long_texts_are_shortened_before_secrets_are_searched_in_them() -> None:
    class Measured(Redaction):
        longest = 0

        def hidden(self, value: Any, *others: Redaction) -> Any:
            self.longest = max(self.longest, len(value) if isinstance(value, str) else 0)
            return super().hidden(value, *others)

    report = SelfReport(0)
    report.log.redaction = redaction = Measured()
    with logs.collected(report.log):
        log.info("e" * 1_000_000, text=f"first{'x' * 1_000_000}last")
    report.looked("inst_1", [NotedFailure("look", "crashed", "x" * 1_000_000)])
    text = due(report).log[0].fields["text"]
    assert (text[:5], text[-4:]) == ("first", "last")
    assert redaction.longest < 20_000


@pytest.fixture
def shown(app: App, client: Client, platform: FakePlatform, machines: FakeMachines) -> "Shown":
    return Shown(app, client, platform, machines)


class Shown:
    """A controller at work, and what the platform shows of it."""

    def __init__(self, app: App, client: Client, platform: FakePlatform, machines: FakeMachines) -> None:
        self._app, self._client, self._platform, self._machines = app, client, platform, machines

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        health = HealthSettings(interval_s=0.05, lease_s=3)
        settings = RunnerSettings(claim_wait_s=0.05, report_every_s=0, health=health)
        runner = self._app.runner(
            self._client, self._platform.project_id, "one", settings=settings, connect=self._machines.connect
        )
        task = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def until(self, holds: Callable[[ControllerState], bool]) -> ControllerState:
        while True:
            known = self._platform.observations.controllers.get("one")
            if known is not None and known.state is not None and holds(known.state):
                return known.state
            await asyncio.sleep(0.01)

    async def failure(self, code: str) -> ControllerFailure:
        state = await self.until(lambda state: any(item.code == code for item in state.failures))
        return next(item for item in state.failures if item.code == code)


async def test_a_handler_that_raises_is_shown_until_it_works_again(
    app: App, platform: FakePlatform, shown: Shown
) -> None:
    broken = [True]

    @app.health()
    async def look(now: Reconciliation) -> None:
        if broken[0]:
            raise KeyError("gpu")

    instance = platform.add_instance({}, ready=True)
    async with shown.working():
        failure = await shown.failure("crashed")
        assert failure.message == "The health check of the app crashed: KeyError: 'gpu'"
        assert (failure.task, failure.instance_id) == ("look", instance.instance_id)
        await shown.until(lambda state: any(item.count > 1 for item in state.failures))
        broken[0] = False
        await shown.until(lambda state: not state.failures)


async def test_a_machine_that_does_not_answer_is_shown_also_if_the_handler_catches_it(
    app: App, platform: FakePlatform, machines: FakeMachines, shown: Shown
) -> None:
    @app.health()
    async def look(now: Reconciliation) -> None:
        with contextlib.suppress(MachineUnreachable):
            await now.machine(now.members[0])

    platform.add_instance({"head": ["n1"]}, ready=True)
    machines.host("n1").reachable = False
    async with shown.working():
        failure = await shown.failure("unreachable")
        assert (failure.task, "n1" in failure.message) == ("machine", True)
        machines.host("n1").reachable = True
        await shown.until(lambda state: not state.failures)


async def test_an_open_breaker_and_a_used_limit_are_shown(app: App, platform: FakePlatform, shown: Shown) -> None:
    @app.operation("repair", role="worker")
    async def repair(op: Operation) -> None:
        return None

    @app.health()
    async def look(now: Reconciliation) -> None:
        await now.request("repair", now.members, "it is down")

    async def refuse(call: Received) -> Fate:
        if call.name == OPERATION_REQUEST.name and is_open[0]:
            raise CircuitOpen("The breaker of worker is open.")
        return "serve"

    is_open = [True]
    platform.on_call(refuse)
    platform.add_instance({"worker": ["n1"]}, ready=True)
    async with shown.working():
        assert (await shown.failure("circuit_open")).message == "repair: The breaker of worker is open."
        is_open[0] = False
        assert (await shown.failure("steward_budget_used")).task == "request"


async def test_lines_that_belong_to_no_operation_are_read_back_without_secrets(
    app: App, platform: FakePlatform, client: Client, shown: Shown
) -> None:
    secrets: list[str] = []

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        secrets.append(await op.secret("role_join", "random"))
        log.info("operation.line")

    @app.health()
    async def look(now: Reconciliation) -> None:
        log.info("looked.at", token=secrets[0])

    instance = platform.add_instance({"head": ["n0"]})
    where: dict[str, Any] = {"query": {"controller_id": f"{platform.project_id}/demo/one"}}
    with pytest.raises(NotFound):
        await client.call(CONTROLLER_LOG, project_id=platform.project_id, **where)
    lines: dict[str, ControllerLogLine] = {}
    async with shown.working():
        await platform.ended(platform.request(instance, "deploy").operation_id)
        while "looked.at" not in lines:
            page = await client.call(CONTROLLER_LOG, project_id=platform.project_id, **where)
            lines = {line.event: line for line in page.items}
    assert lines["looked.at"].fields == {"instance_id": instance.instance_id, "token": REDACTED}
    assert "operation.line" not in lines, "it is in the log of its operation"


async def test_the_condition_of_a_crashed_look_has_no_secret(app: App, platform: FakePlatform, shown: Shown) -> None:
    secrets: list[str] = []

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        secrets.append(await op.secret("role_join", "random"))

    @app.health()
    async def look(now: Reconciliation) -> None:
        if secrets:
            raise RuntimeError(f"{'x' * 900}{secrets[0]}")

    instance = platform.add_instance({"head": ["n0"]})
    message = ""
    async with shown.working():
        await platform.ended(platform.request(instance, "deploy").operation_id)
        await shown.failure("crashed")
        while not message:
            conditions = platform.instance(instance.instance_id).conditions
            message = next((item.message for item in conditions if item.type == "HealthCheckWorks"), "")
            await asyncio.sleep(0.01)
    assert (secrets[0][:8] in message, REDACTED[:4] in message) == (False, True)


async def test_a_refused_report_does_not_stop_the_work(app: App, platform: FakePlatform, shown: Shown) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        return None

    async def refuse(call: Received) -> Fate:
        if call.name == CLAIM.name and call.body.report is not None:
            raise ValidationFailed("The report is not valid.")
        return "serve"

    platform.on_call(refuse)
    instance = platform.add_instance({})
    async with shown.working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.status == "succeeded"


async def test_bytes_that_are_not_text_in_a_failure_do_not_end_the_controller(
    app: App, platform: FakePlatform, shown: Shown
) -> None:
    @app.health()
    async def look(now: Reconciliation) -> None:
        log.info("looked.at", name="\udcff")
        raise ValueError("\udcff")

    instance = platform.add_instance({}, ready=True)
    async with shown.working():
        assert "ValueError: \ufffd" in (await shown.failure("crashed")).message
        await shown.until(lambda state: any(item.count > 1 for item in state.failures))
    conditions = platform.instance(instance.instance_id).conditions
    assert [item.reason for item in conditions if item.type == "HealthCheckWorks"] == ["crashed"]
