"""Machines a handler gets: shared connections, renewed certificates, refused grants."""

import asyncio
import datetime
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess
from gpuaas_contract.catalog import ArtifactRef
from gpuaas_contract.instances import Instance
from gpuaas_contract.operations import OperationKind
from gpuaas_contract.runtime import STEP_REPORT
from gpuaas_contract.wire import PAGE_SIZE_MAX
from gpuaas_sdk.controller import App, Member, Operation, members, rules
from gpuaas_sdk.controller.operation.machines import Machines
from gpuaas_sdk.machine import Command, Completed
from gpuaas_sdk.testing import FakeMachines, FakePlatform

Working = Callable[..., AbstractAsyncContextManager[None]]


async def grant(allocation_id: str, public_key: str) -> MachineAccess:
    return MachineAccess(
        grant_id="g",
        certificate="c",
        serial="1",
        principal=allocation_id,
        host=allocation_id,
        port=22,
        user="root",
        host_public_key="h",
        expires_at=datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=600),
    )


async def test_two_members_on_one_machine_share_its_connection(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        async def touch(member: Member) -> None:
            machine = await op.machine(member)
            assert (machine.hostname, machine.address) == ("n1", "n1")
            await machine.put(f"/etc/{member.component_key}", "x")

        await op.each(op.targets, touch)

    instance = platform.add_instance({"head": ["n1"], "worker": ["n1"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.status == "succeeded"
    assert set(machines.host("n1").files) == {"/etc/head", "/etc/worker"}
    assert (len(machines.connected), machines.open_connections) == (1, 0)
    grants = [body for name, body in platform.calls if name == MACHINE_ACCESS.name]
    assert [(body.operation_id, body.epoch) for body in grants] == [(ended.operation_id, 1)]
    assert grants[0].public_key.startswith("ssh-ed25519 ")
    assert "PRIVATE KEY" in machines.connected[0].private_key


async def test_a_machine_of_an_instance_with_more_members_than_a_page_is_found(
    app: App, platform: FakePlatform, working: Working
) -> None:
    used: dict[str, bool] = {}
    large = platform.add_instance({"worker": [f"n{number}" for number in range(PAGE_SIZE_MAX + 1)]}, ready=True)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        for member in op.members:
            used[member.node_name] = await op.is_used_by(large.instance_id, member)

    instance = platform.add_instance({"head": ["other", f"n{PAGE_SIZE_MAX}"]}, ready=True)
    async with working():
        await platform.ended(platform.request(instance, "deploy").operation_id)
    assert used == {"other": False, f"n{PAGE_SIZE_MAX}": True}


async def test_an_old_certificate_is_renewed_and_a_running_command_keeps_its_connection() -> None:
    now, fake, started, go_on = 0.0, FakeMachines(), asyncio.Event(), asyncio.Event()
    owner = Machines(grant, fake.connect, lambda line: None, clock=lambda: now)
    machine = await owner.machine("a", "a")
    execute = fake.host("a").execute

    async def slow_get(command: Command) -> Completed:
        if command.summary[0] == "get":
            started.set()
            await go_on.wait()
        return await execute(command)

    fake.host("a").execute = slow_get  # type: ignore[method-assign]
    reading = asyncio.create_task(machine.get("/etc/x"))
    await started.wait()
    now = 481.0
    await machine.run("true")
    assert (len(fake.connected), fake.open_connections) == (2, 2)
    go_on.set()
    await reading
    assert fake.open_connections == 1
    await owner.close()
    assert fake.open_connections == 0


async def test_a_machine_that_went_away_is_reached_again_by_the_next_try(
    app: App, platform: FakePlatform, machines: FakeMachines, working: Working
) -> None:
    async def restart(op: Operation, member: Member) -> None:
        machine = await op.machine(member)
        host = machines.host(member.address)
        host.reachable = bool(host.files)
        host.files["/tried"] = b""
        try:
            await machine.run("systemctl", "restart", "x")
        finally:
            host.reachable = True

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("restart", restart, op, op.targets[0])

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.status == "succeeded"
    assert len(machines.connected) == 2


async def test_a_refused_grant_fails_the_operation_with_the_reason(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        head = op.targets[0]
        elsewhere = type(head)(**{**{n: getattr(head, n) for n in head.__struct_fields__}, "allocation_id": "alloc_x"})
        await op.machine(elsewhere)

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("app_failed", "repairable")
    assert "alloc_x" in ended.error.message


def placing(app: App, platform: FakePlatform) -> Instance:
    """An app whose deploy puts its tool on the head's machine and reports the path."""

    async def install(op: Operation) -> None:
        path = await op.place("tool", op.targets[0], mode="0755")
        await op.say(path)

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.step("install", install, op, member=op.targets[0])

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    platform.add_artifact(instance, "tool", b"bits")
    return instance


async def test_an_artifact_is_placed_on_a_members_machine_and_the_step_has_it_on_record(
    app: App, platform: FakePlatform, working: Working
) -> None:
    instance = placing(app, platform)
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.status == "succeeded", ended.error
    (placement,) = platform.placements
    assert (placement.state, placement.node_name, placement.mode) == ("placed", "n1", "0755")
    assert placement.path.endswith(f"/alloc_n1/sha256/{hashlib.sha256(b'bits').hexdigest()}")
    (step,) = ended.steps
    assert step.transcript is not None
    assert step.transcript.commands == 1
    messages = [body.message for name, body in platform.calls if name == STEP_REPORT.name]
    assert messages == ["", "n1 fetches tool: 4 bytes", placement.path, ""]


async def test_a_decommission_leaves_no_artifact_of_this_and_the_previous_version_on_the_machine(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        for name in ("server", "tools"):
            await op.place(name, op.members[0])
        await op.advance(op.members[0], "joining")
        await op.report(op.members[0], status="ready")

    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await op.unplace("tools", op.members[0])
        await op.unplace("tools", op.members[0])
        await op.report(op.members[0], status="drained")

    @app.operation("decommission")
    async def decommission(op: Operation) -> None:
        await op.unplace_all(op.members[0])
        await op.report(op.members[0], status="removing")
        await op.report(op.members[0], status="removed")

    instance = platform.add_instance({"head": ["n1"]})
    for name in ("server", "tools"):
        platform.add_artifact(instance, name, name.encode())
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
        assert ended.status == "succeeded", ended.error
        assert [item.state for item in platform.placements] == ["placed", "placed"]
        ended = await platform.ended(platform.request(instance, "stop").operation_id)
        assert ended.status == "succeeded", ended.error
        on_machine = {item.name for item in platform.placements if item.state == "placed"}
        assert on_machine == {"server"}
        ended = await platform.ended(platform.request(instance, "decommission", force=True).operation_id)
        assert ended.status == "succeeded", ended.error
    assert {item.state for item in platform.placements} == {"removed"}


@pytest.mark.parametrize(
    ("kind", "from_version", "to_version", "previous", "backs_out", "left"),
    [
        ("upgrade", "2", "3", "1", False, {"1"}),
        ("upgrade", "2", "3", "", False, set()),
        ("upgrade", "2", "1", "1", False, set()),
        ("upgrade", "2", "3", "1", True, {"3"}),
        ("rollback", "2", "1", "1", False, {"2"}),
        ("rollback", "2", "1", "1", True, set()),
        ("restart", "", "", "1", False, set()),
    ],
)
def test_the_version_to_which_an_instance_cannot_return_is_left(
    platform: FakePlatform,
    kind: OperationKind,
    from_version: str,
    to_version: str,
    previous: str,
    backs_out: bool,
    left: set[str],
) -> None:
    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    record = msgspec.structs.replace(
        platform.request(instance, "stop"), kind=kind, from_version=from_version, to_version=to_version
    )
    now = msgspec.structs.replace(instance, app_version="2", previous_version=previous)
    assert rules.versions_left(record, now, backs_out=backs_out)[0] == left


async def test_an_upgrade_removes_what_neither_its_version_nor_the_one_before_uses(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("upgrade")
    async def upgrade(op: Operation) -> None:
        (member,) = op.members
        for name in ("server", "tools"):
            await op.place(name, member)
        await members.drop_left(op, member)
        await op.report(member, status="ready")

    tools = platform.artifacts.put("tools", b"the same in all versions")
    servers = {f"{number}.0.0": platform.artifacts.put("server", b"%d" % number) for number in (1, 2, 3, 4)}
    for version, server in servers.items():
        listed = {"server": ArtifactRef(digest=server.digest), "tools": ArtifactRef(digest=tools.digest)}
        platform.add_version(msgspec.structs.replace(app.manifest, version=version, artifacts=listed))
    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    platform.records.instances[instance.instance_id] = msgspec.structs.replace(instance, app_version="1.0.0")
    async with working():
        for version in list(servers)[1:]:
            now = platform.instance(instance.instance_id)
            ended = await platform.ended(platform.request(now, "upgrade", to_version=version).operation_id)
            assert ended.status == "succeeded", ended.error
    placed = {item.digest for item in platform.placements if item.state == "placed"}
    assert placed == {servers["3.0.0"].digest, servers["4.0.0"].digest, tools.digest}


async def test_why_a_machine_kept_an_artifact_fails_the_operation(
    app: App, platform: FakePlatform, working: Working
) -> None:
    @app.operation("stop")
    async def stop(op: Operation) -> None:
        await op.unplace("server", op.members[0])

    instance = platform.add_instance({"head": ["n1"]}, ready=True)
    platform.add_artifact(instance, "server", b"content")
    platform.fail_placement("allocation_gone", "the allocation is no longer on this node")
    async with working():
        ended = await platform.ended(platform.request(instance, "stop").operation_id)
    assert ended.error is not None
    assert "Artifact server could not be removed from n1: allocation_gone" in ended.error.message


async def test_a_machine_that_was_silent_is_asked_again(app: App, platform: FakePlatform, working: Working) -> None:
    instance = placing(app, platform)
    platform.fail_placement("no_answer")
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.status == "succeeded", ended.error
    assert [placement.state for placement in platform.placements] == ["failed", "placed"]


@pytest.mark.parametrize(
    ("code", "failure_class", "fix"),
    [
        ("artifact_revoked", "repairable", "Stop using this digest; publish and verify another artifact."),
        ("disk_full", "needs_operator", "Free disk space on n1, then retry the operation."),
        ("allocation_released", "repairable", ""),
    ],
)
async def test_why_a_machine_did_not_get_an_artifact_fails_the_operation(
    app: App, platform: FakePlatform, working: Working, code: str, failure_class: str, fix: str
) -> None:
    instance = placing(app, platform)
    platform.fail_placement(code, "so it is")
    async with working():
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)
    assert ended.error is not None
    assert (ended.error.failure_class, ended.error.fix) == (failure_class, fix)
    assert ended.error.message == f"Artifact tool could not be placed on n1: {code}: so it is"
