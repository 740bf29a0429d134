"""SQL of operations: one row for the head of each, one per target and one per step.

Status, revision and lease are stored only in columns. The document has the data of the request, the first claim and
the end, so its size does not depend on the number of members or steps."""

import datetime
from collections.abc import Callable, Collection, Sequence

import msgspec
from gpuaas_contract.operations import (
    INSTANCE_KINDS,
    STEPS_SHOWN_MAX,
    Operation,
    OperationHead,
    OperationKind,
    OperationListQuery,
    Progress,
    Step,
    Target,
)
from gpuaas_contract.wire import Page

from gpuaas_platform.kit import clock, db, paging, structs

Row = tuple[object, ...]

_OPERATION: dict[str, Callable[[OperationHead], object]] = {
    "operation_id": lambda head: head.operation_id,
    "project_id": lambda head: head.project_id,
    "instance_id": lambda head: head.instance_id,
    "app_slug": lambda head: head.app_slug,
    "kind": lambda head: head.kind,
    "correlation_id": lambda head: head.correlation_id,
    "operator_id": lambda head: head.operator_service_account_id,
    "deadline_at": lambda head: clock.micros(head.deadline_at),
    "status": lambda head: head.status,
    "revision": lambda head: head.revision,
    "epoch": lambda head: head.epoch,
    "attempts": lambda head: head.attempts,
    "steps_total": lambda head: head.steps_total,
    "holder": lambda head: head.lease.holder if head.lease else "",
    "claim_id": lambda head: head.lease.claim_id if head.lease else "",
    "lease_actor_id": lambda head: head.lease.actor_id if head.lease else "",
    "lease_expires_at": lambda head: clock.micros(head.lease.expires_at) if head.lease else 0,
    "document": lambda head: _document(head),
}
OPERATION_COLUMNS = tuple(_OPERATION)
TARGET_COLUMNS = ("operation_id", "position", "member_id", "outcome", "allocation_id", "document")
STEP_COLUMNS = ("operation_id", "position", "name", "member_id", "state", "changed_revision", "document")

_COLUMNS_ONLY = ("status", "revision", "epoch", "attempts", "steps_total")
_NOT_IN_DOCUMENT = (*_COLUMNS_ONLY, "lease", "targets", "steps", "progress", "exits")
_ROWS_PER_STATEMENT = 50
_OPEN = "status IN ('accepted', 'running', 'cancelling')"
"""Inserted as text and not as a parameter, so that both engines use the partial indexes."""
_CHANGES = "kind NOT IN ('action', 'preview')"
"""Text for the same reason: an app can have many actions between two changes."""
_HEAD = """SELECT status, revision, epoch, attempts, steps_total, holder, claim_id, lease_actor_id, lease_expires_at,
           document FROM operations"""
_SAVE = f"""UPDATE operations SET {", ".join(f"{name} = ${place}" for place, name in enumerate(OPERATION_COLUMNS, 1))}
            WHERE operation_id = $1"""  # noqa: S608 - names are ours
_TARGET = msgspec.json.Decoder(Target)
_STEP = msgspec.json.Decoder(Step)
_ENCODE = msgspec.json.Encoder().encode


async def get(reader: db.Reader, operation_id: str) -> OperationHead | None:
    row = await reader.one(f"{_HEAD} WHERE operation_id = $1", operation_id)
    return _head(row) if row is not None else None


async def heads(reader: db.Reader, where: str, *values: object) -> list[OperationHead]:
    """`where` is the SQL after WHERE, including ORDER BY and LIMIT."""
    return [_head(row) for row in await reader.all(f"{_HEAD} WHERE {where}", *values)]


async def page(reader: db.Reader, query: OperationListQuery, project_id: str) -> Page[OperationHead]:
    """Return a page in the order of ids, which is the order of creation."""
    where, values = "project_id = $1", [project_id]
    if query.instance_id:
        where, values = f"{where} AND instance_id = $2", [*values, query.instance_id]
    if query.live:
        where = f"{where} AND {_OPEN}"
    if query.changes:
        where = f"{where} AND {_CHANGES}"
    sql = paging.ordered("operation_id", where, len(values), query)
    return await paging.page(
        "operations",
        query,
        lambda place, limit: heads(reader, sql, *values, place, limit),
        lambda head: head.operation_id,
    )


async def insert(tx: db.Tx, operation: Operation) -> None:
    await tx.run(_insert_sql("operations", OPERATION_COLUMNS, 1), *operation_row(operation))
    for rows in db.chunks(target_rows(operation), _ROWS_PER_STATEMENT):
        sql = _insert_sql("operation_targets", TARGET_COLUMNS, len(rows))
        await tx.run(sql, *(value for row in rows for value in row))


