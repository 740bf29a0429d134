"""Simulated machines for the app under test. Each is an SSH server in this process, so a controller needs no code for
the test and can be killed for real. A machine has files and systemd units; the app's `Driver` adds its programs."""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncssh
from gpuaas_contract.access import RequestMachineAccess

from gpuaas_sdk.conformance import effects, orders
from gpuaas_sdk.conformance.doors import ADDRESS, DRIVER_FAILED, Door
from gpuaas_sdk.conformance.orders import as_bytes, as_text
from gpuaas_sdk.machine import Ran, commands, shell
from gpuaas_sdk.machine.transport import Completed
from gpuaas_sdk.testing.platform.routes import Login

OK = Ran(0, "", "")
NO = Ran(1, "", "")
INCOMPLETE = Ran(1, "", "only part of the input was received")
ENDED = Ran(255, "", "Permission denied: the access has ended with the lease")
UNIT_FOLDER = "/etc/systemd/system/"
PACKAGED_UNITS = "/usr/lib/systemd/system/"
OBSERVER = "observer"
FAILED = 2
"""The exit status of a command that a check lets fail. With 1, many programs answer `no`: dpkg-query, grep, test."""

_CHANGE = frozenset({"rm", "mkdir", "chmod", "chown", "touch", "install"})

Respond = Callable[["SimulatedMachine", tuple[str, ...], bytes], Ran | None]
Prints = Callable[["SimulatedMachine", tuple[str, ...]], str | None]


@dataclass(frozen=True)
class Ordered:
    """A command that arrived at a machine."""

    argv: tuple[str, ...]
    user: str
    """`OPERATION.EPOCH` of the claim whose access was used; `observer` between operations."""
    script: str = ""
    """The text of a shell script. Other input is not recorded."""


