"""The SSH transport: one connection per machine, shared by all commands, opened on first use and after a failure."""

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncssh
import msgspec

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import shell
from gpuaas_sdk.machine.errors import CommandFailed, CommandTimedOut, MachineUnreachable, shown
from gpuaas_sdk.machine.machine import Machine
from gpuaas_sdk.machine.transport import Command, Completed

KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT_MAX = 3
CONNECT_TIMEOUT_S = 10.0
REPLY_GRACE_S = 15.0
"""If there is no reply this long after the time limit of a command, the machine is unreachable."""
TIMED_OUT_STATUS = 124
_HOSTNAME = ("hostname", "-s")


class MachineTarget(msgspec.Struct, frozen=True):
    """The address, user and keys of a machine. Its host key must be given, so that no key is trusted on first use."""

    host: str
    port: int
    user: str
    host_public_key: str
    private_key: str
    certificate: str | None = None
    address: str = ""
    """Address at which other machines reach the machine. Empty means `host`."""
    is_privileged: bool = True
    """Whether commands run as root. False: they run as `user`, who can only read."""


@asynccontextmanager
async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
    """Connect to the machine, read its host name, and close the connection at the end."""
    transport = SshTransport(target)
    try:
        await transport.open()
        yield Machine(transport)
    finally:
        await transport.close()


class SshTransport:
    """`Transport` over one SSH connection."""

    def __init__(self, target: MachineTarget) -> None:
        self.target = target
        self.hostname = target.host
        self.address = target.address or target.host
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connect_lock = asyncio.Lock()

    async def open(self) -> None:
        """Connect and read the host name."""
        command = Command(_HOSTNAME, summary=_HOSTNAME)
        completed = await self.execute(command)
        if completed.exit_status != 0:
            raise CommandFailed(self.hostname, command, completed)
        self.hostname = completed.stdout.decode(errors="replace").strip() or self.target.host

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    def abort(self) -> None:
        """Cut the connection, as a network failure would. The next command reconnects."""
        if self._connection is not None:
            self._connection.abort()

    async def execute(self, command: Command) -> Completed:
        """Run the command and return its exit status and output. The class `Transport` lists the errors."""
        started = time.monotonic()
        reply = await self._reply(command)
        status = reply.returncode
        if status is None:
            raise self._unreachable(f"the connection broke during `{shown(command)}`")
        if status == TIMED_OUT_STATUS and time.monotonic() - started >= command.timeout_s:
            raise CommandTimedOut(self.hostname, command)
        return Completed(status, _as_bytes(reply.stdout), _as_bytes(reply.stderr))

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        """Run the command and yield its output lines. The class `Transport` lists the errors."""
        connection = await self._connected()
        with self._wire_errors(connection):
            async with connection.create_process(self._remote(command), errors="replace") as process:
                while line := await process.stdout.readline():
                    yield line.removesuffix("\n")
        if process.returncode is None:
            raise self._unreachable(f"the connection broke during `{shown(command)}`")
        if process.returncode == TIMED_OUT_STATUS:
            raise CommandTimedOut(self.hostname, command)
        raise CommandFailed(self.hostname, command, Completed(process.returncode))

    def _remote(self, command: Command) -> str:
        if not self.target.is_privileged:
            return shlex.join(shell.unprivileged(command.argv, command.timeout_s))
        return shlex.join(shell.as_root(command.argv, self.target.user, command.as_user, command.timeout_s))

    async def _reply(self, command: Command) -> asyncssh.SSHCompletedProcess:
        timeout_s, line = command.timeout_s + REPLY_GRACE_S, self._remote(command)
        connection = await self._connected()
        with self._wire_errors(connection, timed_out=f"no reply within {timeout_s:g} s"):
            async with asyncio.timeout(timeout_s):
                if command.input:
                    return await connection.run(line, input=command.input, encoding=None, check=False)
                return await connection.run(line, stdin=asyncssh.DEVNULL, encoding=None, check=False)

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connect_lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._open_connection()
            return self._connection

    async def _open_connection(self) -> asyncssh.SSHClientConnection:
        target = self.target
        try:
            return await asyncssh.connect(
                target.host,
                target.port,
                username=target.user,
                client_keys=[_client_key(target)],
                known_hosts=_known_hosts(target),
                config=None,
                agent_path=None,
                preferred_auth="publickey",
                connect_timeout=CONNECT_TIMEOUT_S,
                login_timeout=CONNECT_TIMEOUT_S,
                keepalive_interval=KEEPALIVE_INTERVAL_S,
                keepalive_count_max=KEEPALIVE_COUNT_MAX,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise Permanent(
                f"machine {self.hostname} ({target.host}:{target.port}) does not have the registered host key",
                fix=f"ssh-keyscan -p {target.port} {target.host}",
            ) from error
        except (OSError, asyncssh.Error) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    @contextmanager
    def _wire_errors(self, connection: asyncssh.SSHClientConnection, timed_out: str = "") -> Iterator[None]:
        """Turn every error of the connection into `MachineUnreachable`, and let the next command reconnect."""
        try:
            yield
        except (OSError, asyncssh.Error) as error:
            connection.abort()
            if self._connection is connection:
                self._connection = None
            raise self._unreachable(str(error) or timed_out or type(error).__name__) from error

    def _unreachable(self, reason: str) -> MachineUnreachable:
        return MachineUnreachable(self.hostname, f"{self.target.host}:{self.target.port}", reason)


def _client_key(target: MachineTarget) -> asyncssh.SSHKey | tuple[asyncssh.SSHKey, asyncssh.SSHCertificate]:
    key = asyncssh.import_private_key(target.private_key)
    if not target.certificate:
        return key
    return key, asyncssh.import_certificate(target.certificate)


def _known_hosts(target: MachineTarget) -> asyncssh.SSHKnownHosts:
    name = target.host if target.port == asyncssh.DEFAULT_PORT else f"[{target.host}]:{target.port}"
    algorithm_and_key = " ".join(target.host_public_key.split()[:2])
    return asyncssh.import_known_hosts(f"{name} {algorithm_and_key}\n")


def _as_bytes(output: bytes | str | None) -> bytes:
    if output is None:
        return b""
    return output.encode() if isinstance(output, str) else output
