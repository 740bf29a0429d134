"""SQL of people's SSH keys and of the key sets on machines. Who may log in is read from the roles each time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract.ssh_keys import SshKey

from gpuaas_platform.allocations.keys.rules import Chosen, KeySet
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

SSH_KEYS = Table(
    "ssh_keys", SshKey, "ssh_key_id", user_id=lambda key: key.user_id, fingerprint=lambda key: key.fingerprint
)
_PERMISSION = "access.machine.connect"
NEVER = 2**62
"""A moment for sets that need no look before the next comparison of all."""
_KEY_SET = msgspec.json.Decoder(KeySet)
_LOOK = """SELECT sets.document, sets.check_at, allocations.status FROM allocation_key_sets sets
           LEFT JOIN allocations ON allocations.allocation_id = sets.allocation_id"""


class Look(NamedTuple):
    """A key set with what decides whether something has to be done about it."""

    key_set: KeySet
    check_at: int
    allocation_status: str
    """Empty if the allocation is gone."""


async def delete_key(tx: db.Tx, ssh_key_id: str) -> None:
    await tx.run("DELETE FROM ssh_keys WHERE ssh_key_id = $1", ssh_key_id)


async def set_people(tx: db.Tx, allocation_id: str, user_ids: Iterable[str]) -> None:
    await tx.run("DELETE FROM allocation_people WHERE allocation_id = $1", allocation_id)
    for user_id in user_ids:
        await tx.run("INSERT INTO allocation_people (allocation_id, user_id) VALUES ($1, $2)", allocation_id, user_id)


async def chosen(reader: db.Reader, allocation_ids: Sequence[str] | None, now: int) -> dict[str, list[Chosen]]:
    """The people chosen for these allocations, or for all, with each of their keys and whether they may log in now."""
    roles = sorted(identity_rules.holders(_PERMISSION))
    wanted = [] if allocation_ids is None else allocation_ids
    first_role = len(wanted) + 2
    where = "1 = 1" if allocation_ids is None else f"people.allocation_id IN ({db.marks(len(wanted), 2)})"
    rows = await reader.all(
        f"""SELECT people.allocation_id, person.user_id, person.name, person.state, ssh_keys.fingerprint,
                   ssh_keys.document, CASE WHEN EXISTS (
                       SELECT 1 FROM bindings WHERE bindings.user_id = person.user_id
                       AND bindings.scope IN ('platform', projects.org_id, projects.project_id)
                       AND bindings.role IN ({db.marks(len(roles), first_role)})
                       AND (bindings.expires_at = 0 OR bindings.expires_at > $1)) THEN 1 ELSE 0 END
            FROM allocation_people people
            JOIN allocations ON allocations.allocation_id = people.allocation_id
            JOIN projects ON projects.project_id = allocations.project_id
            JOIN users person ON person.user_id = people.user_id
            LEFT JOIN ssh_keys ON ssh_keys.user_id = people.user_id
            WHERE {where}
            ORDER BY people.allocation_id, person.user_id, ssh_keys.ssh_key_id""",  # noqa: S608 - marks only
        now,
        *wanted,
        *roles,
    )
    people: dict[str, list[Chosen]] = defaultdict(list)
    for row in rows:
        people[row[0]].append(_chosen(row))
    return people


async def key_set(reader: db.Reader, allocation_id: str) -> KeySet | None:
    row = await reader.one("SELECT document FROM allocation_key_sets WHERE allocation_id = $1", allocation_id)
    return _KEY_SET.decode(row[0]) if row is not None else None


async def due(reader: db.Reader, now: int) -> list[Look]:
    """Key sets that have to be looked at now."""
    return [_look(row) for row in await reader.all(f"{_LOOK} WHERE sets.check_at <= $1", now)]


async def all_sets(reader: db.Reader) -> list[Look]:
    return [_look(row) for row in await reader.all(_LOOK)]


async def save(tx: db.Tx, key_set: KeySet, check_at: int) -> None:
    await tx.run(
        """INSERT INTO allocation_key_sets (allocation_id, check_at, document) VALUES ($1, $2, $3)
           ON CONFLICT (allocation_id) DO UPDATE SET check_at = excluded.check_at, document = excluded.document""",
        key_set.allocation_id,
        check_at,
        msgspec.json.encode(key_set).decode(),
    )


async def delete(tx: db.Tx, allocation_id: str) -> None:
    await tx.run("DELETE FROM allocation_key_sets WHERE allocation_id = $1", allocation_id)
    await tx.run("DELETE FROM allocation_people WHERE allocation_id = $1", allocation_id)


async def mark_due(tx: db.Tx, user_id: str) -> None:
    """Have the sets of all allocations looked at for which this person was chosen."""
    await tx.run(
        """UPDATE allocation_key_sets SET check_at = 0
           WHERE allocation_id IN (SELECT allocation_id FROM allocation_people WHERE user_id = $1)""",
        user_id,
    )


def _look(row: db.Row) -> Look:
    return Look(_KEY_SET.decode(row[0]), row[1], row[2] or "")


def _chosen(row: db.Row) -> Chosen:
    return Chosen(
        user_id=row[1],
        name=row[2],
        is_active=row[3] == "active",
        may_enter=bool(row[6]),
        public_key=msgspec.json.decode(row[5], type=SshKey).public_key if row[5] else "",
        fingerprint=row[4] or "",
    )
