"""Record the commands on machines, one transcript line per command. The controller kit wraps every connection in
`RecordingTransport`, so that an app cannot forget it."""

import asyncio
import datetime
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager

from gpuaas_sdk.machine.errors import CommandFailed
from gpuaas_sdk.machine.transcript import TranscriptLine
from gpuaas_sdk.machine.transport import Command, Completed, Transport

AddLine = Callable[[TranscriptLine], None]


class RecordingTransport:
    """`Transport` that passes a transcript line to `add_line` for every command, including failed ones."""

    def __init__(self, transport: Transport, add_line: AddLine) -> None:
        self.hostname = transport.hostname
        self.address = transport.address
        self._transport = transport
        self._add_line = add_line

    async def execute(self, command: Command) -> Completed:
        """Run the command and record it."""
        with recorded(self.hostname, self._add_line, *command.summary) as entry:
            completed = await self._transport.execute(command)
            entry.end(completed.exit_status, completed.stdout, completed.stderr)
            return completed

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        """Yield the output lines of the command. Record it when it ends or the caller stops reading."""
        with recorded(self.hostname, self._add_line, *command.summary) as entry:
            async with aclosing(self._transport.stream(command)) as lines:
                async for line in lines:
                    entry.add_output(line.encode() + b"\n")
                    yield line


class Entry:
    """The end and the output digest of one command, collected while it runs."""

    def __init__(self) -> None:
        self.exit_status: int | None = None
        self.error = ""
        self._output = hashlib.sha256()

    @property
    def output_sha256(self) -> str:
        """Digest of the output so far."""
        return self._output.hexdigest()

    def add_output(self, *parts: bytes) -> None:
        """Add a part of the output to the digest."""
        for part in parts:
            self._output.update(part)

    def end(self, exit_status: int, *output: bytes) -> None:
        """Set how the command ended."""
        self.exit_status = exit_status
        self.add_output(*output)


@contextmanager
def recorded(machine: str, add_line: AddLine, *argv: str) -> Iterator[Entry]:
    """Record the body of the `with` block as one command on the machine."""
    entry, started_at, started = Entry(), datetime.datetime.now(datetime.UTC), time.monotonic()
    try:
        yield entry
    except CommandFailed as failure:
        entry.exit_status = failure.exit_status
        raise
    except (Exception, asyncio.CancelledError) as error:
        entry.error = str(error) or type(error).__name__
        raise
    finally:
        add_line(
            TranscriptLine(
                machine=machine,
                argv=argv,
                started_at=started_at,
                duration_ms=round((time.monotonic() - started) * 1000),
                exit_status=entry.exit_status,
                output_sha256=entry.output_sha256,
                error=entry.error,
            )
        )
