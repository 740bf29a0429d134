"""The keys of people as sshd gets them: from a program of ours, which notes who comes with which. Used by sshd."""

from __future__ import annotations

from gpuaas_agent import files
from gpuaas_agent.handlers import sessions, ssh_files

PROGRAM_TEXT = f"""#!/bin/sh
# Made by the GPUaaS node agent. sshd runs it for every key somebody offers: $1 is the user, $2 the key in base64.
set -eu
user=$1 opener=$1/$2
{sessions.NOTING}exec cat "{ssh_files.KEYS}/$user"
"""


def settings() -> dict[str, str]:
    """What sshd's configuration says of an allocation's user: a file in the home would let in whom nobody noted."""
    return {
        "AuthorizedKeysFile": "none",
        "AuthorizedKeysCommand": f"{ssh_files.KEYS_PROGRAM} %u %k",
        "AuthorizedKeysCommandUser": "root",
    }


def prepare() -> None:
    """What sshd's configuration names, before it names it."""
    files.make_directory(ssh_files.KEYS, 0o755)
    files.put(ssh_files.KEYS_PROGRAM, PROGRAM_TEXT.encode(), 0o755)


def put(user: str, keys: list[str]) -> None:
    """Without keys there is no file."""
    if keys:
        files.put(ssh_files.KEYS / user, "".join(f"{key}\n" for key in keys).encode(), 0o644)
    else:
        files.remove(ssh_files.KEYS / user)


def is_over(opener: str, user: str, keys: list[str]) -> bool:
    """Whether a session was opened as this user with a key that is none of these. A certificate's is a serial."""
    opened_as, _, key = opener.partition("/")
    return opened_as == user and key not in {line.split()[1] for line in keys}
