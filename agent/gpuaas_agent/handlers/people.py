"""`allocation.people`: set the complete list of people who have an account on the allocation's machine.

A person who is not on the list any more can no longer log in, and their login sessions end. Their files stay, and so do
processes that a scheduler started for them."""

from __future__ import annotations

from typing import Any

from gpuaas_agent import commands, errors, log
from gpuaas_agent.host import claims, people, processes
from gpuaas_agent.host.ssh import certificates, keys, paths, sessions, sshd


def apply(params: dict[str, Any]) -> dict[str, Any]:
    allocation_id, wanted = params["allocation_id"], {person["login"]: person for person in params["people"]}
    if not claims.belongs_to(params["user"], allocation_id):
        raise errors.TaskFailed("allocation_absent", f"allocation {allocation_id} is not on this node")
    ended = sum(leave(record) for login, record in people.recorded(allocation_id).items() if login not in wanted)
    refused: dict[str, str] = {}
    for login, person in wanted.items():
        try:
            people.make(login, person["uid"], person["user_id"], allocation_id)
        except (people.Refused, commands.CommandFailed) as error:
            log.error("people.account_refused", login=login, uid=person["uid"], error=str(error))
            refused[person["user_id"]] = str(error)
    # The accounts exist now, so that sshd finds the group of people.
    sshd.configure(params["user"])
    for login, person in wanted.items():
        if person["user_id"] not in refused:
            ended += _open(login, person)
    installed = [person["user_id"] for person in wanted.values() if person["user_id"] not in refused]
    return {"installed": installed, "refused": refused, "sessions_ended": ended}


def leave(record: people.Record) -> int:
    """Refuse new logins of the person, then end their login sessions. Return how many processes were ended."""
    if record.has_left:
        return 0
    close(record.login)
    people.expire(record)
    return processes.end_all(record.uid, login_only=True)


def close(login: str) -> list[str]:
    """Remove the principal and the keys of the login; return the removed paths."""
    with paths.lock:
        return certificates.remove_principal(login) + keys.remove(login)


def _open(login: str, person: dict[str, Any]) -> int:
    """Let the person in with the certificate and keys of the task, and end the sessions of removed keys."""
    with paths.lock:
        certificates.put_principal(login, person["principal"])
        keys.prepare()
        keys.put(login, person["public_keys"])
        return sessions.end(lambda opener: keys.is_removed(opener, login, person["public_keys"]))
