"""Get into an allocation's machine: a key pair that lives for one login, a short certificate, a pinned host key.
Used by `gpuaas ssh` and by `gpuaas up` to prove that an app works."""

import contextlib
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.errors import NotFound
from gpuaas_contract.instances import ACCESS_BUNDLE_GET, AccessBundle, Command

from gpuaas_cli import failures
from gpuaas_cli.client.session import Session

_OPTIONS = (
    "IdentitiesOnly=yes IdentityAgent=none GlobalKnownHostsFile=none StrictHostKeyChecking=yes UpdateHostKeys=no "
    "BatchMode=yes ConnectTimeout=10 ServerAliveInterval=15 LogLevel=ERROR"
)


@dataclass(frozen=True)
class Ready:
    """Everything `ssh` needs, as files in a private folder."""

    access: MachineAccess
    folder: Path


async def enter(session: Session, named: str, folder: Path) -> Ready:
    """Enter the machine of an allocation, of a node, or of an instance whose access bundle names one."""
    with contextlib.suppress(NotFound):
        return await ask(session, named, folder)
    try:
        bundle = await session.call(ACCESS_BUNDLE_GET, instance_id=named)
    except NotFound as error:
        message = f"{named} is no allocation and no node of this project, and no instance with an access bundle"
        raise failures.not_found(message, "gpuaas get allocations") from error
    return await ask(session, first_command(bundle, named).allocation_id, folder)


def first_command(bundle: AccessBundle, instance: str) -> Command:
    placed = [command for command in bundle.commands if command.allocation_id]
    if not placed:
        raise failures.not_found(f"{instance} names no machine to log in to", f"gpuaas access {instance}")
    return placed[0]


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """A folder with a fresh key pair; nothing of it stays."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        fix = "apt-get install openssh-client"
        raise failures.Failure("There is no ssh on this machine", fix=fix, code="ssh_missing")
    with tempfile.TemporaryDirectory(prefix="gpuaas-ssh-") as name:
        key = Path(name) / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuaas", "-f", str(key)], check=True)
        yield Path(name)


async def ask(session: Session, allocation_id: str, folder: Path) -> Ready:
    body = RequestMachineAccess(public_key=(folder / "id.pub").read_text().strip())
    access = await session.call(MACHINE_ACCESS, body, allocation_id=allocation_id)
    (folder / "id-cert.pub").write_text(access.certificate.strip() + "\n")
    kind, key = access.host_public_key.split()[:2]
    (folder / "known_hosts").write_text(f"{access.principal} {kind} {key}\n")
    return Ready(access, folder)


def arguments(ready: Ready, command: Sequence[str], *, tty: bool = False) -> list[str]:
    """The command line of the system's ssh: this key, this certificate, this host key, and no other settings."""
    files = {"CertificateFile": "id-cert.pub", "IdentityFile": "id", "UserKnownHostsFile": "known_hosts"}
    options = [*(f"{name}={ready.folder / file}" for name, file in files.items()), *_OPTIONS.split()]
    options.append(f"HostKeyAlias={ready.access.principal}")
    result = ["ssh", "-F", "none", *(word for option in options for word in ("-o", option)), *(["-t"] if tty else [])]
    result += ["-p", str(ready.access.port), "-l", ready.access.user, "--", ready.access.host]
    return [*result, remote_line(command)] if command else result


def remote_line(command: Sequence[str]) -> str:
    """The line for the shell on the machine. One word is a line as it is: `'a; b'`. ssh joins several with spaces, so
    each is quoted once here."""
    return command[0] if len(command) == 1 else shlex.join(command)


def run(ready: Ready, command: Sequence[str], *, tty: bool = False) -> int:
    """Hand the terminal to ssh; Ctrl-C belongs to the other side."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(arguments(ready, command, tty=tty), check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def captured(ready: Ready, command: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    words, none = arguments(ready, command), subprocess.DEVNULL
    try:
        return subprocess.run(
            words, check=False, capture_output=True, text=True, errors="replace", stdin=none, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"no end within {timeout_s:.0f} s")


def as_user(command: Command) -> list[str]:
    """The line of an access bundle, to be run by the user it is meant for, in that user's home."""
    if not command.user:
        return ["bash", "-lc", command.line]
    return ["sudo", "-n", "-H", "-u", command.user, "--", "bash", "-lc", f"cd; {command.line}"]
