"""Root access to a machine. There is one class `Machine`; its transport decides how commands are sent."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from gpuaas_sdk.machine import shell
from gpuaas_sdk.machine.errors import CommandFailed
from gpuaas_sdk.machine.transport import Command, Completed, Transport

FOLLOW_S_MAX = 3600


class Ran(msgspec.Struct, frozen=True):
    """Exit status and decoded output of a command that ended."""

    exit_status: int
    stdout: str
    stderr: str


class Machine:
    """Run commands and read and write files on one machine, as root.

    Commands are argument lists; nothing is ever interpolated into a shell string."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

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
        command = Command(argv, summary=argv, input=_as_bytes(input), as_user=as_user, timeout_s=timeout_s)
        return _decoded(await self._execute(command, check=check))

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        """Run a bash script with `argv` as its parameters. It stops at the first command that fails."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        command = Command(
            ("bash", "-seuo", "pipefail", "--", *argv),
            summary=("script", f"sha256:{digest}", *argv),
            input=shell.grouped(text).encode(),
            timeout_s=timeout_s,
        )
        return _decoded(await self._execute(command, check=check))

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        """Replace a file atomically: readers see the old or the new content. Return whether anything changed."""
        data, mode_text = _as_bytes(content), f"{mode:o}"
        argv = ("sh", "-c", shell.PUT, "put", path, mode_text, owner, str(len(data)))
        completed = await self._execute(Command(argv, summary=("put", path, mode_text, owner), input=data))
        return completed.stdout.strip() == b"changed"

    async def get(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        command = Command(("sh", "-c", shell.GET, "get", path), summary=("get", path))
        completed = await self._execute(command, check=False)
        if completed.exit_status == shell.ABSENT_STATUS:
            return None
        return self._checked(command, completed).stdout

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


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _decoded(completed: Completed) -> Ran:
    stdout, stderr = completed.stdout.decode(errors="replace"), completed.stderr.decode(errors="replace")
    return Ran(completed.exit_status, stdout, stderr)
