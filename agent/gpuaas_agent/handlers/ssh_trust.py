"""`ssh.trust`: set which certificates sshd refuses, and end the sessions that the refused ones opened."""

from __future__ import annotations

from typing import Any

from gpuaas_agent.host.ssh import certificates, paths, sessions


def apply(params: dict[str, Any]) -> dict[str, Any]:
    """Refuse exactly these certificate serials, and end the SSH sessions that they opened.

    On a node without allocations there are no files to change: sshd accepts no certificates there."""
    serials = set(params["revoked_serials"])
    with paths.lock:
        if paths.PRINCIPALS_PROGRAM.exists():
            certificates.put_authority(params["user_ca_public_keys"])
            certificates.revoke(serials)
        ended = sessions.end({str(serial) for serial in serials}.__contains__)
    return {"revoked": len(serials), "sessions_ended": ended}
