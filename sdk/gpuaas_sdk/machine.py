"""A host, as root, over SSH.  App controllers get one from `Operation.machine`; workload code sees only `Machine`.

One connection per machine, opened on first use, reused, and opened again after it was lost."""

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

import asyncssh
import msgspec

from gpuaas_sdk.failures import Permanent, Temporary

OUTPUT_IN_ERRORS_MAX = 2000
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT_MAX = 3
CONNECT_TIMEOUT_S = 10.0
REPLY_GRACE_S = 15.0
"""How much longer than the remote time limit we wait for the reply before the machine counts as unreachable."""

TIMED_OUT_STATUS = 124
ABSENT_STATUS = 44

AS_USER = (
    'HOME=$(getent passwd "$(id -un)" | cut -d: -f6); USER=$(id -un); LOGNAME=$USER; export HOME USER LOGNAME; '
    'cd "$HOME" 2>/dev/null || cd /; exec "$@"'
)
GET = f'[ -e "$1" ] || exit {ABSENT_STATUS}; exec cat -- "$1"'
# Input ends early when the caller dies or the connection breaks, so the file is counted before it takes its place.
PUT = """set -eu
path=$1 mode=$2 owner=$3 size=$4
temporary=$(mktemp "$(dirname -- "$path")/.gpuaas.XXXXXXXX")
trap 'rm -f -- "$temporary"' EXIT
cat > "$temporary"
[ "$(stat -c %s -- "$temporary")" = "$size" ] || { echo "only a part of the content arrived" >&2; exit 1; }
chown -- "$owner" "$temporary"
chmod -- "$mode" "$temporary"
look() { stat -c '%a %U:%G' -- "$1"; }
if [ -f "$path" ] && cmp -s -- "$temporary" "$path" && [ "$(look "$path")" = "$(look "$temporary")" ]; then
  echo same
else
  sync -- "$temporary"
  mv -fT -- "$temporary" "$path"
  echo changed
fi
"""


# Ends with its caller: standard input closes when the connection does, whoever relays it.
FOLLOW = """exec 3<&0 </dev/null
{ cat <&3; kill $$; } >/dev/null 2>&1 &
exec 3<&- tail -n "$2" -F -- "$1" 2>/dev/null
"""
FOLLOW_S_MAX = 3600


class Ran(msgspec.Struct, frozen=True):
    """How one command ended."""

    exit_status: int
    stdout: str
    stderr: str


class MachineTarget(msgspec.Struct, frozen=True):
    """Where a machine is and what proves both sides: its host key is known beforehand, ours never leaves memory."""

    host: str
    port: int
    user: str
    host_public_key: str
    private_key: str
    certificate: str | None = None
    address: str = ""
    """Address other machines reach it at; `host` unless SSH goes another way."""


class Machine(Protocol):
    """A host, as root. Commands are argv lists; nothing is ever interpolated into a shell string."""

    hostname: str
    address: str

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran: ...

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran: ...

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool: ...

    async def get(self, path: str) -> bytes | None: ...

    def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]: ...


class MachineUnreachable(Temporary):
    """The host did not answer, or the connection broke: nothing is known about the command's effect."""

    def __init__(self, machine: str, address: str, reason: str) -> None:
        super().__init__(f"machine {machine} ({address}) cannot be reached: {reason}")
        self.machine = machine
        self.address = address
        self.reason = reason


class CommandTimedOut(Temporary):
    """The command was stopped on the machine because it ran past its time limit."""


class CommandFailed(Permanent):
    """The command ended with a non-zero exit status."""

    def __init__(self, machine: str, argv: tuple[str, ...], ran: Ran) -> None:
        said = (ran.stderr.strip() or ran.stdout.strip())[-OUTPUT_IN_ERRORS_MAX:]
        line = shlex.join(argv)[:200]
        super().__init__(f"on {machine}: `{line}` ended with status {ran.exit_status}: {said or 'no output'}")
        self.machine = machine
        self.argv = argv
        self.ran = ran


@asynccontextmanager
async def connect(target: MachineTarget) -> AsyncIterator["SshMachine"]:
    """Open the machine, learn its host name, close the connection at the end."""
    machine = SshMachine(target)
    try:
        await machine.open()
        yield machine
    finally:
        await machine.close()


