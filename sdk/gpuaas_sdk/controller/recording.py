"""A machine whose commands are written down, one transcript line each. `machines` wraps every connection in one, so an
app cannot forget it."""

import asyncio
import datetime
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager

from gpuaas_sdk.machine import ABSENT_STATUS, CommandFailed, Machine, Ran
from gpuaas_sdk.transcripts import TranscriptLine

WriteDown = Callable[[TranscriptLine], None]


class RecordedMachine:
    """`Machine` that tells `write_down` of every command when it ended, however it ended."""

    def __init__(self, machine: Machine, write_down: WriteDown) -> None:
        self.hostname = machine.hostname
        self.address = machine.address
        self._machine = machine
        self._write_down = write_down

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran:
        with self._recorded(*argv) as end:
            return end.ran(
                await self._machine.run(*argv, input=input, check=check, as_user=as_user, timeout_s=timeout_s)
            )

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        with self._recorded("script", f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", *argv) as end:
            return end.ran(await self._machine.script(text, *argv, check=check, timeout_s=timeout_s))

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        with self._recorded("put", path, f"{mode:o}", owner) as end:
            changed = await self._machine.put(path, content, mode=mode, owner=owner)
            end.ran(Ran(0, "changed" if changed else "same", ""))
            return changed

    async def get(self, path: str) -> bytes | None:
        with self._recorded("get", path) as end:
            content = await self._machine.get(path)
            end.wrote(content or b"")
            end.exit_status = ABSENT_STATUS if content is None else 0
            return content

    async def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]:
        with self._recorded("follow", path) as end:
            async with aclosing(self._machine.follow(path, lines=lines)) as following:
                async for line in following:
                    end.wrote(line + "\n")
                    yield line

    def _recorded(self, *argv: str) -> "AbstractContextManager[_End]":
        return recorded(self.hostname, self._write_down, *argv)


@contextmanager
def recorded(machine: str, write_down: WriteDown, *argv: str) -> "Iterator[_End]":
    """One line for whatever is done on a machine meanwhile."""
    end, started_at, started = _End(), datetime.datetime.now(datetime.UTC), time.monotonic()
    try:
        yield end
    except CommandFailed as failure:
        end.ran(failure.ran)
        raise
    except (Exception, asyncio.CancelledError) as error:
        end.error = str(error) or type(error).__name__
        raise
    finally:
        write_down(
            TranscriptLine(
                machine=machine,
                argv=argv,
                started_at=started_at,
                duration_ms=round((time.monotonic() - started) * 1000),
                exit_status=end.exit_status,
                output_sha256=end.output.hexdigest(),
                error=end.error,
            )
        )


class _End:
    """What becomes known of a command while it runs."""

    def __init__(self) -> None:
        self.exit_status: int | None = None
        self.error = ""
        self.output = hashlib.sha256()

    def ran(self, ran: Ran) -> Ran:
        self.exit_status = ran.exit_status
        self.wrote(ran.stdout + ran.stderr)
        return ran

    def wrote(self, output: str | bytes) -> None:
        self.output.update(output.encode() if isinstance(output, str) else output)
