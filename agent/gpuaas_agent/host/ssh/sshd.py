"""Make sshd accept the platform's certificates and people's keys for the users of allocations."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from gpuaas_agent import commands, errors, files
from gpuaas_agent.host import facts
from gpuaas_agent.host.ssh import certificates, keys, paths

DROP_IN = Path("/etc/ssh/sshd_config.d/50-gpuaas.conf")
RELOAD_DUE = paths.TRUST / "reload-due"
"""This file exists until sshd has loaded the drop-in, so that a reload is not forgotten after a crash."""
RELOAD_TIMEOUT_S = 15.0
_configuration_lock = threading.Lock()
"""Separate from `paths.lock`, so that a revocation does not wait for sshd to reload."""


OBSERVER_SETTINGS = {
    "PermitTTY": "no",
    "DisableForwarding": "yes",
    "PermitUserRC": "no",
    "AuthorizedKeysFile": "none",
    "AuthorizedKeysCommand": "none",
}
"""An observer logs in with a certificate only, and runs commands only."""


def drop_in_text(users: list[str], observers: Collection[str] = ()) -> str:
    lines = [f"{name} {value}" for name, value in _settings().items()]
    # The first value that sshd reads for a setting counts, so the observers, who are users too, are first.
    if observers:
        lines += [f"Match User {','.join(sorted(observers))}"]
        lines += [f"    {name} {value}" for name, value in OBSERVER_SETTINGS.items()]
    # Match must be last, because it applies to all lines after it.
    lines += [f"Match User {','.join(sorted(users))}"]
    lines += [f"    {name} {value}" for name, value in keys.sshd_settings().items()]
    # People are matched by their group, so that sshd need not reload when one comes or leaves.
    lines += [f"Match Group {paths.PEOPLE_GROUP}"]
    lines += [f"    {name} {value}" for name, value in keys.sshd_settings().items()]
    return "# Made by the GPUaaS node agent; removed with the node's last allocation.\n" + "\n".join([*lines, ""])


def _settings() -> dict[str, str]:
    # Without its own list of principals, sshd would let a certificate for the principal "root" log in as root.
    return {"TrustedUserCAKeys": str(paths.USER_CA), **certificates.sshd_settings()}


def add_users(principals: Mapping[str, str], ca_public_keys: list[str]) -> None:
    """Allow logins as these users, each with certificates of this authority and of the user's principal. The first one
    is the user of the allocation. Reload sshd only after a change."""
    if not DROP_IN.parent.is_dir():
        raise errors.TaskFailed("sshd_missing", f"{DROP_IN.parent} does not exist; is openssh-server installed?")
    with paths.lock:
        for user, principal in principals.items():
            certificates.put_principal(user, principal)
        certificates.prepare()
        keys.prepare()
        certificates.put_authority(ca_public_keys)
    # sshd reads these files at every login, so only the drop-in needs a reload.
    configure(next(iter(principals)))


def configure(user: str) -> None:
    """Make sshd load the configuration for the users of all allocations, including this one."""
    with _configuration_lock:
        wanted = drop_in_text(_users(), _observers()).encode()
        if files.read(DROP_IN) == wanted and files.read(RELOAD_DUE) is None:
            return
        files.write_atomic(RELOAD_DUE, b"", 0o600)
        files.put(DROP_IN, wanted, 0o644)
        try:
            _require_effective(user)
            _reload()
        except (errors.TaskFailed, commands.CommandFailed):
            # Remove the drop-in, so that a later restart of sshd does not load a configuration that failed.
            files.remove(DROP_IN)
            raise
        files.remove(RELOAD_DUE)


def remove_user(user: str) -> list[str]:
    """Remove the user's principal and keys, and everything else with the last user; return the removed paths."""
    with paths.lock:
        removed = certificates.remove_principal(user) + keys.remove(user)
    if _users():
        return removed
    with _configuration_lock:
        if files.read(DROP_IN) is not None:
            files.write_atomic(RELOAD_DUE, b"", 0o600)
            files.remove(DROP_IN)
            removed.append(str(DROP_IN))
        if files.read(RELOAD_DUE) is not None:
            _reload()
            files.remove(RELOAD_DUE)
    with paths.lock:
        removed += [str(path) for path in (paths.USER_CA, paths.KEYS_PROGRAM) if files.remove(path)]
        removed += certificates.remove()
        for directory in (paths.PRINCIPALS, paths.KEYS, paths.TRUST):
            with contextlib.suppress(OSError):
                directory.rmdir()
    return removed


def ignored_settings(effective: str) -> list[str]:
    """Return the settings of the drop-in that sshd does not use, according to the output of `sshd -T`."""
    wanted = {name.lower(): value for name, value in {**_settings(), **keys.sshd_settings()}.items()}
    pairs = [line.split(" ", 1) for line in effective.splitlines() if " " in line]
    used = {pair[0].lower(): pair[1].strip() for pair in pairs}
    return sorted(name for name, value in wanted.items() if used.get(name) != value)


def listening_inodes(socket_table: str, port: int) -> set[str]:
    """Return the inodes of the listening sockets on a port, from the text of /proc/net/tcp or tcp6."""
    return set(re.findall(rf"^ *\d+: [0-9A-F]+:{port:04X} \S+ 0A (?:\S+ +){{5}}(\d+)", socket_table, re.MULTILINE))


def _users() -> list[str]:
    """Return the users of allocations, without people."""
    if not paths.PRINCIPALS.is_dir():
        return []
    names = [path.name for path in paths.PRINCIPALS.iterdir() if not path.name.startswith(".")]
    return [name for name in names if not (paths.PEOPLE / name).exists()]


def _observers() -> list[str]:
    prefix = paths.OBSERVER_PRINCIPAL.encode()
    return [user for user in _users() if (files.read(paths.PRINCIPALS / user) or b"").startswith(prefix)]


def _require_effective(user: str) -> None:
    files.make_directory(Path("/run/sshd"), 0o755)
    # All fields are given, because `sshd -T` fails if a Match in another file needs a field that is missing.
    connection = f"user={user},host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport={facts.SSH_PORT}"
    ignored = ignored_settings(commands.run(["sshd", "-T", "-C", connection]).decode())
    if ignored:
        reason = "another file sets it first, or sshd does not include the folder"
        message = f"sshd ignores {', '.join(ignored)} in {DROP_IN}: {reason}"
        raise errors.TaskFailed("sshd_ignores_drop_in", message)


def _reload() -> None:
    """Reload sshd and wait until it has closed its listening sockets and opened new ones."""
    unit = next((name for name in ("ssh.service", "sshd.service") if _is_active(name)), None)
    if unit is None:
        # Socket activation starts a new sshd for every connection; there is nothing to reload.
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
            raise errors.TaskFailed("sshd_reload_failed", f"{unit} did not reload; see: journalctl -u {unit}")
        time.sleep(0.02)


def _is_active(unit: str) -> bool:
    return commands.succeeds(["systemctl", "is-active", "--quiet", unit])


def _sshd_sockets() -> set[str]:
    tables = [files.read(Path("/proc/net") / name) or b"" for name in ("tcp", "tcp6")]
    return set().union(*(listening_inodes(table.decode(), facts.SSH_PORT) for table in tables))
