"""Root access to a machine. There is one class `Machine`; its transport decides how commands are sent."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from gpuaas_sdk.machine import commands, shell
from gpuaas_sdk.machine.commands import File
from gpuaas_sdk.machine.errors import CommandFailed
from gpuaas_sdk.machine.transport import Command, Completed, Transport

FOLLOW_S_MAX = 3600


class Ran(msgspec.Struct, frozen=True):
    """Exit status and decoded output of a command that ended.

    ran = await machine.run("kv", "ping", check=False)
    check = Check(ran.exit_status == 0, ran.stderr)"""

    exit_status: int
    stdout: str
    stderr: str


class Machine:
    """Run commands and read and write files on one machine, as root.

    Commands are argument lists; nothing is ever interpolated into a shell string.

    await machine.put("/etc/hello.conf", "port = 80\\n")
    ran = await machine.run("systemctl", "is-active", "hello", check=False)
    ran.stdout.strip()  # active"""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        """How commands are sent: over SSH, or to a fake host in tests."""

    @property
    def hostname(self) -> str:
        """Short host name, as the machine itself reports it."""
        return self.transport.hostname

    @property
    def address(self) -> str:
        """Address at which other machines reach the machine."""
        return self.transport.address

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran:
        """Run one command. With `check`, a non-zero exit status raises `CommandFailed`."""
        command = commands.run(*argv, input=input, as_user=as_user, timeout_s=timeout_s)
        return _decoded(await self._execute(command, check=check))

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        """Run a bash script with `argv` as its parameters. It stops at the first command that fails."""
        command = commands.script(text, *argv, timeout_s=timeout_s)
        return _decoded(await self._execute(command, check=check))

    async def run_all(self, *parts: Command, check: bool = True, timeout_s: float = 60) -> tuple[Ran, ...]:
        """Run many commands, made by the functions of `commands`, one after the other, with one round trip.

        With `check`, the first one that fails raises `CommandFailed`, and those after it do not run. The time limit is
        that of all together. Use it for many small commands: each command of its own costs
        a channel, a sudo and a shell.

            name, units = await machine.run_all(commands.run("hostname"), commands.script(LIST_UNITS))"""
        command = commands.run_all(parts, stops=check, timeout_s=timeout_s)
        completed = await self._execute(command)
        results = tuple(commands.results(completed.stdout))
        for part, result in zip(parts, results, strict=False):
            if check:
                self._checked(part, result)
        if len(results) != len(parts):
            raise CommandFailed(self.hostname, command, completed)
        return tuple(map(_decoded, results))

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        """Replace a file atomically: readers see the old or the new content. Return whether anything changed."""
        data, mode_text = commands.as_bytes(content), f"{mode:o}"
        argv = ("sh", "-c", shell.PUT, "put", path, mode_text, owner, str(len(data)))
        completed = await self._execute(Command(argv, summary=("put", path, mode_text, owner), input=data))
        return completed.stdout.strip() == b"changed"

    async def put_all(self, files: Sequence[File]) -> tuple[str, ...]:
        """Replace many files with one command; return the paths of those that changed.

        Each file is replaced atomically, in this order, after all contents were received. Missing folders are made. A
        file that is already as it should be is not written. This is faster than many `put`, each of which is a command.

            changed = await machine.put_all((File("/etc/app.conf", text), File("/etc/app.key", key, mode=0o400)))"""
        if not files:
            return ()
        completed = await self._execute(commands.put_all(files))
        return commands.changed(files, completed.stdout.decode())

    async def get_all(self, *paths: str) -> dict[str, bytes | None]:
        """Return the contents of many files, read with one command; None for a file that does not exist."""
        completed = await self._execute(commands.get_all(*paths))
        return commands.contents(paths, completed.stdout.decode())

    async def get(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        command = Command(("sh", "-c", shell.GET, "get", path), summary=("get", path))
        completed = await self._execute(command, check=False)
        if completed.exit_status == shell.ABSENT_STATUS:
            return None
        return self._checked(command, completed).stdout

    async def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder at the path. If that is not known, raise `CommandFailed`."""
        command = commands.run("test", "-e", path)
        completed = await self._execute(command, check=False)
        if completed.exit_status != 1:
            self._checked(command, completed)
        return completed.exit_status == 0

    async def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]:
        """Yield the last `lines` of a file, then each new line as it is written, for at most one hour.

        The file need not exist yet and may be rotated. Leaving the loop stops the command on the machine."""
        argv = ("sh", "-c", shell.FOLLOW, "follow", path, str(lines))
        command = Command(argv, summary=("follow", path), timeout_s=FOLLOW_S_MAX)
        async with aclosing(self.transport.stream(command)) as written:
            async for line in written:
                yield line

    async def lines(self, program: str, *argv: str, timeout_s: float = FOLLOW_S_MAX) -> AsyncGenerator[str]:
        """Run a Python program on the machine and yield each line that it prints, for at most `timeout_s`.

        The program gets `argv` as its arguments. It should end when its standard input ends: that is when the
        connection breaks or the loop is left."""
        digest = hashlib.sha256(program.encode()).hexdigest()
        summary = ("program", f"sha256:{digest}", *argv)
        command = Command(("python3", "-u", "-c", program, *argv), summary=summary, timeout_s=timeout_s)
        async with aclosing(self.transport.stream(command)) as printed:
            async for line in printed:
                yield line

    async def _execute(self, command: Command, *, check: bool = True) -> Completed:
        completed = await self.transport.execute(command)
        return self._checked(command, completed) if check else completed

    def _checked(self, command: Command, completed: Completed) -> Completed:
        if completed.exit_status != 0:
            raise CommandFailed(self.hostname, command, completed)
        return completed


def _decoded(completed: Completed) -> Ran:
    stdout, stderr = completed.stdout.decode(errors="replace"), completed.stderr.decode(errors="replace")
    return Ran(completed.exit_status, stdout, stderr)
