"""The lines of a controller's log that reach the platform: which ones, without secrets, within bounds."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import structlog
from gpuaas_contract.protocol import log as log_rules
from gpuaas_contract.runtime import COMPLETE, FAIL, HEARTBEAT, LOG_BATCH_MAX, LOG_LINE_BYTES_MAX
from gpuaas_sdk.controller import App, Member, Operation, Permanent, logs
from gpuaas_sdk.controller.logs import OperationLog
from gpuaas_sdk.controller.redaction import REDACTED, Redaction
from gpuaas_sdk.testing import FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]
log = structlog.get_logger()


@pytest.fixture(autouse=True)
def as_in_a_controller() -> Iterator[None]:
    logs.configure()
    yield
    structlog.reset_defaults()


def events(platform: FakePlatform, operation_id: str) -> list[str]:
    return [line.event for line in platform.log(operation_id)]


async def _checked() -> None:
    return None


async def test_lines_of_the_kit_and_of_the_app_reach_the_platform_with_the_end(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        log.info("licence.checked", seats=4)
        log.debug("licence.details")
        await op.step("check the licence", _checked)
        raise Permanent("no licence")

    instance = platform.add_instance({"head": ["n0"]})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    lines = platform.log(ended.operation_id)
    assert events(platform, ended.operation_id) == ["operation.claimed", "licence.checked", "operation.failed"]
    assert [line.level for line in lines] == ["info", "info", "error"]
    assert lines[1].fields == {"seats": 4}
    assert [line.epoch for line in lines] == [1, 1, 1]


async def test_values_that_the_platform_delivered_are_replaced_also_in_lines_from_before(
    app: App, platform: FakePlatform, working: Working
) -> None:
    secrets: list[str] = []

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        log.info("key.chosen", key="my-own-join-key")
        secrets.append(await op.secret("role_join", "own", "my-own-join-key"))
        secrets.append(await op.secret("role_join", "random"))
        log.info("worker.joined", command=["join", f"--token={secrets[1]}"], **{secrets[1]: 1})

    instance = platform.add_instance({"head": ["n0"]})
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    sent = msgspec.json.encode([body.log for name, body in platform.calls if name in (HEARTBEAT.name, FAIL.name)])
    sent += msgspec.json.encode(platform.log(ended.operation_id))
    assert [secret for secret in secrets if secret.encode() in sent] == []
    joined = next(line for line in platform.log(ended.operation_id) if line.event == "worker.joined")
    assert joined.fields == {"command": ["join", f"--token={REDACTED}"], REDACTED: 1}


async def test_commands_on_machines_are_lines_of_the_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("add", role="worker")
    async def add(op: Operation) -> None:
        async def install(member: Member) -> None:
            machine = await op.machine(member)
            await op.step("install", _run, machine, member=member)
            await op.report(member, status="provisioning")
            await op.report(member, status="joining")
            await op.report(member, status="ready")

        await op.each(op.to_do, install)

    async def _run(machine: Any) -> None:
        await machine.run("true")

    instance = platform.add_instance({"head": ["n0"], "worker": ["n1"]})
    async with working():
        request = platform.request(instance, "add", platform.members(instance)[1:], component_key="worker")
        ended = await platform.ended(request.operation_id)
    assert ended.status == "succeeded", ended.error
    (line,) = [line for line in platform.log(ended.operation_id) if line.event == "machine.command"]
    assert (line.fields["transcript"]["machine"], line.fields["transcript"]["argv"]) == ("n1", ["true"])


async def test_more_lines_than_fit_into_one_request_are_sent_before_the_end(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("stop")
    async def stop(op: Operation) -> None:
        for number in range(3 * LOG_BATCH_MAX):
            log.info("number.counted", number=number)
        for member in op.targets:
            await op.report(member, status="drained")

    instance = platform.add_instance({"head": ["n0"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "stop").operation_id)
    counted = [line.fields["number"] for line in platform.log(ended.operation_id) if line.event == "number.counted"]
    assert counted == [*range(3 * LOG_BATCH_MAX)]
    last = next(body for name, body in platform.calls if name == COMPLETE.name)
    assert 0 < len(last.log) <= LOG_BATCH_MAX


def test_a_line_is_cut_to_its_bound_and_a_traceback_keeps_its_end() -> None:
    kept = OperationLog()
    kept.add("error", "crashed", {"exception": "Traceback" + "x" * 100_000 + "ValueError: boom"})
    kept.add("info", "e" * 10_000, {"many": ["\N{GRINNING FACE}" * 1000] * 100, "endless": float("inf")})
    crashed, many = kept.batch()
    assert crashed.fields["exception"].endswith("ValueError: boom")
    assert len(many.event) <= 200
    assert max(len(msgspec.json.encode(line.fields)) for line in (crashed, many)) <= LOG_LINE_BYTES_MAX


def test_a_secret_is_replaced_before_a_text_is_cut() -> None:
    kept, secret = OperationLog(), "s3cret-" * 10
    kept.hide(f"-----BEGIN-----\n{secret}\n-----END-----\n")
    kept.add("info", "printed", {"text": "x" * 740 + secret + "y" * 10_000})
    (line,) = kept.batch()
    assert "s3cret" not in msgspec.json.encode(line).decode()


def test_a_secret_that_contains_one_of_another_operation_is_replaced_whole() -> None:
    of_process = Redaction(1)
    kept = OperationLog(of_process, "prj_a")
    kept.hide("token-of-this-operation")
    of_process.hide("token", "prj_a")  # The process has room for one secret, and forgets the longer one.
    kept.add("info", "token-of-this-operation", {"text": "token-of-this-operation, and token"})
    (line,) = kept.batch()
    assert (line.event, line.fields) == (REDACTED, {"text": f"{REDACTED}, and {REDACTED}"})


def test_a_controller_that_logs_without_end_stops_to_send() -> None:
    kept = OperationLog()
    for _ in range(3 * log_rules.LINES_MAX):
        kept.add("info", "again", {})
    number = 0
    while batch := kept.batch():
        kept.sent(batch)
        number = batch[-1].number
    assert number == log_rules.LINES_MAX + 1
    kept.add("error", "failed", {})
    assert [line.event for line in kept.batch()] == ["failed"]


def test_a_secret_is_also_hidden_where_a_program_printed_it_with_escapes() -> None:
    secret, kept = 'pass"wo\\rd\nsecond line', OperationLog()
    kept.hide(secret)
    for text in (secret, repr(secret), json.dumps(secret), f"{ValueError(secret)!r}", repr(secret.splitlines()[0])):
        kept.add("error", "command.failed", {"error": text})
    assert "wo" not in msgspec.json.encode(kept.batch()).decode()
    assert "second" not in msgspec.json.encode(kept.batch()).decode()
