"""The SSH server of one simulated machine, which a check can cut off. Used by `machines`."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable

import asyncssh

from gpuaas_sdk.conformance import orders
from gpuaas_sdk.machine import Ran

ADDRESS = "127.0.0.1"
"""Where the servers of all machines listen, each at its own port. A bench gives each machine its own address."""
Execute = Callable[[tuple[str, ...], str, bytes], Awaitable[Ran]]
"""Runs a command of a user with its input on the machine."""
NextLine = Callable[[tuple[str, ...]], str | None]
"""Returns the line that a program which keeps running prints now; None: it is no such program, or it has ended."""
PROGRAM = ("python3", "-u", "-c")
"""How `Machine.lines` runs a program."""
DRIVER_FAILED = 70
"""The exit status of a command for which the driver of the app raised an error."""
LOOK_S = 1.0
"""How often a program that keeps running prints a line."""


class Door:
    """The SSH server of one machine. It listens also while the machine is cut off, so that its port stays its own."""

    def __init__(
        self,
        execute: Execute,
        key: asyncssh.SSHKey,
        address: str = ADDRESS,
        port: int = 0,
        next_line: NextLine = lambda argv: None,
    ) -> None:
        """Without a port, the first `open` chooses a free one."""
        self.port = port
        self._address = address
        self.is_cut = False
        self._execute = execute
        self._next_line = next_line
        self._key = key
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()

    async def open(self) -> None:
        """Accept connections: at the start, and after `cut`."""
        self.is_cut = False
        if self._acceptor is None:
            self._acceptor = await asyncssh.listen(
                self._address,
                self.port,
                server_factory=lambda: _Server(self),
                server_host_keys=[self._key],
                process_factory=self._process,
                encoding=None,
            )
            self.port = self._acceptor.get_port()

    def cut(self) -> None:
        """Break open connections now, and new ones as soon as they are made."""
        self.is_cut = True
        for connection in list(self._connections):
            connection.abort()

    async def close(self) -> None:
        """Break all connections and give up the port."""
        self.cut()
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None

    def add(self, connection: asyncssh.SSHServerConnection) -> None:
        """Add a new connection."""
        self._connections.add(connection)
        if self.is_cut:
            asyncio.get_running_loop().call_soon(connection.abort)  # asyncssh still works on the connection

    def discard(self, connection: asyncssh.SSHServerConnection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)

    async def _process(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        argv, size = orders.command_of(process.command or "")
        try:
            if argv[: len(PROGRAM)] == PROGRAM and (line := self._next_line(argv)) is not None:
                return await self._print(process, argv, line)
            data = await (process.stdin.read() if size is None else process.stdin.readexactly(size))
            ran = await self._execute(argv, process.get_extra_info("username"), data)
            process.stdout.write(orders.as_bytes(ran.stdout))
            process.stderr.write(orders.as_bytes(ran.stderr))
            process.exit(ran.exit_status)
        except (OSError, asyncssh.Error, asyncio.IncompleteReadError):
            process.close()
        except Exception as error:  # noqa: BLE001 - of the driver: without an answer, the machine would seem to be away
            traceback.print_exception(error)
            process.stderr.write(f"the driver failed: {type(error).__name__}: {error}\n".encode())
            process.exit(DRIVER_FAILED)

    async def _print(self, process: "asyncssh.SSHServerProcess[bytes]", argv: tuple[str, ...], line: str) -> None:
        """Print this line and the next ones until the client leaves or the program ends. It reads no input."""
        printed: str | None = line
        while printed is not None:
            process.stdout.write(f"{printed}\n".encode())
            await asyncio.sleep(LOOK_S)
            if process.is_closing():
                return
            printed = self._next_line(argv)
        process.exit(0)


class _Server(asyncssh.SSHServer):
    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._door.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return False  # the fake platform decides about access; the name shows which access is used
