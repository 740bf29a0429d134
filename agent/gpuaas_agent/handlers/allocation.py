"""`allocation.provision` and `allocation.release`: a Unix user that certificates can log in as, and its removal."""

from __future__ import annotations

from typing import Any

from gpuaas_agent import facts
from gpuaas_agent.handlers import accounts, owners, processes, spec, sshd


def provision(params: dict[str, Any]) -> dict[str, Any]:
    user, allocation_id = params["user"], params["allocation_id"]
    host_key = facts.ssh_host_public_key()
    if not host_key:
        raise spec.HandlerError("ssh_host_key_missing", "sshd has no host key; on the node run: ssh-keygen -A")
    owners.claim(user, allocation_id)
    uid = accounts.ensure(user)
    accounts.allow_sudo(user)
    sshd.trust(user, params["principal"], params["user_ca_public_keys"])
    return {"user": user, "uid": uid, "ssh_host_public_key": host_key, "port": facts.SSH_PORT}


def release(params: dict[str, Any]) -> dict[str, Any]:
    user = params["user"]
    if not owners.may_remove(user, params["allocation_id"]):
        return {"removed": [], "processes_killed": 0}
    # First no new session can begin, then the running ones end, then what they used goes; the claim goes last,
    # so a release that was cut off is taken up again.
    removed = sshd.distrust(user) + accounts.forbid_sudo(user)
    killed = 0
    uid = accounts.uid_of(user)
    if uid is not None:
        accounts.close(user)
        killed = processes.end_all(uid)
        removed += accounts.remove_leftovers(user, uid)
    removed += accounts.remove(user)
    removed += owners.disown(user)
    return {"removed": removed, "processes_killed": killed}
