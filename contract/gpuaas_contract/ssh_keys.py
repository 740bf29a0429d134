"""SSH keys of people, and whose keys are installed on an allocation. The platform stores public keys only. A project
chooses people; the machine gets the complete set of their keys, again after every change. A person who leaves the
project, loses the role or is disabled is removed from the set automatically."""

from typing import Annotated, Literal

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.paths import ALLOCATION, API, SSH_KEY
from gpuaas_contract.wire import Id, Request, Timestamp, Wire

SSH_KEYS_PER_PERSON_MAX = 20
PEOPLE_PER_ALLOCATION_MAX = 50
RSA_BITS_MIN = 3072

KeySetState = Literal["installed", "pending"]


class SshKey(Wire):
    """A person's public key, for machines they have access to."""

    ssh_key_id: str
    user_id: str
    algorithm: str
    fingerprint: str
    """Fingerprint of the public key, as `ssh-keygen -lf` shows it."""
    comment: str
    public_key: str
    created_at: Timestamp


class AddSshKey(Request):
    """Registers one of your public keys."""

    public_key: Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]
    """One line, as in a `.pub` file: Ed25519, ECDSA, or RSA of at least 3072 bits."""
    comment: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """Comment that names the key; empty: the comment in the key's line."""


class PersonOnAllocation(Wire):
    """A person with access to a machine, and whether their keys work."""

    user_id: str
    name: str
    fingerprints: list[str]
    """Fingerprints of the keys that log in, or will once they are installed."""
    why_not: str
    """Why none of their keys logs in; empty when one does."""


class AllocationKeys(Wire):
    """Whose keys belong on an allocation's machine, and whether they are installed."""

    allocation_id: str
    people: list[PersonOnAllocation]
    state: KeySetState
    """`pending` until exactly the keys of the chosen people are installed on the machine."""
    installed: list[str]
    """Fingerprints of the keys on the machine at its last answer."""
    installed_at: Timestamp | None
    error: str
    """Why the last attempt failed. The platform tries again until the keys are installed."""


class SetAllocationPeople(Request):
    """Chooses whose keys are on an allocation's machine."""

    user_ids: Annotated[list[Id], msgspec.Meta(max_length=PEOPLE_PER_ALLOCATION_MAX)]
    """All people whose keys are to be installed; keys of other people are removed."""


SSH_KEY_CREATE = API.row("/me/ssh-keys", "ssh_key.create", "Register one of your public keys").post(
    AddSshKey, SshKey, permission="", status=201, errors=(errors.PermissionDenied,)
)
SSH_KEY_LIST = API.row("/me/ssh-keys", "ssh_key.list", "List your public keys").list(SshKey, permission="")
SSH_KEY_DELETE = SSH_KEY.row(
    "", "ssh_key.delete", "Delete one of your public keys and remove it from every machine"
).delete(SshKey, permission="")
ALLOCATION_KEYS_GET = ALLOCATION.row(
    "/ssh-keys",
    "capacity.allocation_keys.get",
    "Get whose keys belong on an allocation, and whether they are installed",
).get(AllocationKeys, "capacity.allocation.read")
ALLOCATION_KEYS_SET = ALLOCATION.row(
    "/ssh-keys",
    "capacity.allocation_keys.set",
    "Set whose keys are installed on an allocation",
    "Keys of people who are not named are removed from the machine.",
).put(SetAllocationPeople, AllocationKeys, "access.machine.set_people", example={"user_ids": []})
