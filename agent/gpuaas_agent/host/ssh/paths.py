"""The files and folders that sshd reads for allocations. The release of the node's last allocation removes them all."""

from __future__ import annotations

import threading
from pathlib import Path

TRUST = Path("/etc/gpuaas/ssh")
USER_CA = TRUST / "user_ca.pub"
PRINCIPALS = TRUST / "principals"
"""One file per user: the principal whose certificates log in as this user."""
PRINCIPALS_PROGRAM = TRUST / "principals-of"
"""The program that sshd runs to get a user's principals."""
KEYS = TRUST / "keys"
"""One file per user: the people's keys that log in as this user."""
KEYS_PROGRAM = TRUST / "keys-of"
"""The program that sshd runs to get a user's keys."""
REVOKED_SERIALS = TRUST / "revoked_serials"
REVOKED_KEYS = TRUST / "revoked_keys"
"""The same serials in the format that sshd reads."""
SESSIONS = Path("/run/gpuaas/ssh-sessions")
"""One record per sshd process: the certificate or key that opened its session, and when the process started."""

lock = threading.Lock()
"""Held while these files change, because an urgent task can run beside a provision or a release."""
