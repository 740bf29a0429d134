"""Makes sshd believe the platform's SSH authority and people's keys, for users of allocations. Called by allocation."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path

from gpuaas_agent import commands, facts, files
from gpuaas_agent.handlers import revocation, spec, ssh_files, ssh_keys
from gpuaas_agent.handlers.ssh_files import KEYS, KEYS_PROGRAM, PRINCIPALS, TRUST, USER_CA

DROP_IN = Path("/etc/ssh/sshd_config.d/50-gpuaas.conf")
RELOAD_DUE = TRUST / "reload-due"
"""There while the drop-in may differ from what sshd has loaded, so a crash in between costs no reload."""
RELOAD_TIMEOUT_S = 15.0
_configuring = threading.Lock()
"""Apart from `ssh_files.changing`: a revocation does not wait for sshd to reload."""


def drop_in_text(users: list[str]) -> str:
    lines = [f"{name} {value}" for name, value in _settings().items()]
    # Last: a Match reaches to the end of its file, and no further.
    lines += [f"Match User {','.join(sorted(users))}"]
    lines += [f"    {name} {value}" for name, value in ssh_keys.settings().items()]
    return "# Made by the GPUaaS node agent; removed with the node's last allocation.\n" + "\n".join([*lines, ""])


def _settings() -> dict[str, str]:
    # Without a list of principals of its own a certificate naming "root" would log in as root.
    return {"TrustedUserCAKeys": str(USER_CA), **revocation.settings()}


def trust(user: str, principal: str, ca_public_keys: list[str]) -> None:
    """Admit certificates of this authority with this principal as this user; sshd reloads only if something changed."""
    if not DROP_IN.parent.is_dir():
        raise spec.HandlerError("sshd_missing", f"{DROP_IN.parent} is not there; is openssh-server installed?")
    with ssh_files.changing:
        files.make_directory(PRINCIPALS, 0o755)
        files.put(PRINCIPALS / user, principal.encode() + b"\n", 0o644)
        revocation.prepare()
        ssh_keys.prepare()
        files.put(USER_CA, "".join(key + "\n" for key in ca_public_keys).encode(), 0o644)
    # These files are read by sshd at every login, so only the drop-in needs a reload.
    configure(user)


def configure(user: str) -> None:
    """Have sshd use what is there for the users of allocations, this one among them."""
    with _configuring:
        wanted = drop_in_text(_principals()).encode()
        if files.read(DROP_IN) == wanted and files.read(RELOAD_DUE) is None:
            return
        files.write_atomic(RELOAD_DUE, b"", 0o600)
        files.put(DROP_IN, wanted, 0o644)
        try:
            _require_effective(user)
            _reload()
        except (spec.HandlerError, commands.CommandFailed):
            # Taken back, so that no later restart of sshd meets a configuration it cannot use.
            files.remove(DROP_IN)
            raise
        files.remove(RELOAD_DUE)


def distrust(user: str) -> list[str]:
    """Take the user's principal and keys away, and with the last user everything else; answers the paths that went."""
    with ssh_files.changing:
        removed = [str(path) for path in (PRINCIPALS / user, KEYS / user) if files.remove(path)]
    if _principals():
        return removed
    with _configuring:
        if files.read(DROP_IN) is not None:
            files.write_atomic(RELOAD_DUE, b"", 0o600)
            files.remove(DROP_IN)
            removed.append(str(DROP_IN))
        if files.read(RELOAD_DUE) is not None:
            _reload()
            files.remove(RELOAD_DUE)
    with ssh_files.changing:
        removed += [str(path) for path in (USER_CA, KEYS_PROGRAM) if files.remove(path)]
        removed += revocation.remove()
        for directory in (PRINCIPALS, KEYS, TRUST):
            with contextlib.suppress(OSError):
                directory.rmdir()
    return removed


def ignored_settings(effective: str) -> list[str]:
    """Which of our settings sshd does not use, given the output of `sshd -T`; the first file that sets one wins."""
    wanted = {name.lower(): value for name, value in {**_settings(), **ssh_keys.settings()}.items()}
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


def _require_effective(user: str) -> None:
    files.make_directory(Path("/run/sshd"), 0o755)
    # Complete, for sshd refuses to guess what a Match elsewhere in its configuration asks for.
    somebody = f"user={user},host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport={facts.SSH_PORT}"
    ignored = ignored_settings(commands.run(["sshd", "-T", "-C", somebody]).decode())
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
