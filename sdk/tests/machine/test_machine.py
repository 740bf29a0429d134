"""`Machine` over SSH against a real SSH server on loopback that runs real commands."""

import asyncio
import contextlib
import grp
import os
import pwd
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import pytest
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import (
    CommandFailed,
    CommandTimedOut,
    Completed,
    File,
    Machine,
    MachineTarget,
    MachineUnreachable,
    Ran,
    commands,
    connect,
    shell,
    ssh,
)
from gpuaas_sdk.machine.ssh import SshTransport
from gpuaas_sdk.testing.machines import FakeHost

OWNER = f"{pwd.getpwuid(os.getuid()).pw_name}:{grp.getgrgid(os.getgid()).gr_name}"


class Server:
    """An SSH server that trusts one certificate authority and one plain key."""

    def __init__(self) -> None:
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.authority = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key = asyncssh.generate_private_key("ssh-ed25519")
        self.port = 0
        self.connections = 0
        self.acceptor: asyncssh.SSHAcceptor | None = None
        self.commands: list[asyncio.Task[None]] = []
        self.began = asyncio.Event()

    async def start(self) -> None:
        trusted = f"cert-authority {_public(self.authority)}\n{_public(self.user_key)}\n"
        self.acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(trusted),
            process_factory=self._run,
            encoding=None,
            acceptor=self._count,
        )
        self.port = self.acceptor.get_port()

    async def stop(self) -> None:
        if self.acceptor is not None:
            self.acceptor.close()
            await self.acceptor.wait_closed()

    async def ended(self) -> None:
        """Once every command, also of a connection that is gone, came to its end."""
        await asyncio.gather(*self.commands)

    def target(self, key: asyncssh.SSHKey | None = None, certificate: str | None = None) -> MachineTarget:
        return MachineTarget(
            host="127.0.0.1",
            port=self.port,
            user="root",
            host_public_key=_public(self.host_key),
            private_key=(key or self.user_key).export_private_key("openssh").decode(),
            certificate=certificate,
        )

    def _run(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        self.commands.append(asyncio.create_task(_run_here(process)))
        self.began.set()

    def _count(self, connection: asyncssh.SSHServerConnection) -> None:
        self.connections += 1


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    await running.start()
    yield running
    await running.stop()
    await running.ended()


@pytest.fixture
async def machine(server: Server) -> AsyncIterator[Machine]:
    async with connect(server.target()) as connected:
        yield connected


async def test_arguments_arrive_as_they_were_given(machine: Machine) -> None:
    ran = await machine.run("printf", "%s|", "a b", "$(id)", "it's", "*")
    assert ran == Ran(0, "a b|$(id)|it's|*|", "")


@pytest.mark.parametrize("stream", ["1", "2"])
@pytest.mark.parametrize(("is_privileged", "limit"), [(True, "PRINTED_BYTES_MAX"), (False, "OBSERVED_BYTES_MAX")])
async def test_a_machine_that_prints_without_end_is_cut_off_instead_of_filling_the_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch, stream: str, is_privileged: bool, limit: str
) -> None:
    monkeypatch.setattr(ssh, limit, 1024**2)
    target = msgspec.structs.replace(server.target(), is_privileged=is_privileged)
    async with connect(target) as machine:
        assert len((await machine.run("head", "-c", str(1024**2), "/dev/zero")).stdout) == 1024**2
        with pytest.raises(MachineUnreachable, match="a command printed more than 1 MiB"):
            await machine.run("sh", "-c", f"exec head -c {1024**2 + 1} /dev/zero >&{stream}")
        assert (await machine.run("echo", "next")).stdout == "next\n"


async def test_a_failed_command_raises_with_its_last_output(machine: Machine) -> None:
    with pytest.raises(CommandFailed, match="status 3: no such cluster") as caught:
        await machine.run("sh", "-c", "echo no such cluster >&2; exit 3")
    assert caught.value.exit_status == 3


async def test_an_error_carries_a_bounded_part_of_the_output(machine: Machine) -> None:
    with pytest.raises(CommandFailed) as caught:
        await machine.run("sh", "-c", "head -c 50000 /dev/zero | tr '\\0' x >&2; exit 1")
    assert len(str(caught.value)) < 2500


async def test_without_check_the_exit_status_is_an_answer(machine: Machine) -> None:
    assert (await machine.run("false", check=False)).exit_status == 1


