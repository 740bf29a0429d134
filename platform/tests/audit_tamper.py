"""What an attacker who can write the database, but not sign, does to an audit chain. Pure: rows in, rows out."""

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract.audit import AuditEntry
from gpuaas_platform.kit import ids
from gpuaas_platform.record import chain

KEY = Ed25519PrivateKey.generate()
CHAIN = "org_test"
_START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
_ACTIONS = ("apps.instance.create", "capacity.allocation.release", "authz.deny", "runtime.complete")

Rows = list[chain.Row]


@dataclass(frozen=True)
class Tampered:
    rows: Rows
    first: int
    """The first position that is no longer as it was written."""
    only_heads_tell: bool = False
    """The rest is sound in itself: only the signed heads show the change, and only that it came after one of them."""


def honest_rows(dice: random.Random, count: int) -> Rows:
    rows: Rows = []
    for number in range(count):
        rows = [*rows, following(rows, entry(dice, number))]
    return rows


def honest_heads(dice: random.Random, rows: Rows) -> list[chain.Head]:
    """Some on the way, and always one at the end."""
    positions = sorted({*dice.sample(range(1, len(rows) + 1), dice.randint(0, min(4, len(rows)))), len(rows)})
    return [head(number, rows[position - 1]) for number, position in enumerate(positions, 1)]


def edit(dice: random.Random, rows: Rows) -> Tampered:
    index = dice.randrange(len(rows))
    row, other = rows[index], following([], entry(dice, 999))
    changed = dice.choice(
        [
            other._replace(cursor=row.cursor, position=row.position, previous_hash=row.previous_hash, hash=row.hash),
            row._replace(document=row.document[:-1] + b" }"),
            row._replace(target=other.target),
            row._replace(hash=other.hash),
            row._replace(previous_hash=other.hash),
        ]
    )
    return Tampered([*rows[:index], changed, *rows[index + 1 :]], index + 1)


def delete(dice: random.Random, rows: Rows) -> Tampered:
    """Not at the end: that is `cut_tail`."""
    index = dice.randrange(len(rows) - 1)
    count = dice.randint(1, min(3, len(rows) - 1 - index))
    left = [*rows[:index], *rows[index + count :]]
    return Tampered(dice.choice([left, renumbered(left)]), index + 1)


def insert(dice: random.Random, rows: Rows) -> Tampered:
    index = dice.randrange(len(rows))
    forged = following(rows[:index], entry(dice, 999))
    beside = [*rows[: index + 1], forged._replace(cursor=len(rows) + 1), *rows[index + 1 :]]
    shifted = renumbered([*rows[:index], forged, *rows[index:]])
    unlinked = renumbered([*rows[:index], forged._replace(hash="f" * 64), *rows[index:]])
    return Tampered(dice.choice([beside, shifted, unlinked]), index + 1)


def reorder(dice: random.Random, rows: Rows) -> Tampered:
    first, second = sorted(dice.sample(range(len(rows)), 2))
    swapped = list(rows)
    swapped[first], swapped[second] = rows[second], rows[first]
    cursors = list(rows)
    cursors[first] = rows[first]._replace(cursor=rows[second].cursor)
    cursors[second] = rows[second]._replace(cursor=rows[first].cursor)
    return Tampered(dice.choice([renumbered(swapped), cursors]), first + 1)


def cut_tail(dice: random.Random, rows: Rows) -> Tampered:
    left = dice.randrange(len(rows))
    return Tampered(rows[:left], left + 1, only_heads_tell=True)


def rewrite_suffix(dice: random.Random, rows: Rows) -> Tampered:
    """Any of the above from one row on, and every hash after it recomputed; as long as before, shorter or longer."""
    index = dice.randrange(len(rows))
    rest = [msgspec.json.decode(row.document, type=AuditEntry) for row in rows[index + 1 :]]
    rest = rest[: dice.randint(0, len(rest))] if dice.random() < 0.3 else rest
    entries = [entry(dice, 999), *rest, *(entry(dice, 999) for _ in range(dice.randint(0, 3)))]
    rewritten = rows[:index]
    for new_entry in entries:
        rewritten = [*rewritten, following(rewritten, new_entry)]
    return Tampered(rewritten, index + 1, only_heads_tell=True)


def rewrite_row(dice: random.Random, rows: Rows) -> Tampered:
    """One row and its own hash."""
    index = dice.randrange(len(rows))
    return Tampered(
        [*rows[:index], following(rows[:index], entry(dice, 999)), *rows[index + 1 :]], index + 1, only_heads_tell=True
    )


Tamper = Callable[[random.Random, Rows], Tampered]
TAMPERINGS: tuple[Tamper, ...] = (
    edit,
    delete,
    insert,
    reorder,
    cut_tail,
    rewrite_suffix,
    rewrite_row,
)


def verdict(rows: Sequence[chain.Row], heads: Sequence[chain.Head]) -> chain.Finding | None:
    walk = chain.Walk(CHAIN, heads)
    in_order: list[chain.Row] = sorted(rows, key=lambda row: (row.position, row.cursor))
    walk.feed(in_order)
    return walk.end()


def entry(dice: random.Random, number: int) -> AuditEntry:
    return AuditEntry(
        audit_id=ids.new("aud"),
        occurred_at=_START + datetime.timedelta(seconds=number),
        actor_type="user",
        actor_id=f"user_{dice.randrange(5)}",
        actor_name="Zoë",
        action=dice.choice(_ACTIONS),
        target=f"inst_{dice.randrange(1 << 40)}",
        result=dice.choice(["success", "failure"]),
        correlation_id=f"cor_{dice.randrange(1 << 40)}",
        org_id=CHAIN,
        project_id="proj_test",
        peer="192.0.2.7",
        route="apps.instance.create",
        details={"permission": "apps.instance.create"} if dice.random() < 0.3 else {},
    )


def following(rows: Rows, new: AuditEntry) -> chain.Row:
    position, previous_hash = (rows[-1].position + 1, rows[-1].hash) if rows else (1, chain.GENESIS)
    document = msgspec.json.encode(new)
    copies = (new.project_id, new.actor_id, new.action, new.target, new.result, new.correlation_id)
    hash_ = chain.digest(CHAIN, position, previous_hash, document)
    return chain.Row(position, position, previous_hash, hash_, document, *copies)


def renumbered(rows: Rows) -> Rows:
    return [row._replace(position=position, cursor=position) for position, row in enumerate(rows, 1)]


def head(number: int, row: chain.Row, previous: str = "") -> chain.Head:
    time = (_START + datetime.timedelta(minutes=number)).isoformat()
    unsigned = chain.Head(
        chain=CHAIN, position=row.position, hash=row.hash, time=time, number=number, previous=previous, key=""
    )
    return chain.sign(KEY, unsigned)


def heads_file(rows: Sequence[chain.Row]) -> list[bytes]:
    lines: list[bytes] = []
    for number, row in enumerate(rows, 1):
        lines.append(msgspec.json.encode(head(number, row, chain.line_digest(lines[-1]) if lines else "")))
    return lines
