"""How commands reach a host. `ssh` sends them, `record` logs them, `renewal` replaces expiring connections and
`gpuaas_sdk.testing` answers them in memory."""

from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec


class Command(msgspec.Struct, frozen=True):
    """One command for a host, ready to be sent."""

    argv: tuple[str, ...]
    summary: tuple[str, ...]
    """What errors and transcripts show. It never contains input or file content, which may be secret."""
    input: bytes = b""
    as_user: str | None = None
    """Run as this user instead of root."""
    timeout_s: float = 60


class Completed(msgspec.Struct, frozen=True):
    """Exit status and output of a command that ended."""

    exit_status: int
    stdout: bytes = b""
    stderr: bytes = b""


class Transport(Protocol):
    """A way to one host."""

    @property
    def hostname(self) -> str:
        """Short host name, as the host itself reports it."""
        ...

    @property
    def address(self) -> str:
        """Address at which other machines reach the host."""
        ...

    async def execute(self, command: Command) -> Completed:
        """Run the command as root and return its end with any exit status.

        Raises `MachineUnreachable` if the host does not answer, and `CommandTimedOut` if the command was stopped."""
        ...

    def stream(self, command: Command) -> AsyncGenerator[str]:
        """Run the command as root and yield its output line by line. Closing the generator stops the command.

        Raises the errors of `execute`, and `CommandFailed` if the command exits by itself."""
        ...
