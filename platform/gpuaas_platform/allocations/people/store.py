"""SQL of the announced people of projects, and of people's accounts on machines."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract.lifecycles import LIVE_ALLOCATION

from gpuaas_platform.allocations.people.rules import AccountSet, ProjectPeople
from gpuaas_platform.kit import db

_PEOPLE = msgspec.json.Decoder(ProjectPeople)
_ACCOUNTS = msgspec.json.Decoder(AccountSet)
_LIVE = ", ".join(f"'{status}'" for status in sorted(LIVE_ALLOCATION))


class Machine(NamedTuple):
    """An active allocation with the accounts on its machine; None if no task has installed any."""

    allocation_id: str
    project_id: str
    accounts: AccountSet | None


async def announced(reader: db.Reader, project_id: str = "") -> dict[str, ProjectPeople]:
    """Return project id -> its announced people, for one project or for all."""
    where, values = db.equal({"project_id": project_id})
    rows = await reader.all(f"SELECT document FROM project_people WHERE {where}", *values)  # noqa: S608
    return {people.project_id: people for people in (_PEOPLE.decode(row[0]) for row in rows)}


async def save_announced(tx: db.Tx, people: ProjectPeople) -> None:
    sql = """INSERT INTO project_people (project_id, document) VALUES ($1, $2)
             ON CONFLICT (project_id) DO UPDATE SET document = excluded.document"""
    await tx.run(sql, people.project_id, msgspec.json.encode(people).decode())


async def forget_project(tx: db.Tx, project_id: str) -> None:
    await tx.run("DELETE FROM project_people WHERE project_id = $1", project_id)


async def machines(reader: db.Reader) -> list[Machine]:
    """Return the active allocations, with one statement."""
    sql = """SELECT allocations.allocation_id, allocations.project_id, accounts.document FROM allocations
             LEFT JOIN allocation_accounts accounts ON accounts.allocation_id = allocations.allocation_id
             WHERE allocations.status = 'active' ORDER BY allocations.allocation_id"""
    return [Machine(row[0], row[1], _ACCOUNTS.decode(row[2]) if row[2] else None) for row in await reader.all(sql)]


async def gone(reader: db.Reader) -> list[str]:
    """Return the allocations whose accounts are recorded although they were released."""
    sql = f"""SELECT accounts.allocation_id FROM allocation_accounts accounts
              LEFT JOIN allocations ON allocations.allocation_id = accounts.allocation_id
              WHERE allocations.allocation_id IS NULL OR allocations.status NOT IN ({_LIVE})"""  # noqa: S608
    return [row[0] for row in await reader.all(sql)]


async def accounts(reader: db.Reader, allocation_id: str) -> AccountSet | None:
    row = await reader.one("SELECT document FROM allocation_accounts WHERE allocation_id = $1", allocation_id)
    return _ACCOUNTS.decode(row[0]) if row is not None else None


async def save_accounts(tx: db.Tx, accounts: AccountSet) -> None:
    sql = """INSERT INTO allocation_accounts (allocation_id, document) VALUES ($1, $2)
             ON CONFLICT (allocation_id) DO UPDATE SET document = excluded.document"""
    await tx.run(sql, accounts.allocation_id, msgspec.json.encode(accounts).decode())


async def forget_accounts(tx: db.Tx, allocation_ids: Sequence[str]) -> None:
    for allocation_id in allocation_ids:
        await tx.run("DELETE FROM allocation_accounts WHERE allocation_id = $1", allocation_id)
