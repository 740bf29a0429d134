"""SQL of machine grants, and of the tasks that send revoked serials to nodes and have not succeeded yet."""

import datetime
from typing import NamedTuple

from gpuaas_contract.access import MachineGrant

from gpuaas_platform.access.machines import rules
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table


class Sent(NamedTuple):
    """The newest task that sends a node its revoked serials."""

    node_id: str
    task_id: str
    """Task that sent the serial numbers of revoked certificates to the node; empty if they must be sent again."""
    retry_at: int = 0
    """When to send the serials again, in microseconds; 0 until the task has failed."""


GRANTS = Table(
    "machine_grants",
    MachineGrant,
    "grant_id",
    project_id=lambda grant: grant.project_id,
    allocation_id=lambda grant: grant.allocation_id,
    node_id=lambda grant: grant.node_id,
    operation_id=lambda grant: grant.operation_id,
    serial=lambda grant: int(grant.serial),
    state=lambda grant: grant.state,
    is_enforced=lambda grant: int(grant.enforced_at is not None),
    refused_until=lambda grant: clock.micros(
        max(grant.expires_at, grant.ended_at or grant.expires_at) + rules.CLOCK_BEHIND_MAX
    ),
)


async def active(reader: db.Reader) -> list[MachineGrant]:
    return await GRANTS.find(reader, "state = 'active' ORDER BY grant_id")


async def refused_serials(reader: db.Reader, node_id: str, now: datetime.datetime) -> list[int]:
    """Return all serials that the node must refuse. The node replaces its whole list with them."""
    sql = """SELECT serial FROM machine_grants
             WHERE node_id = $1 AND refused_until > $2 AND state = 'ended' ORDER BY serial"""
    return [int(row[0]) for row in await reader.all(sql, node_id, clock.micros(now))]


async def expect(tx: db.Tx, sent: Sent) -> None:
    """Save the node's newest task. When it succeeds, the node enforces all ends of grants so far."""
    sql = """INSERT INTO node_revocations (node_id, task_id, retry_at) VALUES ($1, $2, $3)
             ON CONFLICT (node_id) DO UPDATE SET task_id = excluded.task_id, retry_at = excluded.retry_at"""
    await tx.run(sql, *sent)


async def expected(reader: db.Reader, node_id: str) -> list[Sent]:
    """Return the saved task of this node; of all nodes if `node_id` is empty."""
    where, values = ("node_id = $1", [node_id]) if node_id else ("1 = 1", [])
    sql = f"SELECT node_id, task_id, retry_at FROM node_revocations WHERE {where} ORDER BY node_id"  # noqa: S608
    return [Sent(row[0], row[1], row[2]) for row in await reader.all(sql, *values)]


async def forget_sent(tx: db.Tx, node_id: str) -> None:
    await tx.run("DELETE FROM node_revocations WHERE node_id = $1", node_id)
