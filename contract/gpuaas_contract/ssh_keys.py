"""People's SSH keys, and whose keys are on an allocation. The platform keeps public keys only.

A project chooses people; the machine gets the complete set of their keys, again whenever the set changes. Somebody who
leaves the project, loses the role or is disabled drops out of the set by themselves."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page, PageQuery, Request, Timestamp, Wire

SSH_KEYS_PER_PERSON_MAX = 20
PEOPLE_PER_ALLOCATION_MAX = 50
RSA_BITS_MIN = 3072

KeySetState = Literal["installed", "pending"]


class SshKey(Wire):
    """A public key of a person, for machines the person is put on."""

    ssh_key_id: str
    user_id: str
    algorithm: str
    fingerprint: str
    """As `ssh-keygen -lf` shows it."""
    comment: str
    public_key: str
    created_at: Timestamp


class AddSshKey(Request):
    """Registers a public key of your own."""

    public_key: Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]
    """One line, as in a `.pub` file: Ed25519, ECDSA, or RSA of at least 3072 bits."""
    comment: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """Empty: the one that stands in the line."""


class PersonOnAllocation(Wire):
    """Somebody who was put on a machine, and whether their keys let them in."""

    user_id: str
    name: str
    fingerprints: list[str]
    """Of the keys that log in, or will as soon as the machine has them."""
    why_not: str
    """Why none of theirs does; empty when some do."""


class AllocationKeys(Wire):
    """Whose keys are on an allocation's machine, and whether it has them by now."""

    allocation_id: str
    people: list[PersonOnAllocation]
    state: KeySetState
    """Pending until the machine has exactly the keys of these people."""
    installed: list[str]
    """Fingerprints of the keys that were on the machine when it last answered."""
    installed_at: Timestamp | None
    error: str
    """Why the last attempt failed; it is repeated until the machine has the set."""


class SetAllocationPeople(Request):
    """Chooses whose keys are on an allocation's machine."""

    user_ids: Annotated[list[str], msgspec.Meta(max_length=PEOPLE_PER_ALLOCATION_MAX)]
    """All whose keys shall be there; whoever is not named is taken off."""


SSH_KEY_CREATE = Endpoint(
    "ssh_key.create",
    "POST",
    "/api/v1/me/ssh-keys",
    "Register a public key of your own",
    request=AddSshKey,
    response=SshKey,
    subject="ssh_key_id",
    status=201,
    errors=(errors.PermissionDenied,),
)
SSH_KEY_LIST = Endpoint(
    "ssh_key.list",
    "GET",
    "/api/v1/me/ssh-keys",
    "Your public keys",
    request=NoBody,
    query=PageQuery,
    response=Page[SshKey],
)
SSH_KEY_DELETE = Endpoint(
    "ssh_key.delete",
    "DELETE",
    "/api/v1/me/ssh-keys/{ssh_key_id}",
    "Take a key of yours off every machine",
    request=NoBody,
    response=SshKey,
    subject="ssh_key_id",
)
ALLOCATION_KEYS_GET = Endpoint(
    "capacity.allocation_keys.get",
    "GET",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/ssh-keys",
    "Whose keys are on an allocation, and whether the machine has them",
    permission="capacity.allocation.read",
    request=NoBody,
    response=AllocationKeys,
)
ALLOCATION_KEYS_SET = Endpoint(
    "capacity.allocation_keys.set",
    "PUT",
    "/api/v1/projects/{project_id}/allocations/{allocation_id}/ssh-keys",
    "Choose whose keys are on an allocation",
    permission="access.machine.set_people",
    request=SetAllocationPeople,
    response=AllocationKeys,
    subject="allocation_id",
    repeat="natural",
    example={"user_ids": []},
)
ENDPOINTS = (SSH_KEY_CREATE, SSH_KEY_LIST, SSH_KEY_DELETE, ALLOCATION_KEYS_GET, ALLOCATION_KEYS_SET)
