"""Where the agent keeps what sshd believes. All of it goes with the node's last allocation."""

from __future__ import annotations

import threading
from pathlib import Path

TRUST = Path("/etc/gpuaas/ssh")
USER_CA = TRUST / "user_ca.pub"
PRINCIPALS = TRUST / "principals"
"""One file per user: the principal whose certificates log in as this user."""
PRINCIPALS_PROGRAM = TRUST / "principals-of"
"""What sshd asks for a user's principals."""
KEYS = TRUST / "keys"
"""One file per user: the keys of people that log in as this user."""
KEYS_PROGRAM = TRUST / "keys-of"
"""What sshd asks for a user's keys."""
REVOKED_SERIALS = TRUST / "revoked_serials"
REVOKED_KEYS = TRUST / "revoked_keys"
"""The same serials as sshd reads them."""
SESSIONS = Path("/run/gpuaas/ssh-sessions")
"""One note per sshd process: what opened the session it serves, and when the process started."""

changing = threading.Lock()
"""Held while these files change: an urgent task may change them beside a provision or a release."""
