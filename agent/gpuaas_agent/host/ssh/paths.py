"""The files and folders that sshd reads for allocations. The release of the node's last allocation removes them all."""

from __future__ import annotations

import threading
from pathlib import Path

TRUST = Path("/etc/gpuaas/ssh")
USER_CA = TRUST / "user_ca.pub"
PRINCIPALS = TRUST / "principals"
"""One file per user, with the principal that a certificate needs to log in as this user."""
OBSERVER_PRINCIPAL = "observer/"
"""Start of the principal in a certificate for an observer; the allocation's id follows. The platform signs the same."""
PRINCIPALS_PROGRAM = TRUST / "principals-of"
"""The program that sshd runs to get a user's principals."""
KEYS = TRUST / "keys"
"""One file per user, with the keys that can log in as this user."""
KEYS_PROGRAM = TRUST / "keys-of"
"""The program that sshd runs to get a user's keys."""
REVOKED_SERIALS = TRUST / "revoked_serials"
REVOKED_KEYS = TRUST / "revoked_keys"
"""File with the serial numbers of revoked certificates, in the format that sshd reads."""
SESSIONS = Path("/run/gpuaas/ssh-sessions")
"""One file per sshd process, with the certificate or key that opened its session, and when the process started."""

PEOPLE = Path("/etc/gpuaas/people")
"""One file per person's account that the agent made: `host.people`."""
PEOPLE_GROUP = "gpuaas-people"
"""The group of all people's accounts, for which sshd is configured."""

lock = threading.Lock()
"""Held while these files change, because an urgent task can run at the same time as a provision or a release."""