@dataclass
class SimulatedMachine:
    """The content of one machine, and the faults that a check sets.

    host = SimulatedMachine("n1", lambda machine, argv, data: None)
    host.files["/etc/kv.conf"] = b"port=7000"
    ran = await host.execute(("cat", "/etc/kv.conf"), "op_1.1", b"")"""

    name: str
    respond: Respond
    prints: Prints = lambda machine, argv: None
    """Returns the line that a program of `Machine.lines` prints now."""
    files: dict[str, bytes] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    """The state of each unit that was started or stopped: `active` or `inactive`."""
    starts: dict[str, int] = field(default_factory=dict)
    """How often each unit was started while it did not run."""
    restarts: dict[str, str] = field(default_factory=dict)
    """The cause of the last `units.restart_once` of each unit."""
    packages: dict[str, str] = field(default_factory=dict)
    """The installed packages of the app, with their versions."""
    network: dict[str, Any] = field(default_factory=dict)
    """What the driver keeps for all machines of a check together, such as what members of a cluster agree on."""
    ordered: list[Ordered] = field(default_factory=list)
    """Every command that arrived, oldest first, without those of the SSH connection itself."""
    ledger: list[effects.Effect] = field(default_factory=list)
    """Every change that a command made, oldest first. A command that changed nothing is not in it."""
    fails_at: int = 0
    """The number of the next command of an operation that fails, counted from now; 0: none."""
    is_broken: bool = False
    """Every command of an operation fails, also those that only read."""
    after_command: Callable[["SimulatedMachine", Ordered], Awaitable[None]] | None = None
    is_current: Callable[[str], bool] = lambda user: True
    """Whether the access of this user is still valid. The platform ends it with the lease."""

    @property
    def commands(self) -> int:
        """How many commands of operations arrived; those of observers do not count."""
        return sum(order.user != OBSERVER for order in self.ordered)

    async def execute(self, argv: tuple[str, ...], user: str, data: bytes) -> Ran:
        """Run a command and return its result."""
        if argv == ("hostname", "-s"):
            return Ran(0, f"{self.name}\n", "")
        if argv[:3] == ("sh", "-c", shell.STOP_UNITS):
            return OK
        if argv[:3] == ("bash", "-c", shell.ALL):
            return await self._execute_all(argv, user, data)
        if argv[:3] == ("sh", "-c", shell.RESTART_ONCE):
            return await self._restart_once(argv[-2], argv[-1], user)
        order = Ordered(argv, user, orders.script(argv, data))
        self.ordered.append(order)
        before = self.content()
        ran = self._answer(argv, user, data)
        self.ledger += effects.changes(before, self.content(), argv)
        if self.after_command is not None:
            await self.after_command(self, order)
        return ran

    def line(self, argv: tuple[str, ...]) -> str | None:
        """Return what a program that keeps running prints now; None if it is no such program, or has ended. It changes
        nothing."""
        return self.prints(self, argv)

    def content(self) -> effects.Content:
        """Return everything that commands can change: files, packages, units and their starts, and what the machines
        of a cluster agree on."""
        files = {f"file {path}": content for path, content in self.files.items()}
        packages = {f"package {name}": version for name, version in self.packages.items()}
        units = {f"unit {name}": state for name, state in self.units.items()}
        starts = {f"start {name}": count for name, count in self.starts.items()}
        network = {f"network {name}": repr(value) for name, value in self.network.items()}
        return {**files, **packages, **units, **starts, **network}

    async def _execute_all(self, argv: tuple[str, ...], user: str, data: bytes) -> Ran:
        """Run the commands of `Machine.run_all`. Each of them arrives, counts and can fail as one of its own."""
        printed, stops = b"", argv[4] == "stop"
        try:
            for part, part_data in orders.parts(argv, data):
                ran = await self.execute(part, user, part_data)
                if not self.is_current(user):
                    return ENDED
                printed += commands.as_line(Completed(ran.exit_status, as_bytes(ran.stdout), as_bytes(ran.stderr)))
                if stops and ran.exit_status != 0:
                    break
        except orders.Incomplete:
            return INCOMPLETE
        return Ran(0, as_text(printed), "")

    def _answer(self, argv: tuple[str, ...], user: str, data: bytes) -> Ran:
        """Run the command. A driver that raises lets it fail with the reason; otherwise the machine would never
        answer, and `sys.exit(0)` in a driver would end the whole run as a success."""
        try:
            ran: object = self._run(argv, user, data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a driver raises anything
            return Ran(DRIVER_FAILED, "", f"the driver failed: {type(error).__name__}: {error}")
        if isinstance(ran, Ran):
            return ran
        return Ran(DRIVER_FAILED, "", f"Driver.respond returned {type(ran).__name__} instead of Ran or None")

    def _run(self, argv: tuple[str, ...], user: str, data: bytes) -> Ran:
        if not self.is_current(user):
            return ENDED
        self.fails_at -= user != OBSERVER
        if user != OBSERVER and (self.fails_at == 0 or self.is_broken):
            return Ran(FAILED, "", "the conformance check lets this command fail")
        is_put = argv[:3] in (("sh", "-c", shell.PUT), ("bash", "-c", shell.PUT_ALL))
        if user == OBSERVER and (is_put or _changes(orders.without_environment(argv))):
            return Ran(1, "", "Permission denied")
        answer = self.respond(self, argv, data)
        if answer is not None:
            return answer
        if is_put:
            return self._put(argv, data)
        plain = orders.without_environment(argv)
        return self._known(argv) if plain == argv else self.respond(self, plain, data) or self._known(plain)

    async def _restart_once(self, unit: str, cause: str, user: str) -> Ran:
        verb = "start" if self.restarts.get(unit) == cause else "restart"
        ran = await self.execute(("systemctl", verb, unit), user, b"")
        if ran.exit_status == 0:
            self.restarts[unit] = cause
        return ran

    def _put(self, argv: tuple[str, ...], data: bytes) -> Ran:
        try:
            wanted = orders.files(argv, data)
        except orders.Incomplete:
            return INCOMPLETE
        changed = [position for position, (path, content) in enumerate(wanted) if self.files.get(path) != content]
        self.files.update(wanted)
        if argv[2] == shell.PUT_ALL:
            return Ran(0, "".join(f"{position}\n" for position in changed), "")
        return Ran(0, "changed\n" if changed else "same\n", "")

    def _known(self, argv: tuple[str, ...]) -> Ran:
        match argv:
            case ("sh", "-c", shell.GET, _, str(path)):
                return self._read(path, Ran(shell.ABSENT_STATUS, "", ""))
            case ("sh", "-c", shell.GET_ALL, _, *paths):
                return Ran(0, "".join(map(self._encoded, paths)), "")
            case ("true",):
                return OK
            case ("mkdir" | "chmod" | "chown", *_) | ("install", "-d", *_):
                return OK
            case ("touch", *paths):
                self.files = {path: b"" for path in paths if not path.startswith("-")} | self.files
                return OK
            case ("cat", str(path)):
                return self._read(path, Ran(1, "", f"cat: {path}: No such file or directory"))
            case ("test", "-e" | "-f", str(path)):
                return OK if self.has(path) else NO
            case ("ls" | "find", *_, str(path)):
                return self._list(path)
            case ("rm", *paths):
                self.remove(paths)
                return OK
            case ("systemctl", *words):
                return self._systemctl([word for word in words if not word.startswith("-")], words)
        return Ran(127, "", f"{argv[0]}: command not found. Add it to Driver.respond of the app")

    def _read(self, path: str, absent: Ran) -> Ran:
        return Ran(0, as_text(self.files[path]), "") if path in self.files else absent

    def _encoded(self, path: str) -> str:
        return f"present {base64.b64encode(self.files[path]).decode()}\n" if path in self.files else "absent\n"

    def _list(self, folder: str) -> Ran:
        inside = folder.rstrip("/") + "/"
        names = sorted({path.removeprefix(inside).split("/")[0] for path in self.files if path.startswith(inside)})
        return Ran(0, "".join(f"{name}\n" for name in names), "")

    def has(self, path: str) -> bool:
        """Return whether the path, or something in it, exists."""
        return path in self.files or any(file.startswith(path.rstrip("/") + "/") for file in self.files)

    def remove(self, arguments: Sequence[str]) -> None:
        """Delete these files, and folders with their content. Options are left out."""
        for path in (word for word in arguments if not word.startswith("-")):
            for file in [file for file in self.files if file == path or file.startswith(path.rstrip("/") + "/")]:
                del self.files[file]

    def _systemctl(self, words: list[str], given: list[str]) -> Ran:
        verb, *units = words
        if verb == "is-active":
            states = [self.units.get(_unit(unit), "inactive") for unit in units]
            return Ran(0 if "active" in states else 3, "".join(f"{state}\n" for state in states), "")
        for unit in map(_unit, units):
            if verb in ("start", "restart") or (verb == "enable" and "--now" in given):
                if not self.files.keys() & {UNIT_FOLDER + unit, PACKAGED_UNITS + unit}:
                    return Ran(5, "", f"Unit {unit} not found.")
                self.starts[unit] = self.starts.get(unit, 0) + (self.units.get(unit) != "active" or verb == "restart")
                self.units[unit] = "active"
            elif verb == "stop" or (verb == "disable" and "--now" in given):
                self.units.pop(unit, None)
        return OK


class SimulatedMachines:
    """The machines of one check, by name. The first use of a name creates the machine."""

    def __init__(
        self, respond: Respond, is_current: Callable[[str], bool], prints: Prints = lambda machine, argv: None
    ) -> None:
        self.by_name: dict[str, SimulatedMachine] = {}
        self._network: dict[str, Any] = {}
        self._respond, self._prints = respond, prints
        self._is_current = is_current
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._doors: dict[str, Door] = {}

    def machine(self, name: str) -> SimulatedMachine:
        """Return the machine of this name."""
        if name not in self.by_name:
            self.by_name[name] = SimulatedMachine(
                name, self._respond, self._prints, is_current=self._is_current, network=self._network
            )
        return self.by_name[name]

    async def open(self, name: str) -> None:
        """Let the machine answer: at its start, and after `cut`."""
        machine = self.machine(name)
        door = self._doors.setdefault(name, Door(machine.execute, self._key, next_line=machine.line))
        await door.open()

    def cut(self, name: str) -> None:
        """Disconnect the machine: open connections break, and new ones break at once."""
        self._doors[name].cut()

    def address(self, name: str) -> str:
        """Return the address at which controllers reach the machine."""
        return f"{ADDRESS}:{self._doors[name].port}"

    def locate(self, allocation_id: str, request: RequestMachineAccess) -> Login:
        """Return where the controller logs in. The name of the user shows under which claim it does."""
        door = self._doors[allocation_id.removeprefix("alloc_")]
        user = OBSERVER if request.instance_id else f"{request.operation_id}.{request.epoch}"
        return Login(ADDRESS, door.port, user, self._key.export_public_key().decode().strip())

    @contextlib.asynccontextmanager
    async def serving(self, names: list[str]) -> AsyncIterator[None]:
        """Let these machines answer, and disconnect all at the end."""
        try:
            for name in names:
                await self.open(name)
            yield
        finally:
            await asyncio.gather(*(door.close() for door in self._doors.values()))


def _changes(argv: Sequence[str]) -> bool:
    """Return whether the command changes a machine, which an observer may not."""
    verbs = {"start", "stop", "restart", "reload", "enable", "disable", "kill", "daemon-reload"}
    return argv[0] in _CHANGE or (argv[0] == "systemctl" and bool(verbs & set(argv)))


def _unit(name: str) -> str:
    return name if re.search(r"\.(service|socket|timer|target|scope)$", name) else f"{name}.service"
