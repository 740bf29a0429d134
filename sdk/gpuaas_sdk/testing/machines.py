"""Machines in memory: files are a dictionary, commands are answered by functions the test gives."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from gpuaas_sdk.machine import CommandFailed, MachineTarget, MachineUnreachable, Ran

RETRY_S = 0.05
"""Tests need not wait as long as real machines take to come back."""

Answer = Callable[[tuple[str, ...]], Ran]


class FakeMachine:
    def __init__(self, hostname: str, answer: Answer) -> None:
        self.hostname = hostname
        self.address = hostname
        self.files: dict[str, bytes] = {}
        self.ran: list[tuple[str, ...]] = []
        self.reachable = True
        self._answer = answer

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran:
        self._check_reachable()
        self.ran.append(argv)
        ran = self._answer(argv)
        if check and ran.exit_status != 0:
            raise CommandFailed(self.hostname, argv, ran)
        return ran

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        return await self.run("bash", "-s", *argv, input=text, check=check, timeout_s=timeout_s)

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        self._check_reachable()
        wanted = content.encode() if isinstance(content, str) else content
        changed = self.files.get(path) != wanted
        self.files[path] = wanted
        return changed

    async def get(self, path: str) -> bytes | None:
        self._check_reachable()
        return self.files.get(path)

    async def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]:
        """New lines are those a test adds to `files`, or another coroutine by `put`."""
        given = max(0, len(self._lines(path)) - lines)
        while True:
            self._check_reachable()
            for line in self._lines(path)[given:]:
                given += 1
                yield line
            await asyncio.sleep(RETRY_S)

    def _lines(self, path: str) -> list[str]:
        return self.files.get(path, b"").decode().splitlines()

    def _check_reachable(self) -> None:
        if not self.reachable:
            error = MachineUnreachable(self.hostname, self.address, "the test unplugged it")
            error.after_s = RETRY_S
            raise error


class FakeMachines:
    """Pass `connect` to `App.runner`; one machine per host, kept between connections."""

    def __init__(self, answer: Answer = lambda argv: Ran(0, "", "")) -> None:
        self.by_host: dict[str, FakeMachine] = {}
        self.connected: list[MachineTarget] = []
        self.open_connections = 0
        self._answer = answer

    def host(self, name: str) -> FakeMachine:
        return self.by_host.setdefault(name, FakeMachine(name, self._answer))

    @contextlib.asynccontextmanager
    async def connect(self, target: MachineTarget) -> AsyncIterator[FakeMachine]:
        self.connected.append(target)
        self.open_connections += 1
        try:
            await self.host(target.host).run("hostname", "-s")
            yield self.host(target.host)
        finally:
            self.open_connections -= 1
