"""`ssh.trust`: set which certificates sshd refuses, and end the sessions that the refused ones opened."""

from __future__ import annotations

from typing import Any

from gpuaas_agent.host.ssh import certificates, paths, sessions


def apply(params: dict[str, Any]) -> dict[str, Any]:
    """Refuse exactly these certificate serials, and end the SSH sessions that they opened.

    If the authority is another one than before, the platform was restored from a backup and may not know all serials:
    every session that a certificate opened is ended. On a node without allocations there are no files to change: sshd
    accepts no certificates there."""
    serials, is_replaced = set(params["revoked_serials"]), False
    with paths.lock:
        if paths.PRINCIPALS_PROGRAM.exists():
            is_replaced = certificates.put_authority(params["user_ca_public_keys"])
            certificates.revoke(serials)
        refused = {str(serial) for serial in serials}
        # Serials are numbers; keys are recorded by their fingerprints.
        ended = sessions.end(lambda opener: opener in refused or (is_replaced and opener.isdigit()))
    return {"revoked": len(serials), "sessions_ended": ended}
