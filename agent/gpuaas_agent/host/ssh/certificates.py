"""The certificates that sshd accepts: signed by the platform's authority, with the user's principal, not revoked."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from gpuaas_agent import commands, files
from gpuaas_agent.host.ssh import paths, sessions

PROGRAM_TEXT = f"""#!/bin/sh
# Made by the GPUaaS node agent. sshd runs it for every certificate: $1 is the user, $2 the certificate's serial.
set -eu
user=$1 serial=$2 opener=$2
{sessions.RECORD_OPENER}searched=0
grep -qx "$serial" {paths.REVOKED_SERIALS} || searched=$?
[ "$searched" = 1 ] || exit 1
exec cat "{paths.PRINCIPALS}/$user"
"""


def sshd_settings() -> dict[str, str]:
    """Return the settings for sshd. If sshd cannot read the list of revoked keys, it refuses every login with a key."""
    return {
        "AuthorizedPrincipalsFile": "none",
        "AuthorizedPrincipalsCommand": f"{paths.PRINCIPALS_PROGRAM} %u %s",
        "AuthorizedPrincipalsCommandUser": "root",
        "RevokedKeys": str(paths.REVOKED_KEYS),
    }


def prepare() -> None:
    """Make the files that `sshd_settings` names, before sshd uses them. An existing list of revoked serials is kept."""
    files.put(paths.PRINCIPALS_PROGRAM, PROGRAM_TEXT.encode(), 0o755)
    if files.read(paths.REVOKED_SERIALS) is None or files.read(paths.REVOKED_KEYS) is None:
        revoke(set())


def put_principal(user: str, principal: str) -> None:
    """Accept certificates with this principal, and no other, for the user."""
    files.make_directory(paths.PRINCIPALS, 0o755)
    files.put(paths.PRINCIPALS / user, principal.encode() + b"\n", 0o644)


def remove_principal(user: str) -> list[str]:
    return [str(paths.PRINCIPALS / user)] if files.remove(paths.PRINCIPALS / user) else []


def put_authority(ca_public_keys: list[str]) -> bool:
    """Accept certificates that one of these keys has signed. Return whether others were accepted before."""
    content, before = "".join(key + "\n" for key in ca_public_keys).encode(), files.read(paths.USER_CA)
    files.put(paths.USER_CA, content, 0o644)
    return before not in (None, content)


def revoke(serials: set[int]) -> None:
    """Make sshd refuse new sessions with exactly these serials."""
    lines = "".join(f"{serial}\n" for serial in sorted(serials)).encode()
    files.put(paths.REVOKED_SERIALS, lines, 0o644)
    files.write_atomic(paths.REVOKED_KEYS, _revocation_list(serials), 0o644)


def remove() -> list[str]:
    """Remove the files after sshd stopped using them; return the removed paths."""
    programs_and_lists = (paths.PRINCIPALS_PROGRAM, paths.REVOKED_SERIALS, paths.REVOKED_KEYS)
    removed = [str(path) for path in programs_and_lists if files.remove(path)]
    shutil.rmtree(paths.SESSIONS, ignore_errors=True)
    with contextlib.suppress(OSError):
        paths.SESSIONS.parent.rmdir()
    return removed


def _revocation_list(serials: set[int]) -> bytes:
    """Return the serials as a revocation list for sshd (KRL), which applies to every authority."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-revoked-") as directory:
        source, result = Path(directory, "serials"), Path(directory, "revoked")
        source.write_text("".join(f"serial: {serial}\n" for serial in sorted(serials)))
        commands.run(["ssh-keygen", "-q", "-k", "-f", str(result), "-s", "none", str(source)])
        return result.read_bytes()
