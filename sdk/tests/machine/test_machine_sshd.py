"""`Machine` over SSH against OpenSSH's own server on a machine of the lab, as root and as a user who needs sudo."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import msgspec
import pytest
from gpuaas_sdk.machine import CommandFailed, Machine, MachineTarget, MachineUnreachable, RemoteWork, connect
from gpuaas_sdk.machine.ssh import SshTransport

pytestmark = pytest.mark.machines
NOBODY_FOLLOWS = "while pgrep -x tail >/dev/null; do sleep 0.1; done"
SET_UP = """
useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops
for home in /root /home/ops; do
  install -d -m 0700 "$home/.ssh"
  echo "$1" > "$home/.ssh/authorized_keys"
done
chown -R ops: /home/ops
"""


@pytest.fixture(scope="module")
def key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture(scope="module")
def target(key: asyncssh.SSHKey) -> Iterator[MachineTarget]:
    lab("image")
    lab("down", "--purge")
    try:
        lab("up", "--nodes", "1")
        lab("exec", "gpu-1", "--", "bash", "-euc", SET_UP, "set-up", key.export_public_key().decode().strip())
        host_key = lab("exec", "gpu-1", "--", "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        yield MachineTarget(
            host=lab("address", "gpu-1").strip(),
            port=22,
            user="root",
            host_public_key=host_key,
            private_key=key.export_private_key("openssh").decode(),
        )
    finally:
        lab("down", "--purge")


@pytest.fixture(params=["root", "ops"])
async def machine(request: pytest.FixtureRequest, target: MachineTarget) -> AsyncIterator[Machine]:
    as_user = msgspec.structs.replace(target, user=request.param)
    async with connect(as_user) as connected:
        yield connected


async def test_commands_and_files_belong_to_root_for_every_login_user(machine: Machine) -> None:
    assert machine.hostname == "gpu-1"
    assert (await machine.run("id", "-un")).stdout == "root\n"
    await machine.put("/root/x", "secret\n", mode=0o600)
    assert await machine.get("/root/x") == b"secret\n"


async def test_a_log_is_followed_and_let_go(machine: Machine) -> None:
    await machine.put("/var/log/x.log", "one\n", mode=0o600)
    async for line in machine.follow("/var/log/x.log", lines=1):
        if line == "two":
            break
        await machine.script("echo two >> /var/log/x.log")
    await machine.script(NOBODY_FOLLOWS)


async def test_a_caller_that_dies_leaves_no_follower_behind(machine: Machine) -> None:
    await machine.put("/var/log/x.log", "one\n")
    following = machine.follow("/var/log/x.log", lines=1)
    assert await anext(following) == "one"
    assert isinstance(machine.transport, SshTransport)
    machine.transport.abort()
    with pytest.raises(MachineUnreachable):
        await anext(following)
    await machine.script(NOBODY_FOLLOWS)


LEAVES_ITS_SESSION = "setsid sleep 4321 & sleep 4321"
"""Two processes, one in a session of its own, as dpkg runs under apt-get."""
SLEEPERS = "pgrep -cxf 'sleep 4321' || true"
NOBODY_SLEEPS = "while pgrep -xf 'sleep 4321' >/dev/null; do sleep 0.1; done"


@pytest.fixture(params=["root", "ops"])
async def at_work(request: pytest.FixtureRequest, target: MachineTarget) -> AsyncIterator[Machine]:
    """A machine whose commands belong to an operation."""
    as_user = msgspec.structs.replace(target, user=request.param, work=RemoteWork("op_1"))
    async with connect(as_user) as connected:
        yield connected


async def test_a_cancelled_command_is_gone_when_the_caller_continues(at_work: Machine, machine: Machine) -> None:
    running = asyncio.create_task(at_work.script(LEAVES_ITS_SESSION))
    await _until_they_sleep(machine)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await machine.script(SLEEPERS)).stdout == "0\n"


async def test_a_caller_that_dies_leaves_no_command_behind(at_work: Machine, machine: Machine) -> None:
    running = asyncio.create_task(at_work.script(LEAVES_ITS_SESSION))
    await _until_they_sleep(machine)
    assert isinstance(at_work.transport, SshTransport)
    at_work.transport.abort()
    with pytest.raises(MachineUnreachable):
        await running
    await machine.script(NOBODY_SLEEPS)


async def test_the_next_claim_of_an_operation_stops_what_the_last_one_left_running(
    target: MachineTarget, at_work: Machine, machine: Machine
) -> None:
    running = asyncio.create_task(at_work.script(LEAVES_ITS_SESSION))
    await _until_they_sleep(machine)
    async with connect(msgspec.structs.replace(target, work=RemoteWork("op_2", may_run_already=True))):
        assert (await machine.script(SLEEPERS)).stdout == "2\n"
    async with connect(msgspec.structs.replace(target, work=RemoteWork("op_1", may_run_already=True))):
        assert (await machine.script(SLEEPERS)).stdout == "0\n"
    with pytest.raises(CommandFailed):
        await running


async def _until_they_sleep(machine: Machine) -> None:
    await machine.script("until [ \"$(pgrep -cxf 'sleep 4321')\" = 2 ]; do sleep 0.1; done")


def lab(*arguments: str) -> str:
    program = str(Path(sys.executable).parent / "gpuaas-lab")
    ended = subprocess.run(
        [program, arguments[0], "--lab", "sdk", *arguments[1:]], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
