"""Users' own SSH keys. sshd gets them from a program, which first records which key opens which session."""

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
    """Return sshd's settings for users of allocations. A key file in a home is ignored: its use is not recorded."""
    return {
        "AuthorizedKeysFile": "none",
        "AuthorizedKeysCommand": f"{paths.KEYS_PROGRAM} %u %k",
        "AuthorizedKeysCommandUser": "root",
    }


def prepare() -> None:
    """Make the program that `sshd_settings` names, before sshd uses it."""
    files.make_directory(paths.KEYS, 0o755)
    files.put(paths.KEYS_PROGRAM, PROGRAM_TEXT.encode(), 0o755)


def put(user: str, public_keys: list[str]) -> None:
    """Replace the keys of the user; without keys, remove the file."""
    if public_keys:
        files.put(paths.KEYS / user, "".join(f"{key}\n" for key in public_keys).encode(), 0o644)
    else:
        remove(user)


def remove(user: str) -> list[str]:
    return [str(paths.KEYS / user)] if files.remove(paths.KEYS / user) else []


def is_removed(opener: str, user: str, public_keys: list[str]) -> bool:
    """Return whether a session of this user was opened with a key that is not in the list.

    `opener` is `USER/KEY` for a key and the serial for a certificate."""
    opened_as, _, key = opener.partition("/")
    return opened_as == user and key not in {line.split()[1] for line in public_keys}
