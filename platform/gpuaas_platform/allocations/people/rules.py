"""Pure: who is on the list of a project's people, what changed in it, and which accounts a machine must have."""

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.posix import PosixIdentity, PosixPerson

from gpuaas_platform.allocations import installation
from gpuaas_platform.allocations.installation import InstalledSet
from gpuaas_platform.allocations.keys import rules as key_rules

RECHECK_S = 10.0
"""How often all lists are compared. A role that expired takes effect within this time."""
UNKNOWN_TASK = "task_type_unknown"
"""Code with which an agent refuses a task that it has no handler for."""
_RETRY_AFTER = datetime.timedelta(seconds=60)
"""The pause after an old agent refused the task, or after some accounts could not be made."""
_INCOMPLETE = "incomplete"


class ProjectPeople(msgspec.Struct, frozen=True):
    """Everyone who has or had access to a project's machines, as last announced."""

    project_id: str
    people: dict[str, str] = {}
    """User id -> digest of the person's entry."""


class AccountSet(InstalledSet, frozen=True, kw_only=True):
    """The accounts on one allocation's machine, as last reported."""

    refused: dict[str, str] = {}
    """User id -> why the machine could not make the account."""


@dataclass(frozen=True)
class Candidate:
    """A person who has a role that applies to a project, or had access to it before."""

    user_id: str
    name: str
    is_active: bool
    """Whether the person is not disabled."""
    may_connect: bool
    may_be_root: bool


def listed(
    candidates: Sequence[Candidate],
    identities: Mapping[str, PosixIdentity],
    keys: Mapping[str, Sequence[str]],
    had_access: Mapping[str, str],
) -> list[PosixPerson]:
    """Return the project's people by id: those who can log in now, and those who could before."""
    people = [_person(candidate, identities, keys) for candidate in candidates]
    shown = [person for person in people if person and (person.state == "active" or person.user_id in had_access)]
    return sorted(shown, key=lambda person: person.user_id)


def summary(people: Sequence[PosixPerson]) -> dict[str, str]:
    """Return user id -> digest of the entry, to find what changed since the last announcement."""
    return {person.user_id: _digest(person) for person in people}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(user_id for user_id in {*before, *after} if before.get(user_id) != after.get(user_id))


def digest_of(announced: ProjectPeople | None) -> str:
    """Return a digest of the announced list. It depends on the list only, so it also fits after a change and back."""
    people = sorted((announced.people if announced else {}).items())
    return hashlib.sha256(msgspec.json.encode(people)).hexdigest()[:32]


def accounts(allocation_id: str, people: Sequence[PosixPerson]) -> list[dict[str, object]]:
    """Return the complete set of accounts that the allocation's machine must have, as the task's parameter."""
    return [
        {
            "user_id": person.user_id,
            "login": person.login,
            "uid": person.uid,
            "gid": person.gid,
            "principal": principal(allocation_id, person.user_id),
            "public_keys": person.public_keys,
        }
        for person in people
        if person.state == "active"
    ]


def principal(allocation_id: str, user_id: str) -> str:
    """Return the principal with which a certificate opens one person's account on one allocation's machine."""
    return f"{allocation_id}/{user_id}"


def digest(wanted: Sequence[Mapping[str, object]]) -> str:
    return installation.digest([msgspec.json.encode(account).decode() for account in wanted])


def new_set(allocation_id: str) -> AccountSet:
    return AccountSet(allocation_id=allocation_id, digest=installation.digest([]))


def ended(
    present: AccountSet, task_id: str, error: str, refused: Mapping[str, str], now: datetime.datetime
) -> AccountSet:
    """Return the set after a task ended. Accounts that could not be made are tried again after a pause."""
    pause = _RETRY_AFTER if error.startswith(UNKNOWN_TASK) else installation.RETRY_AFTER
    after = installation.ended(present, task_id, error, now, pause)
    if error or not refused or present.task_id != task_id:
        return msgspec.structs.replace(after, refused=present.refused if after is present else {})
    installed = [user_id for user_id in after.installed if user_id not in refused]
    return msgspec.structs.replace(
        after, digest=_INCOMPLETE, installed=installed, refused=dict(refused), retry_at=now + _RETRY_AFTER
    )


def check_has_account(present: AccountSet, allocation: Allocation, user_id: str) -> None:
    """Refuse a certificate for an account that the machine does not have, and name the reason and the fix."""
    details = {"allocation_id": allocation.allocation_id, "reason": present.error or present.refused.get(user_id, "")}
    if user_id in present.installed:
        return
    if present.error.startswith(UNKNOWN_TASK):
        raise errors.AgentTooOld(
            f"The agent on {allocation.node_name} is too old: it cannot keep people's accounts.",
            details=details,
            fix=f"An operator upgrades it: gpuaas agent upgrade {allocation.node_name} --to VERSION --reason REASON. "
            "Until then an admin of the project can log in with: gpuaas ssh --root",
        )
    if user_id in present.refused:
        raise errors.Conflict(
            f"Your account could not be made on {allocation.node_name}: {present.refused[user_id]}",
            details=details,
            fix="An admin of the project removes the cause: gpuaas ssh --root",
        )
    why = f" (the last attempt failed: {present.error})" if present.error else ""
    raise errors.AccountPending(f"Your account is not on {allocation.node_name} yet{why}.", details=details)


def _person(
    candidate: Candidate, identities: Mapping[str, PosixIdentity], keys: Mapping[str, Sequence[str]]
) -> PosixPerson | None:
    identity = identities.get(candidate.user_id)
    if identity is None:
        return None
    is_in = candidate.is_active and candidate.may_connect
    own_keys = [key for key in keys.get(candidate.user_id, ()) if key_rules.is_installable(key)]
    return PosixPerson(
        user_id=candidate.user_id,
        name=candidate.name,
        login=identity.login,
        uid=identity.uid,
        gid=identity.gid,
        state="active" if is_in else "left",
        is_admin=is_in and candidate.may_be_root,
        public_keys=own_keys if is_in else [],
    )


def _digest(person: PosixPerson) -> str:
    return hashlib.sha256(msgspec.json.encode(person)).hexdigest()[:32]
