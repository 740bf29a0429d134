"""`allocation.install_authorized_keys`: exactly these keys of people log in as the allocation's user, and no others.

A key that goes takes the sessions it has opened along.
"""

from __future__ import annotations

from typing import Any

from gpuaas_agent.handlers import owners, sessions, spec, ssh_files, ssh_keys, sshd


def install(params: dict[str, Any]) -> dict[str, Any]:
    user, keys = params["user"], params["public_keys"]
    if not owners.is_of(user, params["allocation_id"]):
        raise spec.HandlerError("allocation_absent", f"allocation {params['allocation_id']} is not on this node")
    with ssh_files.changing:
        ssh_keys.prepare()
        ssh_keys.put(user, keys)
    # An agent of before may have provisioned this user.
    sshd.configure(user)
    with ssh_files.changing:
        ended = sessions.end(lambda opener: ssh_keys.is_over(opener, user, keys))
    return {"installed": len(keys), "sessions_ended": ended}