async def test_a_command_past_its_time_is_stopped_on_the_machine(machine: Machine, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(CommandTimedOut):
        await machine.run("sh", "-c", f"sleep 30; touch {shlex.quote(str(trace))}", timeout_s=0.2)
    assert not trace.exists()


async def test_an_error_never_shows_the_content_of_a_file_that_was_read() -> None:
    ended = Completed(1, b"a2V5", b"")
    for command in (
        commands.get_all("/etc/munge/munge.key"),
        commands.run_all([commands.get_all("/k")], stops=True, timeout_s=1),
    ):
        assert str(CommandFailed("gpu-1", command, ended)).endswith("status 1: no output")
    assert str(CommandFailed("gpu-1", commands.run("cat"), ended)).endswith("status 1: a2V5")


async def test_a_script_stops_at_the_first_failure(machine: Machine) -> None:
    with pytest.raises(CommandFailed):
        await machine.script("false | cat\necho unreachable")


async def test_a_command_in_a_script_cannot_read_the_rest_of_it(machine: Machine) -> None:
    ran = await machine.script('cat\necho "$1"', "still here")
    assert ran.stdout == "still here\n"


async def test_put_writes_once_and_returns_whether_it_changed(machine: Machine, tmp_path: Path) -> None:
    path = str(tmp_path / "slurm.conf")
    assert await machine.put(path, "one\n", mode=0o640, owner=OWNER)
    assert not await machine.put(path, "one\n", mode=0o640, owner=OWNER)
    assert await machine.put(path, b"one\n", mode=0o600, owner=OWNER)
    assert oct(os.stat(path).st_mode)[-3:] == "600"
    assert os.listdir(tmp_path) == ["slurm.conf"]


async def test_put_and_get_carry_any_bytes(machine: Machine, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    path = str(tmp_path / "key")
    await machine.put(path, content, owner=OWNER)
    assert await machine.get(path) == content


async def test_a_caller_that_dies_while_it_sends_leaves_the_file_as_it_was(
    server: Server, machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "receipt.json"
    path.write_text("whole\n")
    server.began.clear()
    putting = asyncio.ensure_future(machine.put(str(path), "new\n", owner=OWNER))
    await server.began.wait()
    break_connection(machine)
    with pytest.raises(MachineUnreachable):
        await putting
    await server.ended()
    assert (os.listdir(tmp_path), path.read_text()) == (["receipt.json"], "whole\n")


async def test_many_files_are_written_at_once_and_only_those_that_differ(machine: Machine, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("with a space", "folder/new/key", "empty")]
    contents: list[str | bytes] = ["one\n", bytes(range(256)) * 500, ""]
    files = [File(path, content, 0o640, OWNER) for path, content in zip(paths, contents, strict=True)]
    assert await machine.put_all(files) == tuple(paths)
    assert await machine.put_all(files) == ()
    assert await machine.put_all([files[0], File(paths[1], contents[1], 0o400, OWNER), files[2]]) == (paths[1],)
    assert await machine.put_all([File(paths[0], "two\n", 0o640, OWNER), files[2]]) == (paths[0],)
    assert oct(os.stat(paths[1]).st_mode)[-3:] == "400"
    wanted = {paths[0]: b"two\n", paths[1]: contents[1], paths[2]: b"", "/missing": None}
    assert await machine.get_all(*wanted) == wanted
    assert sorted(os.listdir(tmp_path)) == ["empty", "folder", "with a space"]


async def test_files_whose_names_end_alike_are_written_at_once(machine: Machine, tmp_path: Path) -> None:
    names = ("server.key", "key", "server.key.key")
    files = [File(str(tmp_path / name), f"{name}\n", 0o600, OWNER) for name in names]
    assert await machine.put_all(files) == tuple(file.path for file in files)
    assert {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)} == {
        name: f"{name}\n" for name in names
    }


@pytest.mark.parametrize("program", ["put", "put_all"])
async def test_two_writers_of_one_file_do_not_disturb_each_other(
    machine: Machine, tmp_path: Path, program: str
) -> None:
    path = tmp_path / "key"
    start = ("sh", "-c", shell.PUT) if program == "put" else ("bash", "-c", shell.PUT_ALL)
    slow = await asyncio.create_subprocess_exec(*start, "put", str(path), "600", OWNER, "5", stdin=-1, stdout=-1)
    while not os.listdir(tmp_path):  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.01)
    assert await machine.put(str(path), "fast\n", mode=0o600, owner=OWNER)
    assert await machine.put_all([File(str(path), "next\n", 0o600, OWNER)]) == (str(path),)
    await slow.communicate(b"slow\n")
    assert (slow.returncode, os.listdir(tmp_path), path.read_text()) == (0, ["key"], "slow\n")


@pytest.mark.parametrize("program", ["put", "put_all"])
async def test_a_write_deletes_what_a_power_cut_left_of_the_same_file(
    machine: Machine, tmp_path: Path, program: str
) -> None:
    names = (".gpuaas.key.0aB9zZ01", ".gpuaas.server.key.0aB9zZ01", ".gpuaas.key.pem.0aB9zZ01")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".gpuaas.key.ofNow123").touch()
    path = str(tmp_path / "key")
    if program == "put":
        await machine.put(path, "new\n", owner=OWNER)
    else:
        await machine.put_all([File(path, "new\n", owner=OWNER)])
    assert {*os.listdir(tmp_path)} == {"key", ".gpuaas.key.ofNow123", *names[1:]}


