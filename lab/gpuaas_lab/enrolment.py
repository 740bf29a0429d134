"""Install the node agent and its enrolment token on a machine, before its start or while it runs. Used by `lab.py`."""

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuaas_lab import errors, machine, plan, shell

AGENT_PATH = "/opt/gpuaas/agent.pyz"
CONFIG_PATH = "/etc/gpuaas/agent.json"
UNIT_NAME = "gpuaas-agent.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT_NAME}"


@dataclass(frozen=True)
class Enrolment:
    """The file and the systemd unit of the agent, its server, the keys of its releases, and one enrolment token per
    machine."""

    agent: bytes
    unit: bytes
    server: str
    ca_sha256: str
    tokens: Mapping[str, str]
    release_keys: Sequence[str]
    """Public keys. The agent installs only releases that one of them signed."""


def read(agent: Path, enrol: Path) -> Enrolment:
    program, unit = read_agent(agent)
    try:
        data = json.loads(enrol.read_text())
        return Enrolment(
            agent=program,
            unit=unit,
            server=str(data["server"]),
            ca_sha256=str(data["ca_sha256"]),
            tokens=dict(data["tokens"]),
            release_keys=list(data.get("release_keys", [])),
        )
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise errors.UsageError(
            f"cannot read the enrolment file {enrol}: {reason!r}",
            'content of the enrolment file: {"server": "https://…", "ca_sha256": "…", "tokens": {"gpu-1": "…"}, '
            '"release_keys": ["…"]}',
        ) from reason


def read_agent(agent: Path) -> tuple[bytes, bytes]:
    """Return the file of the agent and its systemd unit, which is in the file."""
    try:
        with zipfile.ZipFile(agent) as archive:
            return agent.read_bytes(), archive.read(UNIT_NAME)
    except (OSError, KeyError, zipfile.BadZipFile) as reason:
        raise errors.UsageError(f"cannot read the agent {agent}: {reason!r}") from reason


def apply(target: machine.Machine, enrolment: Enrolment) -> bool:
    """Write missing or outdated files of the agent; return whether anything changed. An existing configuration stays.

    The installed agent is recorded last. If this process ends before that, the next `up` records it.
    """
    files = _config(target, enrolment)
    if not files and not _exists(target, CONFIG_PATH):
        return False
    present, wanted = _sha256(target, AGENT_PATH), hashlib.sha256(enrolment.agent).hexdigest()
    is_ours = plan.may_renew_agent(present=present, wanted=wanted, installed=_installed(target))
    if not is_ours:
        shell.progress(
            f"{target.name} keeps its upgraded agent. To change it: gpuaas agent upgrade {target.name} --to …"
        )
    else:
        files |= _outdated(target, AGENT_PATH, machine.File(enrolment.agent, 0o755))
        files |= _outdated(target, UNIT_PATH, machine.File(enrolment.unit))
    if files:
        machine.write_files(target, files)
        machine.in_root(target, ["systemctl", "--quiet", "enable", UNIT_NAME])
    if is_ours:
        shell.write_atomically(_record(target), wanted)
    return bool(files)


def restart_agent(target: machine.Machine) -> None:
    """Reload systemd's units in a running machine and restart the agent."""
    for argv in (["systemctl", "daemon-reload"], ["systemctl", "restart", UNIT_NAME]):
        shell.run(machine.enter_command(target, argv), environment=machine.EXEC_ENVIRONMENT)


def _config(target: machine.Machine, enrolment: Enrolment) -> dict[str, machine.File]:
    """Return the configuration file to write; empty if the machine already has one or there is no token for it."""
    token = enrolment.tokens.get(target.name)
    if not token or _exists(target, CONFIG_PATH):
        return {}
    config = {
        "server": enrolment.server,
        "ca_sha256": enrolment.ca_sha256,
        "token": token,
        "name": target.name,
        "release_keys": list(enrolment.release_keys),
    }
    return {CONFIG_PATH[1:]: machine.File((json.dumps(config, indent=1) + "\n").encode(), 0o600)}


def _outdated(target: machine.Machine, path: str, wanted: machine.File) -> dict[str, machine.File]:
    """Return the file unless the machine has the same content already."""
    return {} if _sha256(target, path) == hashlib.sha256(wanted.content).hexdigest() else {path[1:]: wanted}


def _record(target: machine.Machine) -> Path:
    """Return the file on the host with the digest of the agent that the lab installed last."""
    return target.folder / "agent.sha256"


def _installed(target: machine.Machine) -> str:
    return _record(target).read_text() if _record(target).exists() else ""


def _exists(target: machine.Machine, path: str) -> bool:
    return shell.succeeds(["chroot", str(target.root), "test", "-e", path])


def _sha256(target: machine.Machine, path: str) -> str:
    return machine.in_root(target, ["sha256sum", path]).split()[0] if _exists(target, path) else ""
