"""`allocation.provision` makes the Unix users for logins with certificates: one with sudo, and the observer.
`allocation.release` removes them, and people's accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuaas_agent import errors
from gpuaas_agent.handlers import artifact
from gpuaas_agent.handlers import people as people_handler
from gpuaas_agent.host import accounts, claims, facts, observers, people, processes, units
from gpuaas_agent.host.ssh import paths, sshd

PATHS_REPORTED_MAX = 100
"""The evidence of a release lists at most this many removed files, and as many files that were left behind."""


def provision(params: dict[str, Any]) -> dict[str, Any]:
    user, allocation_id = params["user"], params["allocation_id"]
    host_key = facts.ssh_host_public_key()
    if not host_key:
        raise errors.TaskFailed("ssh_host_key_missing", "sshd has no host key. Run on the node: ssh-keygen -A")
    claims.claim(user, allocation_id)
    uid = accounts.ensure(user)
    accounts.allow_sudo(user)
    observer = observers.ensure(user, allocation_id)
    principals = {user: params["principal"], observer: f"{paths.OBSERVER_PRINCIPAL}{allocation_id}"}
    sshd.add_users(principals, params["user_ca_public_keys"])
    return {
        "user": user,
        "observer_user": observer,
        "uid": uid,
        "ssh_host_public_key": host_key,
        "port": facts.SSH_PORT,
    }


def release(params: dict[str, Any]) -> dict[str, Any]:
    user = params["user"]
    if not claims.may_remove(user, params["allocation_id"]):
        artifact.remove(params["allocation_id"])
        return {"evidence": {}}
    # The order matters: block new sessions, end the running ones, remove what they used, and remove the claim last,
    # so that a release that was interrupted, or that left files behind, can be repeated. Only artifacts are removed
    # after the claim: their folder is named by the allocation's id, and no new ones are fetched without a claim.
    uid, persons = accounts.uid_of(user), people.recorded(params["allocation_id"])
    observer = observers.claimed(user, params["allocation_id"])
    observer_uid = accounts.uid_of(observer) if observer else None
    keys = accounts.key_files(user)
    removed = [path for login in persons for path in people_handler.close(login)]
    removed += sshd.remove_user(observer) if observer else []
    removed += sshd.remove_user(user) + accounts.forbid_sudo(user)
    evidence: dict[str, Any] = {"units": [], "processes_ended": 0, "left_behind": []}
    uids = {**({user: uid} if uid is not None else {}), **{login: record.uid for login, record in persons.items()}}
    homes = [accounts.home_of(user), *(people.home_of(login) for login in persons)]
    if observer_uid is not None:
        accounts.expire(observer)
        uids, homes = {**uids, observer: observer_uid}, [*homes, accounts.home_of(observer)]
    for record in persons.values():
        people.expire(record)
    if uid is not None:
        accounts.expire(user)
        evidence["units"] = units.stop_all(user)
    if uids:
        evidence["processes_ended"] = sum(processes.end_all(number) for number in uids.values())
        removed += accounts.remove_leftovers(uids, homes)
        evidence["left_behind"] = accounts.left_behind(uids, homes)[:PATHS_REPORTED_MAX]
    if evidence["left_behind"]:
        return {"evidence": {**evidence, **by_kind(removed)}}
    removed += [path for record in persons.values() for path in people.remove(record)]
    people.tidy()
    removed += _remove_observer(observer) if observer else []
    home, others = accounts.remove(user)
    removed += others + keys + claims.remove(user) + artifact.remove(params["allocation_id"])
    return {"evidence": {**evidence, "user": user if uid is not None else "", "home": home, **by_kind(removed)}}


def _remove_observer(observer: str) -> list[str]:
    observers.allow_schedules(observer)
    home, others = accounts.remove(observer)
    return [*([home] if home else []), *others, *claims.remove(observer)]


def by_kind(removed: list[str]) -> dict[str, list[str]]:
    """Group removed paths by kind: principals of certificates, SSH keys, and other files."""
    principals = [path for path in removed if Path(path).parent == paths.PRINCIPALS]
    keys = [path for path in removed if _holds_keys(Path(path))]
    rest = [path for path in removed if path not in principals and path not in keys]
    return {"principals": principals, "keys": keys, "files": rest[:PATHS_REPORTED_MAX]}


def _holds_keys(path: Path) -> bool:
    return path.parent == paths.KEYS or path.name in (paths.USER_CA.name, "authorized_keys")
