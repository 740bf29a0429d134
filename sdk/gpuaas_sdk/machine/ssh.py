"""The SSH transport: one connection per machine, shared by all commands, opened on first use and after a failure."""

import asyncio
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import asyncssh
import msgspec
import structlog

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import shell
from gpuaas_sdk.machine.errors import CommandFailed, CommandTimedOut, MachineUnreachable, shown
from gpuaas_sdk.machine.machine import Machine
from gpuaas_sdk.machine.transport import Command, Completed

log = structlog.get_logger()

KEEPALIVE_INTERVAL_S = 7
"""A connection over which nothing arrived for this long is tested. It is longer than six seconds, the usual interval of
signs of life of a program that runs between looks: such a connection shows by itself that it works."""
KEEPALIVE_COUNT_MAX = 2
"""After so many tests without an answer, and the time of one more, the connection is closed: after 21 seconds."""
CIPHERS = "^aes256-gcm@openssh.com,aes128-gcm@openssh.com"
"""Preferred before the others of the library: most processors have instructions for them, so that a packet costs less
time. A controller reads a packet of each cluster every few seconds."""
CONNECT_TIMEOUT_S = 10.0
REPLY_GRACE_S = 15.0
"""If there is no reply this long after the time limit of a command, the machine is unreachable."""
TIMED_OUT_STATUS = 124
UNIT_ABOVE_S = 60.0
"""Commands with a longer time limit run in a unit. A shorter command ends soon by itself, and a unit costs time."""
STOP_S = 20.0
"""How long stopped commands may take to end: systemd kills them after five seconds."""
PRINTED_BYTES_MAX, OBSERVED_BYTES_MAX = 256 * 1024**2, 8 * 1024**2
"""How much a command may print, and how much to a caller that only looks. One process serves the machines of many
tenants, who are root there: without a limit, one machine could fill its memory."""
READ_BYTES = 64 * 1024
_HOSTNAME = ("hostname", "-s")


@dataclass
class RemoteWork:
    """The commands of one piece of work on a machine. Their names let a later connection stop those that still run.

    work = RemoteWork("op-1")
    name = work.new_unit()"""

    name: str
    may_run_already: bool = False
    """Commands of an earlier process may still run. The first connection stops them."""
    lost: set[str] = field(default_factory=set)
    """Units of commands whose end is unknown, because the connection broke. The next connection stops them."""

    def new_unit(self) -> str:
        """Return the name of a systemd unit for one command, which no other command has."""
        return f"gpuaas-{self.name}-{secrets.token_hex(4)}.scope"

    def take_lost(self) -> list[str]:
        """Return the units to stop, once."""
        units = sorted(self.lost) + ([f"gpuaas-{self.name}-*.scope"] if self.may_run_already else [])
        self.lost.clear()
        self.may_run_already = False
        return units


class MachineTarget(msgspec.Struct, frozen=True):
    """The address, user and keys of a machine. Its host key must be given, so that no key is trusted on first use.

    target = MachineTarget("10.0.0.7", 22, "kv", host_public_key=text, private_key=key, certificate=text)"""

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
    work: RemoteWork | None = None
    """What the commands belong to. Without it, a command may continue after its caller has gone."""


