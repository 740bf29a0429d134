"""Log in to an allocation's machine with a key pair for one login, a short-lived certificate and a pinned host key.
Used by `gpuaas ssh`, and by `gpuaas up` to test that an app works."""

import asyncio
import contextlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from gpuaas_contract.access import MACHINE_ACCESS, AccessAs, MachineAccess, RequestMachineAccess
from gpuaas_contract.errors import AccountPending, NotFound
from gpuaas_contract.instances import ACCESS_BUNDLE_GET, AccessBundle, Command

from gpuaas_cli import failures
from gpuaas_cli.client.session import Session

_OPTIONS = (
    "IdentitiesOnly=yes IdentityAgent=none GlobalKnownHostsFile=none StrictHostKeyChecking=yes UpdateHostKeys=no "
    "BatchMode=yes ConnectTimeout=10 ServerAliveInterval=15 LogLevel=ERROR"
)
_ALIAS = "gpuaas"
"""Name under which the one host key is in the file that ssh reads."""
ACCOUNT_S, ACCOUNT_PAUSE_S = 30.0, 0.5
"""How long to wait for the person's account on a machine, and the pause between attempts."""
Login = list[str]
"""Arguments for the system's `ssh` to reach a machine. The key and the certificate are files in a private folder."""


@contextlib.asynccontextmanager
async def entered(session: Session, named: str, way: AccessAs) -> AsyncIterator[Login]:
    """Yield the login to the machine of an allocation, of a node, or of an instance whose access bundle names one.
    The key pair is new and is deleted at the end."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        fix = "apt-get install openssh-client"
        raise failures.Failure("The program ssh is not installed on this machine", fix=fix, code="ssh_missing")
    with tempfile.TemporaryDirectory(prefix="gpuaas-ssh-") as name:
        key = str(Path(name) / "id")
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuaas", "-f", key]
        await asyncio.to_thread(subprocess.run, make_key, check=True)
        try:
            login = await _ask(session, named, Path(name), way)
        except NotFound:
            login = await _ask(session, await _login_machine(session, named), Path(name), way)
        yield login


async def _login_machine(session: Session, instance: str) -> str:
    try:
        bundle = await session.call(ACCESS_BUNDLE_GET, instance_id=instance)
    except NotFound as error:
        message = f"{instance} is no allocation and no node of this project, and no instance with an access bundle"
        raise failures.not_found(message, "gpuaas get allocations") from error
    return first_command(bundle, instance).allocation_id


def first_command(bundle: AccessBundle, instance: str) -> Command:
    placed = [command for command in bundle.commands if command.allocation_id]
    if not placed:
        raise failures.not_found(f"{instance} names no machine to log in to", f"gpuaas access {instance}")
    return placed[0]


async def _ask(session: Session, allocation_id: str, folder: Path, way: AccessAs) -> Login:
    """Request a certificate; return `ssh` arguments with only this key, certificate and host key."""
    body = RequestMachineAccess(public_key=(folder / "id.pub").read_text().strip(), as_=way)
    access = await _granted(session, allocation_id, body)
    (folder / "id-cert.pub").write_text(access.certificate.strip() + "\n")
    kind, key = access.host_public_key.split()[:2]
    (folder / "known_hosts").write_text(f"{_ALIAS} {kind} {key}\n")
    files = {"CertificateFile": "id-cert.pub", "IdentityFile": "id", "UserKnownHostsFile": "known_hosts"}
    options = [f"HostKeyAlias={_ALIAS}", *(f"{name}={folder / file}" for name, file in files.items())]
    result = ["-F", "none", *(word for option in (*options, *_OPTIONS.split()) for word in ("-o", option))]
    return [*result, "-p", str(access.port), "-l", access.user, "--", access.host]


async def _granted(session: Session, allocation_id: str, body: RequestMachineAccess) -> MachineAccess:
    """Request access. On a machine that was claimed just now, wait until the agent has made the person's account."""
    deadline_s = time.monotonic() + ACCOUNT_S
    while True:
        try:
            return await session.call(MACHINE_ACCESS, body, allocation_id=allocation_id)
        except AccountPending:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(ACCOUNT_PAUSE_S)


def remote_line(command: Sequence[str]) -> str:
    """Return the line for the shell on the machine. One word is used unchanged, such as `'a; b'`. Several words are
    quoted, because ssh joins them with spaces."""
    return command[0] if len(command) == 1 else shlex.join(command)


def run(login: Login, command: Sequence[str], *, tty: bool = False) -> int:
    """Run ssh on the terminal and return its exit status. Ctrl-C is ignored here, so that only ssh handles it."""
    line = [remote_line(command)] if command else []
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(["ssh", *(["-t"] if tty else []), *login, *line], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def captured(login: Login, command: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    words, none = ["ssh", *login, remote_line(command)], subprocess.DEVNULL
    try:
        return subprocess.run(
            words, check=False, capture_output=True, text=True, errors="replace", stdin=none, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"no end within {timeout_s:.0f} s")


def as_user(command: Command) -> list[str]:
    """Return the words that run a command of an access bundle as its user, in that user's home."""
    if not command.user:
        return ["bash", "-lc", command.line]
    return ["sudo", "-n", "-H", "-u", command.user, "--", "bash", "-lc", f"cd; {command.line}"]
