"""Fake machines in memory: files are a dictionary, and a function of the test returns the result of each command."""

import asyncio
import base64
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from gpuaas_sdk.machine import Command, Completed, Machine, MachineTarget, MachineUnreachable, Ran, commands, shell

RETRY_S = 0.05
"""Retry pause after a fake machine was unreachable; shorter than for real machines."""

Answer = Callable[[tuple[str, ...]], Ran]
Scripts = Callable[[str], Ran | None]
"""Returns the result of a script by its text; None leaves it to the function for commands."""


class FakeHost:
    """A fake host and the `Transport` to it. `files` holds its files; `ran` lists the commands that it received.

    host = machines.host("gpu-1")
    host.reachable = False  # as if its cable were pulled
    assert ("systemctl", "restart", "hello") in host.ran"""

    def __init__(
        self, hostname: str, answer: Answer = lambda argv: Ran(0, "", ""), scripts: Scripts = lambda text: None
    ) -> None:
        self.hostname = hostname
        """The name that `Machine.hostname` returns."""
        self.address = hostname
        """The address of a fake host is its name."""
        self.files: dict[str, bytes] = {}
        """Path -> content. Tests may write here."""
        self.printed: list[str] = []
        """What a program that `Machine.lines` runs has printed; tests add lines."""
        self.commands: list[Command] = []
        """Every command, oldest first, with its input and time limit."""
        self.reachable = True
        """False: every command fails with `MachineUnreachable`, and connections break."""
        self._answer = answer
        self._scripts = scripts
        self._restarts: dict[str, str] = {}

    @property
    def ran(self) -> list[tuple[str, ...]]:
        """Arguments of every command, oldest first; reading and writing files does not count."""
        return [command.argv for command in self.commands]

    async def execute(self, command: Command) -> Completed:
        """Serve the reads and writes of `Machine` from `files`; pass every other command to the test's function."""
        self._check_reachable()
        if command.parts:
            return await self._execute_all(command)
        match command.argv:
            case ("sh", "-c", shell.PUT, _, str(path), *_):
                return self._put(path, command.input)
            case ("bash", "-c", shell.PUT_ALL, _, *words):
                return self._put_all(words, command.input)
            case ("sh", "-c", shell.GET, _, str(path)):
                return self._get(path)
            case ("sh", "-c", shell.GET_ALL, _, *paths):
                return Completed(0, b"".join(self._as_line(path) for path in paths))
            case ("sh", "-c", shell.RESTART_ONCE, _, _, str(unit), str(cause)):
                return await self._restart_once(unit, cause)
        self.commands.append(command)
        ran = self._scripts(command.input.decode()) if command.argv[0] == "bash" else None
        ran = ran or self._answer(command.argv)
        return Completed(ran.exit_status, ran.stdout.encode(), ran.stderr.encode())

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        """Yield the lines of a file or of a program, and each new line that the test or `Machine.put` adds."""
        if command.argv[0] == "python3":
            self.commands.append(command)
            read: Callable[[], list[str]] = functools.partial(getattr, self, "printed")
            sent = 0
        else:
            *_, path, lines = command.argv
            read = functools.partial(self._lines, path)
            sent = max(0, len(read()) - int(lines))
        while True:
            self._check_reachable()
            for line in read()[sent:]:
                sent += 1
                yield line
            await asyncio.sleep(RETRY_S)

    async def _execute_all(self, command: Command) -> Completed:
        printed = b""
        for part in command.parts:
            completed = await self.execute(part)
            printed += commands.as_line(completed)
            if completed.exit_status != 0 and command.argv[4] == "stop":
                break
        return Completed(0, printed)

    async def _restart_once(self, unit: str, cause: str) -> Completed:
        verb = "start" if self._restarts.get(unit) == cause else "restart"
        completed = await self.execute(commands.run("systemctl", verb, unit))
        if completed.exit_status == 0:
            self._restarts[unit] = cause
        return completed

    def _put(self, path: str, content: bytes) -> Completed:
        changed = self.files.get(path) != content
        self.files[path] = content
        return Completed(0, b"changed\n" if changed else b"same\n")

    def _put_all(self, words: list[str], contents: bytes) -> Completed:
        changed, sizes = [], map(int, words[3::4])
        for position, (path, size) in enumerate(zip(words[::4], sizes, strict=True)):
            content, contents = contents[:size], contents[size:]
            if self._put(path, content).stdout == b"changed\n":
                changed.append(position)
        return Completed(0, "".join(f"{position}\n" for position in changed).encode())

    def _as_line(self, path: str) -> bytes:
        return b"present " + base64.b64encode(self.files[path]) + b"\n" if path in self.files else b"absent\n"

    def _get(self, path: str) -> Completed:
        return Completed(0, self.files[path]) if path in self.files else Completed(shell.ABSENT_STATUS)

    def _lines(self, path: str) -> list[str]:
        return self.files.get(path, b"").decode().splitlines()

    def _check_reachable(self) -> None:
        if not self.reachable:
            error = MachineUnreachable(self.hostname, self.address, "the test disconnected it")
            error.after_s = RETRY_S
            raise error


class _ReadOnly:
    """The `Transport` of an observer to a fake host: files cannot be written. The test's function answers commands."""

    def __init__(self, host: FakeHost) -> None:
        self.hostname, self.address, self._host = host.hostname, host.address, host

    async def execute(self, command: Command) -> Completed:
        parts = command.parts or (command,)
        if any(part.argv[2:3] in ((shell.PUT,), (shell.PUT_ALL,)) for part in parts):
            return Completed(1, b"", b"Permission denied")
        return await self._host.execute(command)

    def stream(self, command: Command) -> AsyncGenerator[str]:
        return self._host.stream(command)


class FakeMachines:
    """Fake hosts, one per name, which exist independent of connections. Pass `connect` to `App.runner`.

    machines = FakeMachines(lambda argv: Ran(0, "active\\n" if "is-active" in argv else "", ""))
    runner = app.runner(client, platform.project_id, "test", connect=machines.connect)"""

    def __init__(self, answer: Answer = lambda argv: Ran(0, "", ""), scripts: Scripts = lambda text: None) -> None:
        self.by_host: dict[str, FakeHost] = {}
        """The hosts that exist so far."""
        self.connected: list[MachineTarget] = []
        """The target of every connection, oldest first."""
        self.open_connections = 0
        """How many connections are open now."""
        self._answer = answer
        self._scripts = scripts

    def host(self, name: str) -> FakeHost:
        """Return the host of this name; the first call creates it."""
        return self.by_host.setdefault(name, FakeHost(name, self._answer, self._scripts))

    @contextlib.asynccontextmanager
    async def connect(self, target: MachineTarget) -> AsyncIterator[Machine]:
        """Connect to a host, as `gpuaas_sdk.machine.connect` does."""
        self.connected.append(target)
        self.open_connections += 1
        try:
            host = self.host(target.host)
            machine = Machine(host if target.is_privileged else _ReadOnly(host))
            await machine.run("hostname", "-s")
            yield machine
        finally:
            self.open_connections -= 1
