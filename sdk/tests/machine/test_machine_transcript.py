"""What a controller did on machines is on the record: a line per command in its log, their digest on the step."""

import asyncio
import contextlib
import datetime
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
import structlog
from gpuaas_contract.operations import Operation as Record
from gpuaas_sdk.controller import App, Operation
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import CommandFailed, Machine, MachineUnreachable, Ran
from gpuaas_sdk.machine.record import RecordingTransport
from gpuaas_sdk.machine.transcript import TranscriptLine, transcript_of
from gpuaas_sdk.testing import FakeMachines, FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]
CANARY = "correct horse battery staple"


@pytest.fixture
def lines() -> list[TranscriptLine]:
    return []


@pytest.fixture
def fake() -> FakeMachines:
    return FakeMachines(lambda argv: Ran(3, "", "no such unit") if argv[0] == "systemctl" else Ran(0, "out", "err"))


@pytest.fixture
def machine(fake: FakeMachines, lines: list[TranscriptLine]) -> Machine:
    return Machine(RecordingTransport(fake.host("n1"), lines.append))


async def test_a_command_is_written_down_with_its_end_and_the_digest_of_its_output(
    machine: Machine, lines: list[TranscriptLine]
) -> None:
    await machine.run("hostname", "-s")
    (line,) = lines
    assert (line.machine, line.argv, line.exit_status) == ("n1", ("hostname", "-s"), 0)
    assert line.output_sha256 == hashlib.sha256(b"outerr").hexdigest()
    assert line.duration_ms >= 0


async def test_a_command_that_failed_is_written_down_too(machine: Machine, lines: list[TranscriptLine]) -> None:
    with pytest.raises(CommandFailed):
        await machine.run("systemctl", "start", "x")
    assert (lines[0].exit_status, lines[0].output_sha256) == (3, hashlib.sha256(b"no such unit").hexdigest())


async def test_of_a_machine_that_went_away_no_exit_status_is_known(
    machine: Machine, fake: FakeMachines, lines: list[TranscriptLine]
) -> None:
    fake.host("n1").reachable = False
    with pytest.raises(MachineUnreachable):
        await machine.run("true")
    assert lines[0].exit_status is None
    assert "the test disconnected it" in lines[0].error


async def test_what_a_command_reads_or_a_file_holds_is_in_no_line(
    machine: Machine, lines: list[TranscriptLine]
) -> None:
    await machine.run("chpasswd", input=CANARY)
    await machine.put("/etc/secret", CANARY)
    await machine.script(f"echo {CANARY}")
    assert await machine.get("/etc/secret") == CANARY.encode()
    assert await machine.get("/etc/none") is None
    assert len(lines) == 5
    written = msgspec.json.encode(lines).decode()
    assert CANARY not in written
    assert hashlib.sha256(f"root:{CANARY}".encode()).hexdigest() not in written


async def test_following_a_log_is_one_line_with_the_digest_of_what_was_read(
    machine: Machine, fake: FakeMachines, lines: list[TranscriptLine]
) -> None:
    fake.host("n1").files["/var/log/x"] = b"one\ntwo\n"
    async with contextlib.aclosing(machine.follow("/var/log/x", lines=2)) as following:
        assert [await anext(following), await anext(following)] == ["one", "two"]
    assert (lines[0].argv, lines[0].output_sha256) == (
        ("follow", "/var/log/x"),
        hashlib.sha256(b"one\ntwo\n").hexdigest(),
    )


def test_another_line_or_another_order_is_another_digest() -> None:
    first, second = (line("n1", "true"), line("n1", "false"))
    digests = {
        transcript.sha256
        for given in ([first], [second], [first, second], [second, first])
        if (transcript := transcript_of(given)) is not None
    }
    assert len(digests) == 4
    assert transcript_of([]) is None


def line(machine: str, *argv: str) -> TranscriptLine:
    return TranscriptLine(machine, argv, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 1, "")


async def test_each_step_carries_the_digest_of_its_own_commands(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    async def touch(op: Operation, path: str) -> None:
        host = await op.machine(op.targets[0])
        await host.put(path, "x")
        await host.run("sync")

    async def think(op: Operation) -> None:
        await op.say("no machine needed")

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await asyncio.gather(op.step("one", touch, op, "/one"), op.step("two", touch, op, "/two"))
        await op.step("think", think, op)

    with structlog.testing.capture_logs() as logged:
        ended = await deployed(platform, working)
    written = [
        (entry["step"], msgspec.convert(entry["transcript"], TranscriptLine))
        for entry in logged
        if entry["event"] == "machine.command"
    ]
    lines = {name: [line for step, line in written if step == name] for name in ("one", "two", "think")}
    commands = {name: [line.argv[0] for line in of_step] for name, of_step in lines.items()}
    assert commands == {"one": ["put", "sync"], "two": ["put", "sync"], "think": []}
    assert {step.name: step.transcript for step in ended.steps} == {
        name: transcript_of(of_step) for name, of_step in lines.items()
    }


async def test_a_failed_step_carries_its_transcript(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    async def fail(op: Operation) -> None:
        await (await op.machine(op.targets[0])).run("true")
        raise Permanent("the disk is full")

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("install", fail, op)

    ended = await deployed(platform, working)
    assert ended.steps[0].state == "failed"
    assert ended.steps[0].transcript is not None
    assert ended.steps[0].transcript.commands == 1


async def deployed(platform: FakePlatform, working: Working) -> Record:
    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working():
        return await platform.ended(platform.request(instance, "deploy").operation_id)
