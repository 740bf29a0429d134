"""`ssh.trust`: which certificates sshd refuses, and the end of the sessions they have opened."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gpuaas_agent import commands, files
from gpuaas_agent.handlers import sessions, ssh_files

PROGRAM_TEXT = f"""#!/bin/sh
# Made by the GPUaaS node agent. sshd runs it for every certificate: $1 is the user, $2 the certificate's serial.
set -eu
user=$1 serial=$2 opener=$2
{sessions.NOTING}searched=0
grep -qx "$serial" {ssh_files.REVOKED_SERIALS} || searched=$?
[ "$searched" = 1 ] || exit 1
exec cat "{ssh_files.PRINCIPALS}/$user"
"""


def settings() -> dict[str, str]:
    """What sshd's configuration says about it. A list of revoked keys that cannot be read refuses every key."""
    return {
        "AuthorizedPrincipalsFile": "none",
        "AuthorizedPrincipalsCommand": f"{ssh_files.PRINCIPALS_PROGRAM} %u %s",
        "AuthorizedPrincipalsCommandUser": "root",
        "RevokedKeys": str(ssh_files.REVOKED_KEYS),
    }


def prepare() -> None:
    """Everything sshd's configuration names, before it names it; what was revoked stays revoked."""
    files.put(ssh_files.PRINCIPALS_PROGRAM, PROGRAM_TEXT.encode(), 0o755)
    if files.read(ssh_files.REVOKED_SERIALS) is None or files.read(ssh_files.REVOKED_KEYS) is None:
        _write(set())


def remove() -> list[str]:
    """After sshd's configuration names it no more; answers the paths that went."""
    paths = (ssh_files.PRINCIPALS_PROGRAM, ssh_files.REVOKED_SERIALS, ssh_files.REVOKED_KEYS)
    removed = [str(path) for path in paths if files.remove(path)]
    shutil.rmtree(ssh_files.SESSIONS, ignore_errors=True)
    with contextlib.suppress(OSError):
        ssh_files.SESSIONS.parent.rmdir()
    return removed


def apply(params: dict[str, Any]) -> dict[str, Any]:
    """Refuse exactly these serials from now on, and end what they have opened. Without allocations nothing is left."""
    serials = set(params["revoked_serials"])
    with ssh_files.changing:
        if ssh_files.PRINCIPALS_PROGRAM.exists():
            files.put(ssh_files.USER_CA, "".join(key + "\n" for key in params["user_ca_public_keys"]).encode(), 0o644)
            _write(serials)
        ended = sessions.end({str(serial) for serial in serials}.__contains__)
    return {"revoked": len(serials), "sessions_ended": ended}


def _write(serials: set[int]) -> None:
    lines = "".join(f"{serial}\n" for serial in sorted(serials)).encode()
    files.put(ssh_files.REVOKED_SERIALS, lines, 0o644)
    files.write_atomic(ssh_files.REVOKED_KEYS, _revocation_list(serials), 0o644)


def _revocation_list(serials: set[int]) -> bytes:
    """The serials of any authority in sshd's own format."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-revoked-") as directory:
        wanted, made = Path(directory, "wanted"), Path(directory, "made")
        wanted.write_text("".join(f"serial: {serial}\n" for serial in sorted(serials)))
        commands.run(["ssh-keygen", "-q", "-k", "-f", str(made), "-s", "none", str(wanted)])
        return made.read_bytes()