async def save(tx: db.Tx, head: OperationHead) -> None:
    """Write the whole head; targets and steps have functions of their own."""
    if await tx.run(_SAVE, *operation_row(head)) != 1:
        raise LookupError(head.operation_id)


async def renew(tx: db.Tx, operation_id: str, lease_expires_at: int) -> None:
    await tx.run("UPDATE operations SET lease_expires_at = $2 WHERE operation_id = $1", operation_id, lease_expires_at)


async def raise_epochs(tx: db.Tx, by: int) -> int:
    """Raise the epochs of all open operations and end their leases. Return how many there are."""
    sql = f"""UPDATE operations SET epoch = epoch + $1, holder = '', claim_id = '', lease_actor_id = '',
              lease_expires_at = 0 WHERE {_OPEN}"""  # noqa: S608 - a condition of ours
    return await tx.run(sql, by)


async def advance(tx: db.Tx, head: OperationHead) -> None:
    """Write the revision and the number of steps; nothing else of the head has changed."""
    sql = "UPDATE operations SET revision = $2, steps_total = $3 WHERE operation_id = $1"
    await tx.run(sql, head.operation_id, head.revision, head.steps_total)


async def targets(reader: db.Reader, operation_ids: Sequence[str]) -> dict[str, list[Target]]:
    """Read the targets of many operations in one statement; return them by operation id, in their order."""
    result: dict[str, list[Target]] = {operation_id: [] for operation_id in operation_ids}
    if operation_ids:
        sql = f"""SELECT operation_id, document FROM operation_targets
                  WHERE operation_id IN ({db.marks(len(operation_ids))}) ORDER BY operation_id, position"""  # noqa: S608
        for row in await reader.all(sql, *operation_ids):
            result[row[0]].append(_TARGET.decode(row[1]))
    return result


async def target(reader: db.Reader, operation_id: str, member_id: str) -> Target | None:
    sql = "SELECT document FROM operation_targets WHERE operation_id = $1 AND member_id = $2"
    row = await reader.one(sql, operation_id, member_id)
    return _TARGET.decode(row[0]) if row is not None else None


async def save_target(tx: db.Tx, operation_id: str, changed: Target) -> None:
    sql = """UPDATE operation_targets SET outcome = $3, allocation_id = $4, document = $5
             WHERE operation_id = $1 AND member_id = $2"""
    document = _ENCODE(changed).decode()
    await tx.run(sql, operation_id, changed.member_id, changed.outcome, changed.allocation_id, document)


async def failed_targets(reader: db.Reader, operation_id: str) -> int:
    sql = "SELECT COUNT(*) FROM operation_targets WHERE operation_id = $1 AND outcome = 'failed'"
    row = await reader.one(sql, operation_id)
    return int(row[0]) if row is not None else 0


async def steps(reader: db.Reader, operation_id: str) -> list[Step]:
    sql = "SELECT document FROM operation_steps WHERE operation_id = $1 ORDER BY position"
    return [_STEP.decode(row[0]) for row in await reader.all(sql, operation_id)]


async def latest_steps(reader: db.Reader, operation_id: str) -> list[Step]:
    """Return the steps that changed last, as many as a response shows, in the order in which they started."""
    sql = """SELECT position, document FROM operation_steps WHERE operation_id = $1
             ORDER BY changed_revision DESC, position DESC LIMIT $2"""
    rows = await reader.all(sql, operation_id, STEPS_SHOWN_MAX)
    return [_STEP.decode(row[1]) for row in sorted(rows, key=lambda row: int(row[0]))]


async def steps_after(
    reader: db.Reader, operation_id: str, position: int, changed_since: int, limit: int
) -> list[tuple[int, Step]]:
    """Return a page of steps with the position of each."""
    sql = """SELECT position, document FROM operation_steps
             WHERE operation_id = $1 AND position > $2 AND changed_revision > $3 ORDER BY position LIMIT $4"""
    rows = await reader.all(sql, operation_id, position, changed_since, limit)
    return [(int(row[0]), _STEP.decode(row[1])) for row in rows]


async def step(reader: db.Reader, operation_id: str, name: str, member_id: str) -> Step | None:
    sql = "SELECT document FROM operation_steps WHERE operation_id = $1 AND name = $2 AND member_id = $3"
    row = await reader.one(sql, operation_id, name, member_id)
    return _STEP.decode(row[0]) if row is not None else None


async def add_step(tx: db.Tx, head: OperationHead, added: Step) -> None:
    """Insert a step at the end; `head` already counts it."""
    sql = _insert_sql("operation_steps", STEP_COLUMNS, 1)
    await tx.run(sql, *step_row(head.operation_id, head.steps_total, added, head.revision))