@asynccontextmanager
async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
    """Connect to the machine, read its host name, and close the connection at the end.

    async with connect(target) as machine:
        ran = await machine.run("uptime")"""
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
        """Connect, stop the commands of earlier connections whose end is unknown, and read the host name."""
        if self.target.work is not None and (units := self.target.work.take_lost()):
            await self._stop(units)
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
        return shlex.join(self._argv(command))

    def _argv(self, command: Command) -> list[str]:
        if not self.target.is_privileged:
            return shell.unprivileged(command.argv, command.timeout_s)
        return shell.as_root(command.argv, self.target.user, command.as_user, command.timeout_s)

    async def _reply(self, command: Command) -> asyncssh.SSHCompletedProcess:
        """Run the command. One that may take long runs in a unit of its own, which ends with this call."""
        work = self.target.work if command.timeout_s > UNIT_ABOVE_S else None
        timeout_s, argv = command.timeout_s + REPLY_GRACE_S, self._argv(command)
        connection = await self._connected()
        unit = work.new_unit() if work is not None else ""
        bytes_max = PRINTED_BYTES_MAX if self.target.is_privileged else OBSERVED_BYTES_MAX
        try:
            with self._wire_errors(connection, timed_out=f"no reply within {timeout_s:g} s"):
                async with asyncio.timeout(timeout_s):
                    if unit:
                        line = shlex.join(shell.watched(argv, unit, len(command.input)))
                        return await _run_watched(connection, line, command.input, bytes_max)
                    return await _run(connection, shlex.join(argv), command.input, bytes_max)
        except MachineUnreachable:
            if work is not None:
                work.lost.add(unit)
            raise
        except asyncio.CancelledError:
            if work is not None:
                # The caller may undo the work next, so wait until no process of the command is left.
                work.lost.add(unit)
                await self._stop([unit])
            raise

    async def _stop(self, units: list[str]) -> None:
        """Stop the units and wait for their end. If the machine does not answer, the next connection stops them."""
        argv = ["sh", "-c", shell.STOP_UNITS, "stop", *units]
        line = shlex.join(shell.as_root(tuple(argv), self.target.user, None, STOP_S))
        try:
            async with asyncio.timeout(STOP_S + REPLY_GRACE_S):
                connection = await self._connected()
                await connection.run(line, stdin=asyncssh.DEVNULL, encoding=None, check=False)
        except (OSError, asyncssh.Error, MachineUnreachable) as error:
            log.warning("machine.stop_failed", machine=self.hostname, units=units, error=str(error))
            return
        if self.target.work is not None:
            self.target.work.lost.difference_update(units)

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
                encryption_algs=CIPHERS,
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
        except (OSError, asyncssh.Error, AttributeError) as error:
            # The library uses a session that it has dropped if the connection breaks while a command is accepted.
            if isinstance(error, AttributeError) and not connection.is_closed():
                raise
            connection.abort()
            if self._connection is connection:
                self._connection = None
            is_drop = isinstance(error, AttributeError)
            reason = "the connection broke" if is_drop else str(error) or timed_out or type(error).__name__
            raise self._unreachable(reason) from error

    def _unreachable(self, reason: str) -> MachineUnreachable:
        return MachineUnreachable(self.hostname, f"{self.target.host}:{self.target.port}", reason)


async def _run(
    connection: asyncssh.SSHClientConnection, line: str, data: bytes, bytes_max: int
) -> asyncssh.SSHCompletedProcess:
    stdin = {} if data else {"stdin": asyncssh.DEVNULL}
    async with connection.create_process(line, encoding=None, **stdin) as process:
        if data:
            process.stdin.write(data)
            process.stdin.write_eof()
        return await _completed(connection, process, bytes_max)


async def _run_watched(
    connection: asyncssh.SSHClientConnection, line: str, data: bytes, bytes_max: int
) -> asyncssh.SSHCompletedProcess:
    """Run the command. Its standard input stays open until it has ended: an earlier end means that the caller has
    gone."""
    async with connection.create_process(line, encoding=None) as process:
        if data:  # a command without input may have ended already, and its channel takes nothing then
            process.stdin.write(data)
        # With `wait`, standard input would end now.
        return await _completed(connection, process, bytes_max)


async def _completed(
    connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes], bytes_max: int
) -> asyncssh.SSHCompletedProcess:
    """Read until the command has ended. Cut the connection if there is more than a command of ours prints: who is root
    on a machine decides what its commands print."""
    try:
        stdout, stderr = await asyncio.gather(_read(process.stdout, bytes_max), _read(process.stderr, bytes_max))
    except OSError:
        connection.abort()
        raise
    await process.wait_closed()
    return asyncssh.SSHCompletedProcess(
        process.env,
        process.command,
        process.subsystem,
        process.exit_status,
        process.exit_signal,
        process.returncode,
        stdout,
        stderr,
    )


async def _read(stream: asyncssh.SSHReader[bytes], bytes_max: int) -> bytes:
    parts, size = [], 0
    while part := await stream.read(READ_BYTES):
        size += len(part)
        if size > bytes_max:
            raise OSError(f"a command printed more than {bytes_max // 1024**2} MiB")
        parts.append(part)
    return b"".join(parts)


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