async def test_if_one_of_many_files_cannot_be_written_none_is(machine: Machine, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("old\n")
    with pytest.raises(CommandFailed, match="nobody-has-this-name"):
        await machine.put_all(
            [File(str(first), "new\n", owner=OWNER), File(str(tmp_path / "b"), "b", 0o600, "nobody-has-this-name:x")]
        )
    assert (os.listdir(tmp_path), first.read_text()) == (["first"], "old\n")


async def test_a_folder_is_not_read_as_an_empty_file(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="directory"):
        await machine.get_all(str(tmp_path))


async def test_a_caller_that_dies_while_it_sends_many_files_leaves_them_as_they_were(
    server: Server, machine: Machine, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        path.write_text("whole\n")
    server.began.clear()
    files = [File(str(path), "new\n", owner=OWNER) for path in paths]
    putting = asyncio.ensure_future(machine.put_all(files))
    await server.began.wait()
    break_connection(machine)
    with pytest.raises(MachineUnreachable):
        await putting
    await server.ended()
    assert [path.read_text() for path in paths] == ["whole\n"] * 2
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


async def test_many_commands_run_one_after_the_other_with_one_round_trip(
    server: Server, machine: Machine, tmp_path: Path
) -> None:
    before = len(server.commands)
    text, new = "cat\nprintf '%s' \"$1\"; echo warned >&2", File(str(tmp_path / "key"), b"\x00\n", 0o600, OWNER)
    ran = await machine.run_all(
        commands.script(text, "a b"), commands.run("cat", input="in\n0 0 0\n"), commands.put_all([new])
    )
    assert ran == (Ran(0, "a b", "warned\n"), Ran(0, "in\n0 0 0\n", ""), Ran(0, "0\n", ""))
    assert (len(server.commands) - before, (tmp_path / "key").read_bytes()) == (1, b"\x00\n")


async def test_a_failed_command_among_many_stops_them_unless_its_status_is_an_answer(
    machine: Machine, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    parts = (commands.run("sh", "-c", "cat; echo no >&2; exit 3", input="x"), commands.run("touch", str(trace)))
    with pytest.raises(CommandFailed, match=r"status 3: .*no") as caught:
        await machine.run_all(*parts)
    assert (caught.value.exit_status, trace.exists()) == (3, False)
    ran = await machine.run_all(*parts, check=False)
    assert ([each.exit_status for each in ran], trace.exists()) == ([3, 0], True)


async def test_fake_machines_run_many_commands_as_real_ones_do() -> None:
    host = FakeHost("gpu-1", lambda argv: Ran(1, "", "down") if argv == ("false",) else Ran(0, argv[0], ""))
    parts = (commands.run("one"), commands.run("false"), commands.put_all([File("/etc/a", "a")]))
    with pytest.raises(CommandFailed, match="down"):
        await Machine(host).run_all(*parts)
    assert "/etc/a" not in host.files
    assert await Machine(host).run_all(*parts, check=False) == (
        Ran(0, "one", ""),
        Ran(1, "", "down"),
        Ran(0, "0\n", ""),
    )


async def test_fake_machines_write_and_read_many_files_as_real_ones_do() -> None:
    host = FakeHost("gpu-1")
    machine = Machine(host)
    files = [File("/etc/a", "a\n"), File("/etc/b", b"\x00")]
    assert await machine.put_all(files) == ("/etc/a", "/etc/b")
    assert await machine.put_all([File("/etc/a", "a\n"), File("/etc/b", "")]) == ("/etc/b",)
    assert await machine.get_all("/etc/a", "/etc/b", "/etc/c") == {"/etc/a": b"a\n", "/etc/b": b"", "/etc/c": None}


async def test_a_missing_file_is_none_and_an_empty_one_is_empty(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert await machine.get(str(tmp_path / "empty")) == b""
    assert await machine.get(str(tmp_path / "missing")) is None


async def test_a_log_is_followed_from_its_last_lines_through_a_rotation(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    log.write_text("old\nlast\n")
    seen = []
    async with contextlib.aclosing(machine.follow(str(log), lines=1)) as following:
        async for line in following:
            seen.append(line)
            if line == "last":
                _append(log, "new")
            elif line == "new":
                log.rename(tmp_path / "daemon.log.1")
                _append(log, "rotated")
            else:
                break
    assert seen == ["last", "new", "rotated"]


async def test_a_log_that_does_not_exist_yet_is_waited_for(machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    async with contextlib.aclosing(machine.follow(str(log), lines=1)) as following:
        first = asyncio.ensure_future(anext(following))
        await machine.script('until pgrep -f -- "$1" >/dev/null; do sleep 0.05; done', f"^tail .*{log}")
        _append(log, "here")
        assert await first == "here"


async def test_who_stops_following_leaves_nothing_running(server: Server, machine: Machine, tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    log.write_text("one\n")
    async for line in machine.follow(str(log), lines=1):
        assert line == "one"
        break
    await server.ended()


async def test_a_connection_that_breaks_ends_following_on_both_sides(
    server: Server, machine: Machine, tmp_path: Path
) -> None:
    log = tmp_path / "daemon.log"
    log.write_text("one\n")
    following = machine.follow(str(log), lines=1)
    assert await anext(following) == "one"
    break_connection(machine)
    with pytest.raises(MachineUnreachable, match=str(log)):
        await anext(following)
    await server.ended()
    assert (await machine.run("echo", "back")).stdout == "back\n"


async def test_many_commands_share_one_connection(server: Server, machine: Machine) -> None:
    await asyncio.gather(*(machine.run("true") for _ in range(5)))
    assert server.connections == 1


async def test_a_lost_connection_is_opened_again(server: Server, machine: Machine) -> None:
    break_connection(machine)
    with contextlib.suppress(MachineUnreachable):
        await machine.run("true")
    assert (await machine.run("echo", "back")).stdout == "back\n"


async def test_a_host_with_another_key_is_refused(server: Server) -> None:
    server_key = server.host_key
    server.host_key = asyncssh.generate_private_key("ssh-ed25519")
    target = server.target()
    server.host_key = server_key
    with pytest.raises(Permanent, match="does not have the registered host key"):
        async with connect(target):
            pass


async def test_a_certificate_opens_the_machine(server: Server) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    signed = server.authority.generate_user_certificate(key, "op_1", principals=["root"])
    async with connect(server.target(key, signed.export_certificate().decode())) as machine:
        assert (await machine.run("echo", "in")).stdout == "in\n"


async def test_an_untrusted_key_is_refused(server: Server) -> None:
    with pytest.raises(MachineUnreachable, match="Permission denied"):
        async with connect(server.target(asyncssh.generate_private_key("ssh-ed25519"))):
            pass


async def test_a_host_without_a_server_is_unreachable(server: Server) -> None:
    await server.stop()
    with pytest.raises(MachineUnreachable, match=r"127\.0\.0\.1"):
        async with connect(server.target()):
            pass


def test_other_users_than_root_go_through_sudo() -> None:
    assert shell.as_root(("id",), "gpuaas", None, 60) == ["sudo", "-n", "--", "timeout", "--kill-after=5", "60", "id"]
    assert shell.as_root(("id",), "root", None, 60)[0] == "timeout"


def break_connection(machine: Machine) -> None:
    assert isinstance(machine.transport, SshTransport)
    machine.transport.abort()


def _append(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def _public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


async def _run_here(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(process.command or "", stdin=pipe, stdout=pipe, stderr=pipe)
    giving = asyncio.create_task(_pump(process.stdin, child.stdin, close=True))
    await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
    process.exit(await child.wait())
    await giving


async def _pump(reader: Any, writer: Any, *, close: bool = False) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    if close:
        writer.close()


async def test_a_look_that_fails_does_not_mean_that_a_file_is_absent() -> None:
    """An app deletes the data of a member that seems to have none."""
    ran = {"/here": Ran(0, "", ""), "/gone": Ran(1, "", ""), "/unknown": Ran(126, "", "cannot execute")}
    machine = Machine(FakeHost("gpu-1", lambda argv: ran[argv[-1]]))
    assert [await machine.exists(path) for path in ("/here", "/gone")] == [True, False]
    with pytest.raises(CommandFailed, match="cannot execute"):
        await machine.exists("/unknown")