async def save_step(tx: db.Tx, head: OperationHead, changed: Step) -> None:
    sql = """UPDATE operation_steps SET state = $4, changed_revision = $5, document = $6
             WHERE operation_id = $1 AND name = $2 AND member_id = $3"""
    document = _ENCODE(changed).decode()
    await tx.run(sql, head.operation_id, changed.name, changed.member_id, changed.state, head.revision, document)


async def active(reader: db.Reader, instance_id: str) -> list[OperationHead]:
    return await heads(reader, f"instance_id = $1 AND {_OPEN} ORDER BY operation_id", instance_id)


async def active_kind(reader: db.Reader, instance_id: str) -> OperationKind | None:
    """Return the kind of the operation on the whole instance. A deploy counts once a controller has claimed it."""
    sql = f"SELECT kind, status FROM operations WHERE instance_id = $1 AND {_OPEN} ORDER BY operation_id"  # noqa: S608
    for row in await reader.all(sql, instance_id):
        kind: OperationKind = row[0]
        if kind in INSTANCE_KINDS and (kind, row[1]) != ("deploy", "accepted"):
            return kind
    return None


async def has_later(reader: db.Reader, operation: OperationHead, without: Collection[str]) -> bool:
    """Return whether the instance has had a later operation of another kind than these."""
    sql = f"""SELECT 1 FROM operations WHERE instance_id = $1 AND operation_id > $2
              AND kind NOT IN ({db.marks(len(without), 3)}) LIMIT 1"""  # noqa: S608 - marks only
    return await reader.one(sql, operation.instance_id, operation.operation_id, *sorted(without)) is not None


async def busy_members(reader: db.Reader, instance_id: str, member_ids: Collection[str]) -> set[str]:
    """Return which of the members an open operation works on."""
    if not member_ids:
        return set()
    sql = f"""SELECT target.member_id FROM operations JOIN operation_targets target
              ON target.operation_id = operations.operation_id
              WHERE operations.instance_id = $1 AND operations.{_OPEN}
              AND target.member_id IN ({db.marks(len(member_ids), 2)})"""  # noqa: S608 - the parts are ours
    return {row[0] for row in await reader.all(sql, instance_id, *member_ids)}


async def moved_to(reader: db.Reader, instance_id: str, allocation_ids: Collection[str]) -> set[str]:
    """Return to which of the allocations a member of the instance will move."""
    if not allocation_ids:
        return set()
    sql = f"""SELECT target.allocation_id FROM operation_targets target JOIN operations
              ON operations.operation_id = target.operation_id
              WHERE target.outcome = 'pending' AND target.allocation_id <> ''
              AND target.allocation_id IN ({db.marks(len(allocation_ids), 2)})
              AND operations.instance_id = $1 AND operations.{_OPEN}"""  # noqa: S608 - the parts are ours
    return {row[0] for row in await reader.all(sql, instance_id, *allocation_ids)}


async def claimable(
    reader: db.Reader, project_id: str, app_slug: str, operator_id: str, now: int
) -> OperationHead | None:
    """Return the oldest new operation, or the one whose lease ran out first if that is older.

    Does not read operations under a lease. Each candidate is first in an index, so that PostgreSQL keeps one plan."""
    waits = f"project_id = $1 AND app_slug = $2 AND {_OPEN} AND deadline_at > $3 AND operator_id IN ('', $4)"
    where = f"""operation_id IN (
        (SELECT operation_id FROM operations WHERE {waits} AND lease_expires_at = 0
         ORDER BY operation_id LIMIT 1),
        (SELECT operation_id FROM operations WHERE {waits} AND lease_expires_at BETWEEN 1 AND $3
         ORDER BY lease_expires_at LIMIT 1))
        ORDER BY operation_id LIMIT 1"""  # noqa: S608 - the parts are ours
    candidates = await heads(reader, where, project_id, app_slug, now, operator_id)
    return candidates[0] if candidates else None


async def held_under(
    reader: db.Reader, project_id: str, app_slug: str, claim_id: str, actor_id: str, now: int
) -> OperationHead | None:
    """Return the operation that an earlier claim of this account with the same id got, if its response was lost."""
    where = """claim_id = $1 AND claim_id <> '' AND project_id = $2 AND lease_expires_at > $3
               AND lease_actor_id IN ('', $4) AND app_slug = $5"""
    candidates = await heads(reader, where, claim_id, project_id, now, actor_id, app_slug)
    return candidates[0] if candidates else None


async def held_by(reader: db.Reader, project_id: str, actor_id: str) -> list[OperationHead]:
    """Return the open operations of the project that the account has claimed."""
    return await heads(reader, f"project_id = $1 AND lease_actor_id = $2 AND {_OPEN}", project_id, actor_id)


