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
from gpuaas_contract.capacity import ALLOCATION_LIST, Allocation
from gpuaas_contract.errors import NotFound
from gpuaas_contract.instances import ACCESS_BUNDLE_GET, AccessBundle, Command

from gpuaas_cli import failures
from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session

CONNECT_TIMEOUT_S = 10


@dataclass(frozen=True)
class Ready:
    """Everything `ssh` needs, as files in a private folder."""

    access: MachineAccess
    folder: Path


def require_ssh() -> None:
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        raise failures.Failure(
            "There is no ssh on this machine", fix="apt-get install openssh-client", code="ssh_missing"
        )


async def find(session: Session, named: str) -> str:
    """The allocation behind an id, a node's name, or an instance whose access bundle names a machine."""
    allocations = await session.every(ALLOCATION_LIST)
    if any(_is(one, named) for one in allocations):
        return lookup.pick_allocation(allocations, named).allocation_id
    try:
        bundle = await session.call(ACCESS_BUNDLE_GET, instance_id=named)
    except NotFound as error:
        raise failures.not_found(
            f"{named} is no allocation and no node of this project, nor an instance that says how to reach it",
            "gpuaas get allocations",
        ) from error
    return first_command(bundle, named).allocation_id


def first_command(bundle: AccessBundle, instance: str) -> Command:
    placed = [command for command in bundle.commands if command.allocation_id]
    if not placed:
        raise failures.not_found(f"{instance} names no machine to log in to", f"gpuaas access {instance}")
    return placed[0]


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """A folder with a fresh key pair; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-ssh-") as name:
        key = Path(name) / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuaas", "-f", str(key)], check=True)
        yield Path(name)


async def ask(session: Session, allocation_id: str, folder: Path) -> Ready:
    public_key = (folder / "id.pub").read_text().strip()
    access = await session.call(
        MACHINE_ACCESS, RequestMachineAccess(public_key=public_key), allocation_id=allocation_id
    )
    (folder / "id-cert.pub").write_text(access.certificate.strip() + "\n")
    kind, key = access.host_public_key.split()[:2]
    (folder / "known_hosts").write_text(f"{access.principal} {kind} {key}\n")
    return Ready(access, folder)


def arguments(ready: Ready, command: Sequence[str], *, tty: bool = False) -> list[str]:
    """The command line of the system's ssh: this key, this certificate, this host key, and nobody else's settings."""
    options = {
        "CertificateFile": str(ready.folder / "id-cert.pub"),
        "IdentityFile": str(ready.folder / "id"),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": str(ready.folder / "known_hosts"),
        "GlobalKnownHostsFile": "none",
        "HostKeyAlias": ready.access.principal,
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "ServerAliveInterval": "15",
        "LogLevel": "ERROR",
    }
    found = ["ssh", "-F", "none", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    found += ["-t"] if tty else []
    found += ["-p", str(ready.access.port), "-l", ready.access.user, "--", ready.access.host]
    # ssh joins its words with spaces for a shell on the other side, so they are quoted once here.
    return [*found, shlex.join(command)] if command else found


def run(ready: Ready, command: Sequence[str], *, tty: bool = False) -> int:
    """Hand the terminal to ssh; Ctrl-C belongs to the other side."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(arguments(ready, command, tty=tty), check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def captured(ready: Ready, command: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments(ready, command),
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )


def as_user(command: Command) -> list[str]:
    """The line of an access bundle, to be run by the user it is meant for, in that user's home."""
    if not command.user:
        return ["bash", "-lc", command.line]
    return ["sudo", "-n", "-H", "-u", command.user, "--", "bash", "-lc", f"cd; {command.line}"]


def _is(allocation: Allocation, named: str) -> bool:
    return allocation.allocation_id == named or (allocation.node_name == named and allocation.status == "active")
