"""SQL of runtime secrets, and of the time at which each value has to be deleted from custody."""

import datetime

from gpuaas_contract.secrets import RuntimeSecret

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

SECRETS = Table(
    "runtime_secrets",
    RuntimeSecret,
    "secret_id",
    project_id=lambda secret: secret.project_id,
    instance_id=lambda secret: secret.instance_id,
    purpose=lambda secret: secret.purpose,
    name=lambda secret: secret.name,
    version=lambda secret: secret.version,
    state=lambda secret: secret.state,
)


async def issued(reader: db.Reader, instance_id: str, purpose: str, name: str) -> RuntimeSecret | None:
    where = "instance_id = $1 AND purpose = $2 AND name = $3 AND state = 'issued'"
    secrets = await SECRETS.find(reader, where, instance_id, purpose, name)
    return secrets[0] if secrets else None


async def instances_with_issued(reader: db.Reader) -> list[str]:
    """Return the ids of the instances that have an issued secret."""
    sql = "SELECT DISTINCT instance_id FROM runtime_secrets WHERE state = 'issued' ORDER BY instance_id"
    return [row[0] for row in await reader.all(sql)]


async def all_issued(reader: db.Reader, instance_id: str) -> list[RuntimeSecret]:
    return await SECRETS.find(reader, "instance_id = $1 AND state = 'issued' ORDER BY secret_id", instance_id)


async def next_version(reader: db.Reader, instance_id: str, purpose: str, name: str) -> int:
    sql = "SELECT coalesce(max(version), 0) FROM runtime_secrets WHERE instance_id = $1 AND purpose = $2 AND name = $3"
    row = await reader.one(sql, instance_id, purpose, name)
    return int(row[0]) + 1 if row is not None else 1


async def reserve(tx: db.Tx, secret_id: str, due_at: datetime.datetime) -> None:
    """Record when a value must be deleted from custody. Called before the value is put into custody."""
    await tx.run("INSERT INTO secrets_due (secret_id, due_at) VALUES ($1, $2)", secret_id, clock.micros(due_at))


async def keep_until(tx: db.Tx, secret_id: str, due_at: datetime.datetime, *, reserved_past: datetime.datetime) -> bool:
    """Set a new deletion time. Return False, without a change, if the reservation ends before `reserved_past`."""
    sql = "UPDATE secrets_due SET due_at = $2 WHERE secret_id = $1 AND due_at > $3"
    return await tx.run(sql, secret_id, clock.micros(due_at), clock.micros(reserved_past)) == 1


async def destroy_now(tx: db.Tx, secret_id: str, now: datetime.datetime) -> None:
    await tx.run("UPDATE secrets_due SET due_at = $2 WHERE secret_id = $1", secret_id, clock.micros(now))


async def due(reader: db.Reader, now: datetime.datetime, limit: int) -> list[str]:
    """Return the ids of the values that must be deleted from custody now."""
    sql = "SELECT secret_id FROM secrets_due WHERE due_at <= $1 ORDER BY due_at LIMIT $2"
    return [row[0] for row in await reader.all(sql, clock.micros(now), limit)]


async def forget_due(tx: db.Tx, secret_id: str) -> None:
    await tx.run("DELETE FROM secrets_due WHERE secret_id = $1", secret_id)