async def apps_operated_by(reader: db.Reader, project_id: str, actor_id: str) -> set[str]:
    """Return the apps of operations that the account has claimed now, or that name it as operator."""
    sql = """SELECT DISTINCT app_slug FROM operations
             WHERE project_id = $1 AND (lease_actor_id = $2 OR operator_id = $2)"""
    return {row[0] for row in await reader.all(sql, project_id, actor_id)}


async def overdue(reader: db.Reader, now: int) -> list[str]:
    """Return the ids of open operations past their deadline, 100 at most."""
    sql = f"SELECT operation_id FROM operations WHERE {_OPEN} AND deadline_at <= $1 ORDER BY deadline_at LIMIT 100"  # noqa: S608
    return [row[0] for row in await reader.all(sql, now)]


async def given_up(reader: db.Reader, instance_id: str) -> set[str]:
    """Return the allocations from which a replace moved a member of the instance away."""
    sql = """SELECT operation_targets.document FROM operations
             JOIN operation_targets ON operation_targets.operation_id = operations.operation_id
             WHERE operations.instance_id = $1 AND operations.kind = 'replace'"""
    targets = [_TARGET.decode(row[0]) for row in await reader.all(sql, instance_id)]
    return {target.previous_allocation_id for target in targets if target.previous_allocation_id}


async def note_request(tx: db.Tx, operation_id: str, member_id: str, kind: str, requested_at: int) -> None:
    """Store that a controller requested the operation for the member by itself."""
    sql = "INSERT INTO steward_requests (operation_id, member_id, kind, requested_at) VALUES ($1, $2, $3, $4)"
    await tx.run(sql, operation_id, member_id, kind, requested_at)


async def requested_at(reader: db.Reader, member_id: str, kind: str, since: int) -> list[datetime.datetime]:
    """Return when controllers requested this kind of operation for the member by themselves."""
    sql = "SELECT requested_at FROM steward_requests WHERE member_id = $1 AND kind = $2 AND requested_at > $3"
    return [clock.moment(row[0]) for row in await reader.all(sql, member_id, kind, since)]


async def has_old_requests(reader: db.Reader, requested_before: int) -> bool:
    sql = "SELECT 1 FROM steward_requests WHERE requested_at < $1 LIMIT 1"
    return await reader.one(sql, requested_before) is not None


async def forget_old_requests(tx: db.Tx, requested_before: int, limit: int) -> None:
    sql = """DELETE FROM steward_requests WHERE (operation_id, member_id) IN (
             SELECT operation_id, member_id FROM steward_requests WHERE requested_at < $1 LIMIT $2)"""
    await tx.run(sql, requested_before, limit)


def whole(head: OperationHead, targets: Sequence[Target], steps: Sequence[Step]) -> Operation:
    """Put an operation together from its rows."""
    return structs.pick(Operation, head, targets=list(targets), steps=list(steps), progress=progress(targets), exits=[])


def progress(targets: Sequence[Target]) -> Progress:
    return Progress(done=sum(target.outcome != "pending" for target in targets), total=len(targets))


def operation_row(head: OperationHead) -> Row:
    return tuple(column(head) for column in _OPERATION.values())


def target_rows(operation: Operation) -> list[Row]:
    """Return one row per target, with the values in the order of `TARGET_COLUMNS`."""
    operation_id = operation.operation_id
    return [
        (operation_id, position, target.member_id, target.outcome, target.allocation_id, _ENCODE(target).decode())
        for position, target in enumerate(operation.targets, 1)
    ]


def step_row(operation_id: str, position: int, step: Step, changed_revision: int) -> Row:
    """Return the values in the order of `STEP_COLUMNS`."""
    document = _ENCODE(step).decode()
    return (operation_id, position, step.name, step.member_id, step.state, changed_revision, document)


def _document(head: OperationHead) -> str:
    document = msgspec.to_builtins(head)
    for name in _NOT_IN_DOCUMENT:
        document.pop(name, None)
    return _ENCODE(document).decode()


def _head(row: db.Row) -> OperationHead:
    values: dict[str, object] = msgspec.json.decode(row["document"])
    values |= {name: row[name] for name in _COLUMNS_ONLY}
    values["lease"] = None
    if row["lease_expires_at"]:
        values["lease"] = {
            "holder": row["holder"],
            "claim_id": row["claim_id"],
            "epoch": row["epoch"],
            "expires_at": clock.moment(row["lease_expires_at"]),
            "actor_id": row["lease_actor_id"],
            "cancel_requested": row["status"] == "cancelling",
        }
    return msgspec.convert(values, OperationHead)


def _insert_sql(table: str, columns: Sequence[str], rows: int) -> str:
    width = len(columns)
    values = ", ".join(f"({db.marks(width, 1 + number * width)})" for number in range(rows))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}"  # noqa: S608 - names are ours
