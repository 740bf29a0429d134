"""SQL of people's SSH keys and of the key sets on machines."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract.ssh_keys import SshKey

from gpuaas_platform.allocations.installation import InstalledSet
from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

SSH_KEYS = Table(
    "ssh_keys", SshKey, "ssh_key_id", user_id=lambda key: key.user_id, fingerprint=lambda key: key.fingerprint
)
NEVER = 2**62
"""Value of `check_at` for key sets that need no check before the next comparison of all key sets."""
_KEY_SET = msgspec.json.Decoder(InstalledSet)
_KEY_SETS = """SELECT sets.document, sets.check_at, allocations.status FROM allocation_key_sets sets
           LEFT JOIN allocations ON allocations.allocation_id = sets.allocation_id"""


class OnAllocation(NamedTuple):
    """A person chosen for an allocation of a project, with one of their keys; None if they have no key."""

    allocation_id: str
    org_id: str
    project_id: str
    user_id: str
    key: SshKey | None


class StoredSet(NamedTuple):
    """A key set, with the values that decide whether it needs a write."""

    key_set: InstalledSet
    check_at: int
    allocation_status: str
    """Status of the allocation; empty if it no longer exists."""


async def set_people(tx: db.Tx, allocation_id: str, user_ids: Iterable[str]) -> None:
    await tx.run("DELETE FROM allocation_people WHERE allocation_id = $1", allocation_id)
    for user_id in user_ids:
        await tx.run("INSERT INTO allocation_people (allocation_id, user_id) VALUES ($1, $2)", allocation_id, user_id)


async def people(reader: db.Reader, allocation_ids: Sequence[str] | None) -> list[OnAllocation]:
    """Return the people chosen for these allocations, or for all: one item for each of their keys."""
    wanted = [] if allocation_ids is None else allocation_ids
    where = "1 = 1" if allocation_ids is None else f"people.allocation_id IN ({db.marks(len(wanted))})"
    rows = await reader.all(
        f"""SELECT people.allocation_id, projects.org_id, projects.project_id, people.user_id, ssh_keys.document
            FROM allocation_people people
            JOIN allocations ON allocations.allocation_id = people.allocation_id
            JOIN projects ON projects.project_id = allocations.project_id
            LEFT JOIN ssh_keys ON ssh_keys.user_id = people.user_id
            WHERE {where}
            ORDER BY people.allocation_id, people.user_id, ssh_keys.ssh_key_id""",  # noqa: S608 - marks only
        *wanted,
    )
    return [OnAllocation(row[0], row[1], row[2], row[3], SSH_KEYS.decode(row[4]) if row[4] else None) for row in rows]


async def key_set(reader: db.Reader, allocation_id: str) -> InstalledSet | None:
    row = await reader.one("SELECT document FROM allocation_key_sets WHERE allocation_id = $1", allocation_id)
    return _KEY_SET.decode(row[0]) if row is not None else None


async def key_sets(reader: db.Reader, due_at: int) -> list[StoredSet]:
    """Return the key sets whose check is due at `due_at`."""
    rows = await reader.all(f"{_KEY_SETS} WHERE sets.check_at <= $1", due_at)
    return [StoredSet(_KEY_SET.decode(row[0]), row[1], row[2] or "") for row in rows]


async def save(tx: db.Tx, key_set: InstalledSet, check_at: int) -> None:
    sql = """INSERT INTO allocation_key_sets (allocation_id, check_at, document) VALUES ($1, $2, $3)
             ON CONFLICT (allocation_id) DO UPDATE SET check_at = excluded.check_at, document = excluded.document"""
    await tx.run(sql, key_set.allocation_id, check_at, msgspec.json.encode(key_set).decode())


async def delete(tx: db.Tx, allocation_id: str) -> None:
    await tx.run("DELETE FROM allocation_key_sets WHERE allocation_id = $1", allocation_id)
    await tx.run("DELETE FROM allocation_people WHERE allocation_id = $1", allocation_id)


async def lines_of(reader: db.Reader, user_ids: Sequence[str] | None) -> dict[str, list[str]]:
    """Return user id -> public keys, for these people or for all who have one."""
    wanted = [] if user_ids is None else user_ids
    where = "1 = 1" if user_ids is None else f"user_id IN ({db.marks(len(wanted))})"
    keys: dict[str, list[str]] = defaultdict(list)
    for key in await SSH_KEYS.find(reader, f"{where} ORDER BY ssh_key_id", *wanted):
        keys[key.user_id].append(key.public_key)
    return keys


async def mark_due(tx: db.Tx, user_id: str) -> None:
    """Make the key sets of all allocations due for which this person was chosen."""
    sql = """UPDATE allocation_key_sets SET check_at = 0
             WHERE allocation_id IN (SELECT allocation_id FROM allocation_people WHERE user_id = $1)"""
    await tx.run(sql, user_id)
