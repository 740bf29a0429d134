"""The interface that runs commands on a machine. `ssh` runs them over SSH, `record` logs them, `renewal` replaces
expired connections, and `gpuaas_sdk.testing` simulates them."""

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec


class Command(msgspec.Struct, frozen=True):
    """One command for a machine, ready to be sent.

    command = Command(argv=("kv", "ping"), summary=("kv", "ping"), timeout_s=10)"""

    argv: tuple[str, ...]
    summary: tuple[str, ...]
    """The command as errors and transcripts show it, without input and file content, which may be secret."""
    input: bytes = b""
    as_user: str | None = None
    """Run as this user instead of root."""
    timeout_s: float = 60
    parts: tuple["Command", ...] = ()
    """The commands that this one runs one after the other, for `Machine.run_all`."""


class Completed(msgspec.Struct, frozen=True):
    """Exit status and output of a command that ended.

    completed = Completed(0, b"1.1.0\\n", b"")"""

    exit_status: int
    stdout: bytes = b""
    stderr: bytes = b""


class Transport(Protocol):
    """Runs commands on one machine.

    machine = Machine(transport)"""

    @property
    def hostname(self) -> str:
        """Short host name, as the machine itself reports it."""
        ...

    @property
    def address(self) -> str:
        """Address at which other machines reach the machine."""
        ...

    async def execute(self, command: Command) -> Completed:
        """Run the command as root and return its output and its exit status, also if that is not 0.

        Raises `MachineUnreachable` if the machine does not answer, and `CommandTimedOut` if the command was stopped."""
        ...

    def stream(self, command: Command) -> AsyncGenerator[str]:
        """Run the command as root and yield its output line by line. Closing the generator stops the command.

        Raises the errors of `execute`, and `CommandFailed` when the command exits before it is stopped."""
        ...