class SshMachine:
    """`Machine` over one SSH connection."""

    def __init__(self, target: MachineTarget) -> None:
        self.target = target
        self.hostname = target.host
        self.address = target.address or target.host
        self._connection: asyncssh.SSHClientConnection | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        ran = await self.run("hostname", "-s")
        self.hostname = ran.stdout.strip() or self.target.host

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran:
        status, stdout, stderr = await self._execute(argv, input, as_user, timeout_s)
        ran = Ran(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
        if check and ran.exit_status != 0:
            raise CommandFailed(self.hostname, argv, ran)
        return ran

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        # Grouped, so that bash reads all of it before the first command runs and no command can eat the rest.
        grouped = f"{{\n{text}\n}} </dev/null\n"
        bash = ("bash", "-seuo", "pipefail", "--", *argv)
        return await self.run(*bash, input=grouped, check=check, timeout_s=timeout_s)

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        sent = content.encode() if isinstance(content, str) else content
        ran = await self.run("sh", "-c", PUT, "put", path, f"{mode:o}", owner, str(len(sent)), input=sent)
        return ran.stdout.strip() == "changed"

    async def get(self, path: str) -> bytes | None:
        argv = ("sh", "-c", GET, "get", path)
        status, stdout, stderr = await self._execute(argv, b"", None, 60)
        if status == ABSENT_STATUS:
            return None
        if status != 0:
            raise CommandFailed(self.hostname, ("cat", path), Ran(status, "", stderr.decode(errors="replace")))
        return stdout

    async def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]:
        """The last `lines` of a file, then each new one as it is written, for an hour at most.

        The file may not exist yet, and may be rotated meanwhile. Leaving the loop ends it on the machine too."""
        argv = ("sh", "-c", FOLLOW, "follow", path, str(lines))
        command = shlex.join(_wrapped(argv, self.target.user, None, FOLLOW_S_MAX))
        connection = await self._connected()
        with self._answering(connection):
            async with connection.create_process(command, errors="replace") as process:
                while line := await process.stdout.readline():
                    yield line.removesuffix("\n")
        raise self._follow_ended(path, process.returncode)

    async def _execute(
        self, argv: tuple[str, ...], input: str | bytes, as_user: str | None, timeout_s: float
    ) -> tuple[int, bytes, bytes]:
        command = shlex.join(_wrapped(argv, self.target.user, as_user, timeout_s))
        content = input.encode() if isinstance(input, str) else input
        started = time.monotonic()
        completed = await self._reply(command, content, timeout_s + REPLY_GRACE_S)
        status = completed.returncode
        if status is None:
            raise self._unreachable("the connection broke before the command had ended")
        if status == TIMED_OUT_STATUS and time.monotonic() - started >= timeout_s:
            raise CommandTimedOut(f"on {self.hostname}: `{shlex.join(argv)[:200]}` ran longer than {timeout_s:g} s")
        return status, _as_bytes(completed.stdout), _as_bytes(completed.stderr)

    async def _reply(self, command: str, content: bytes, timeout_s: float) -> asyncssh.SSHCompletedProcess:
        connection = await self._connected()
        with self._answering(connection, late=f"no reply within {timeout_s:g} s"):
            async with asyncio.timeout(timeout_s):
                if content:
                    return await connection.run(command, input=content, encoding=None, check=False)
                return await connection.run(command, stdin=asyncssh.DEVNULL, encoding=None, check=False)

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._opening:
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
                f"machine {self.hostname} ({target.host}:{target.port}) shows another host key than the one on record",
                fix=f"ssh-keyscan -p {target.port} {target.host}",
            ) from error
        except (OSError, asyncssh.Error) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    @contextmanager
    def _answering(self, connection: asyncssh.SSHClientConnection, late: str = "") -> Iterator[None]:
        """Whatever goes wrong on the wire is one error to callers, and the next command opens a new connection."""
        try:
            yield
        except (OSError, asyncssh.Error) as error:
            connection.abort()
            if self._connection is connection:
                self._connection = None
            raise self._unreachable(str(error) or late or type(error).__name__) from error

    def _follow_ended(self, path: str, status: int | None) -> Temporary | CommandFailed:
        if status is None:
            return self._unreachable(f"the connection broke while {path} was followed")
        if status == TIMED_OUT_STATUS:
            return CommandTimedOut(f"on {self.hostname}: {path} was followed for longer than {FOLLOW_S_MAX} s")
        return CommandFailed(self.hostname, ("tail", "-F", path), Ran(status, "", ""))

    def _unreachable(self, reason: str) -> MachineUnreachable:
        return MachineUnreachable(self.hostname, f"{self.target.host}:{self.target.port}", reason)


def _wrapped(argv: tuple[str, ...], login_user: str, as_user: str | None, timeout_s: float) -> list[str]:
    """Root by sudo where needed; a time limit enforced on the machine, so a lost caller leaves nothing running."""
    command = list(argv)
    if as_user is not None:
        command = ["runuser", "-u", as_user, "--", "sh", "-c", AS_USER, "sh", *command]
    command = ["timeout", "--kill-after=5", f"{timeout_s:g}", *command]
    return command if login_user == "root" else ["sudo", "-n", "--", *command]


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
