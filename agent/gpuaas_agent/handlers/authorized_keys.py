"""`allocation.install_authorized_keys`: set the complete list of SSH keys that can log in as the allocation's user.

Removing a key also ends the sessions that were opened with it.
"""

from __future__ import annotations

from typing import Any

from gpuaas_agent import errors
from gpuaas_agent.host import claims
from gpuaas_agent.host.ssh import keys, paths, sessions, sshd


def install(params: dict[str, Any]) -> dict[str, Any]:
    user, public_keys = params["user"], params["public_keys"]
    if not claims.belongs_to(user, params["allocation_id"]):
        raise errors.TaskFailed("allocation_absent", f"allocation {params['allocation_id']} is not on this node")
    with paths.lock:
        keys.prepare()
        keys.put(user, public_keys)
    # The user may have been provisioned by an older agent, which did not configure sshd for keys.
    sshd.configure(user)
    with paths.lock:
        ended = sessions.end(lambda opener: keys.is_removed(opener, user, public_keys))
    return {"installed": len(public_keys), "sessions_ended": ended}
