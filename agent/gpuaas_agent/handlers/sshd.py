"""Makes sshd believe the platform's SSH authority, for users with a principal file only. Called by allocation."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from gpuaas_agent import commands, facts, files
from gpuaas_agent.handlers import revocation, spec
from gpuaas_agent.handlers.ssh_files import PRINCIPALS, TRUST, USER_CA

DROP_IN = Path("/etc/ssh/sshd_config.d/50-gpuaas.conf")
RELOAD_DUE = TRUST / "reload-due"
"""There while the drop-in may differ from what sshd has loaded, so a crash in between costs no reload."""
RELOAD_TIMEOUT_S = 15.0


def drop_in_text() -> str:
    lines = "".join(f"{name} {value}\n" for name, value in _settings().items())
    return f"# Made by the GPUaaS node agent; removed with the node's last allocation.\n{lines}"


def _settings() -> dict[str, str]:
    # Without a list of principals of its own a certificate naming "root" would log in as root.
    return {"TrustedUserCAKeys": str(USER_CA), **revocation.settings()}


def trust(user: str, principal: str, ca_public_keys: list[str]) -> None:
    """Admit certificates of this authority with this principal as this user; sshd reloads only if something changed."""
    if not DROP_IN.parent.is_dir():
        raise spec.HandlerError("sshd_missing", f"{DROP_IN.parent} is not there; is openssh-server installed?")
    files.make_directory(PRINCIPALS, 0o755)
    files.put(PRINCIPALS / user, principal.encode() + b"\n", 0o644)
    revocation.prepare()
    # These files are read by sshd at every login, so only the drop-in needs a reload.
    files.put(USER_CA, "".join(key + "\n" for key in ca_public_keys).encode(), 0o644)
    if files.read(DROP_IN) == drop_in_text().encode() and files.read(RELOAD_DUE) is None:
        return
    files.write_atomic(RELOAD_DUE, b"", 0o600)
    files.put(DROP_IN, drop_in_text().encode(), 0o644)
    try:
        _require_effective()
        _reload()
    except (spec.HandlerError, commands.CommandFailed):
        # Taken back, so that no later restart of sshd meets a configuration it cannot use.
        files.remove(DROP_IN)
        raise
    files.remove(RELOAD_DUE)


def distrust(user: str) -> list[str]:
    """Take the user's principal away, and with the last one everything else; answers the paths that went."""
    removed = [str(PRINCIPALS / user)] if files.remove(PRINCIPALS / user) else []
    if _principals():
        return removed
    if files.read(DROP_IN) is not None:
        files.write_atomic(RELOAD_DUE, b"", 0o600)
        files.remove(DROP_IN)
        removed.append(str(DROP_IN))
    if files.read(RELOAD_DUE) is not None:
        _reload()
        files.remove(RELOAD_DUE)
    if files.remove(USER_CA):
        removed.append(str(USER_CA))
    removed += revocation.remove()
    for directory in (PRINCIPALS, TRUST):
        with contextlib.suppress(OSError):
            directory.rmdir()
    return removed


def ignored_settings(effective: str) -> list[str]:
    """Which of our settings sshd does not use, given the output of `sshd -T`; the first file that sets one wins."""
    wanted = {name.lower(): value for name, value in _settings().items()}
    pairs = [line.split(" ", 1) for line in effective.splitlines() if " " in line]
    used = {pair[0].lower(): pair[1].strip() for pair in pairs}
    return sorted(name for name, value in wanted.items() if used.get(name) != value)


def listening_inodes(socket_table: str, port: int) -> set[str]:
    """Inodes of the listening sockets on a port, from the text of /proc/net/tcp or tcp6."""
    return set(re.findall(rf"^ *\d+: [0-9A-F]+:{port:04X} \S+ 0A (?:\S+ +){{5}}(\d+)", socket_table, re.MULTILINE))


def _principals() -> list[str]:
    if not PRINCIPALS.is_dir():
        return []
    return [path.name for path in PRINCIPALS.iterdir() if not path.name.startswith(".")]


def _require_effective() -> None:
    files.make_directory(Path("/run/sshd"), 0o755)
    ignored = ignored_settings(commands.run(["sshd", "-T"]).decode())
    if ignored:
        message = f"sshd ignores {', '.join(ignored)} in {DROP_IN}: set elsewhere first, or the folder is not included"
        raise spec.HandlerError("sshd_ignores_drop_in", message)


def _reload() -> None:
    """Reload sshd and return once it listens with the new configuration: it closes its sockets and opens new ones."""
    unit = next((name for name in ("ssh.service", "sshd.service") if _is_active(name)), None)
    if unit is None:
        # Socket activation starts a fresh sshd for every connection; there is nothing to reload.
        return
    before = _sshd_sockets()
    commands.run(["systemctl", "reload", unit])
    if _is_active("ssh.socket") or _is_active("sshd.socket"):
        return
    deadline_s = time.monotonic() + RELOAD_TIMEOUT_S
    while True:
        after = _sshd_sockets()
        if len(after) >= len(before) and not after & before:
            return
        if time.monotonic() > deadline_s:
            raise spec.HandlerError("sshd_reload_failed", f"{unit} did not reload; see: journalctl -u {unit}")
        time.sleep(0.02)


def _is_active(unit: str) -> bool:
    return commands.succeeds(["systemctl", "is-active", "--quiet", unit])


def _sshd_sockets() -> set[str]:
    tables = [files.read(Path("/proc/net") / name) or b"" for name in ("tcp", "tcp6")]
    return set().union(*(listening_inodes(table.decode(), facts.SSH_PORT) for table in tables))
