"""`allocation.provision` and `allocation.release`: a Unix user that certificates can log in as, and its removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuaas_agent import facts
from gpuaas_agent.handlers import accounts, artifact, owners, processes, spec, ssh_files, sshd, units

PATHS_NAMED_MAX = 100
"""So many of the files that went, or stayed, are named to the platform."""


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
        artifact.remove(params["allocation_id"])
        return {"evidence": {}}
    # First no new session can begin, then the running ones end, then what they used goes; the claim goes last,
    # so a release that was cut off, or left something behind, is taken up again. Only artifacts go after it: they are
    # found by the allocation, and without a claim no more of them come.
    uid = accounts.uid_of(user)
    keys = accounts.key_files(user)
    removed = sshd.distrust(user) + accounts.forbid_sudo(user)
    told: dict[str, Any] = {"units": [], "processes_ended": 0, "left_behind": []}
    if uid is not None:
        accounts.close(user)
        told["units"] = units.stop_all(user)
        told["processes_ended"] = processes.end_all(uid)
        removed += accounts.remove_leftovers(user, uid)
        told["left_behind"] = accounts.left_behind(user, uid)[:PATHS_NAMED_MAX]
    if told["left_behind"]:
        return {"evidence": {**told, **sorted_out(removed)}}
    home, others = accounts.remove(user)
    removed += others + keys + owners.disown(user) + artifact.remove(params["allocation_id"])
    return {"evidence": {**told, "user": user if uid is not None else "", "home": home, **sorted_out(removed)}}


def sorted_out(removed: list[str]) -> dict[str, list[str]]:
    """What was removed, by what it was: whose certificates were let in, whose keys, and the rest."""
    principals = [path for path in removed if Path(path).parent == ssh_files.PRINCIPALS]
    keys = [path for path in removed if _is_of_keys(Path(path))]
    rest = [path for path in removed if path not in principals and path not in keys]
    return {"principals": principals, "keys": keys, "files": rest[:PATHS_NAMED_MAX]}


def _is_of_keys(path: Path) -> bool:
    return path.parent == ssh_files.KEYS or path.name in (ssh_files.USER_CA.name, "authorized_keys")
