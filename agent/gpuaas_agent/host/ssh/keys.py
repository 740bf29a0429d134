"""People's SSH keys. sshd reads them through a program that first records which key opens which session."""

from __future__ import annotations

from gpuaas_agent import files
from gpuaas_agent.host.ssh import paths, sessions

PROGRAM_TEXT = f"""#!/bin/sh
# Made by the GPUaaS node agent. sshd runs it for every key that is offered: $1 is the user, $2 the key in base64.
set -eu
user=$1 opener=$1/$2
{sessions.RECORD_OPENER}exec cat "{paths.KEYS}/$user"
"""


def sshd_settings() -> dict[str, str]:
    """Return the lines for an allocation's user. A key file in the home is ignored: its sessions are not recorded."""
    return {
        "AuthorizedKeysFile": "none",
        "AuthorizedKeysCommand": f"{paths.KEYS_PROGRAM} %u %k",
        "AuthorizedKeysCommandUser": "root",
    }


def prepare() -> None:
    """Make everything that `sshd_settings` names, before sshd uses it."""
    files.make_directory(paths.KEYS, 0o755)
    files.put(paths.KEYS_PROGRAM, PROGRAM_TEXT.encode(), 0o755)


def put(user: str, public_keys: list[str]) -> None:
    """Make these the user's keys; a user without keys has no file."""
    if public_keys:
        files.put(paths.KEYS / user, "".join(f"{key}\n" for key in public_keys).encode(), 0o644)
    else:
        files.remove(paths.KEYS / user)


def is_removed(opener: str, user: str, public_keys: list[str]) -> bool:
    """Return whether this user's session was opened with a key that is not in the list. A certificate's is a serial."""
    opened_as, _, key = opener.partition("/")
    return opened_as == user and key not in {line.split()[1] for line in public_keys}
