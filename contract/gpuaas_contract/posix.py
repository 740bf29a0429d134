"""People on machines: the POSIX identity of a person in an organisation, and the people of a project.

A number is given once and never to another person. So files on shared storage always belong to who made them."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract.paths import ORG, PROJECT
from gpuaas_contract.wire import Id, Query, Request, Timestamp, WaitSeconds, Wire

LOGIN_LENGTH_MAX = 31
UID_MIN, UID_MAX = 1000, 2_000_000_000
PersonState = Literal["active", "left"]
"""`active`: may log in to the project's machines now. `left`: could before, and can no longer."""
Login = Annotated[
    str,
    msgspec.Meta(
        max_length=LOGIN_LENGTH_MAX,
        pattern=r"^[a-z_][a-z0-9_-]{0,30}(?!\n)$",
        description="Up to 31 lower-case letters, digits, hyphens or underscores; the first is a letter or underscore.",
    ),
]
Uid = Annotated[int, msgspec.Meta(ge=UID_MIN, le=UID_MAX, description=f"A number from {UID_MIN} to {UID_MAX}.")]


class PosixIdentity(Wire):
    """The login name and numbers of a person on all machines of an organisation. They never change."""

    user_id: str
    org_id: str
    login: str
    uid: int
    gid: int
    """Number of the person's own group; the same as `uid`."""
    created_at: Timestamp


class PosixPerson(Wire):
    """A person who can log in to the machines of a project, or could before."""

    user_id: str
    name: str
    login: str
    uid: int
    gid: int
    state: PersonState
    is_admin: bool
    """Whether the person may also log in as root (`access.machine.root`)."""
    public_keys: list[str]
    """The person's SSH keys, one line each, without comments; empty if the person has left."""


class PeopleDigest(Wire):
    """The state of the list of a project's people."""

    digest: str
    """Changes with the list; the same digest means the same people, keys and rights."""


class PeopleDigestQuery(Query):
    known: str = ""
    """The digest of the list that the caller has; the answer waits for another one."""
    wait_s: WaitSeconds = 0
    """How many seconds to wait for a change."""


class SetPosixIdentity(Request):
    """Sets login and number of a person who has none in the organisation yet, for sites with existing numbers."""

    user_id: Id
    login: Login
    uid: Uid
    """User number, also used as the group number. No other person of the organisation ever had it."""


POSIX_PEOPLE = PROJECT.row(
    "/posix-people",
    "identity.posix.list",
    "List the people of a project with their login names and numbers",
    "Everyone who can log in to the project's machines, and everyone who could before (`left`), ordered by id.",
).list(PosixPerson, "identity.posix.read")
POSIX_PEOPLE_DIGEST = PROJECT.row(
    "/posix-people/digest",
    "identity.posix.digest",
    "Get the digest of the people of a project, optionally waiting for its next change",
    "With `wait_s` and `known` it answers when the list is another one, or after `wait_s`. Then read the list.",
).get(PeopleDigest, "identity.posix.read", query=PeopleDigestQuery)
POSIX_IDENTITY_SET = ORG.row(
    "/posix-people",
    "identity.posix.set",
    "Set the login name and number of a person",
    "Only before the person has a role in the organisation: their first role gives them a login and a number, and "
    "both never change.",
).post(SetPosixIdentity, PosixIdentity, subject="user_id", repeat="natural")
