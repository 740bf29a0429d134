"""Hand something out exactly once. What it is, a runtime secret or a credential, its own service says."""

import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpuaas_contract import errors

from gpuaas_platform.access import values as keeping
from gpuaas_platform.call import Call
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import clock, db
from gpuaas_platform.operations.rules import HeldOperation

Thing = TypeVar("Thing")
FindHeld = Callable[[db.Reader], Awaitable[HeldOperation]]
"""Finds the operation a call names and refuses whoever does not hold it."""
_COLUMNS = "delivery_id, secret_id, project_id, instance_id, credential_id, recipient_key, expires_at"


@dataclass(frozen=True)
class Delivery:
    delivery_id: str
    secret_id: str
    """Where the value lies in custody."""
    project_id: str
    instance_id: str
    """Only operations of this instance open it."""
    credential_id: str = ""
    recipient_key: str = ""
    """Whom a credential is sealed to."""
    expires_at: int = 0
    """In microseconds; 0: as long as the secret is good."""
    is_opened: bool = False


class Delivered(Protocol[Thing]):
    """What deliveries are of."""

    async def find(self, tx: db.Tx, delivery: Delivery) -> Thing | None:
        """None: this delivery is not of our kind."""

    async def open(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: Thing) -> Thing:
        """Check that it is still good and put the opening on record."""

    async def refuse(self, tx: db.Tx, held: HeldOperation, delivery: Delivery, thing: Thing) -> None:
        """Put a second opening on record."""


async def add(tx: db.Tx, delivery: Delivery) -> None:
    await tx.run(
        f"INSERT INTO secret_deliveries ({_COLUMNS}, opened_at) VALUES ({db.marks(7)}, 0)",  # noqa: S608 - names are ours
        delivery.delivery_id,
        delivery.secret_id,
        delivery.project_id,
        delivery.instance_id,
        delivery.credential_id,
        delivery.recipient_key,
        delivery.expires_at,
    )


async def open_once(
    call: Call, find_held: FindHeld, delivery_id: str, of: Delivered[Thing]
) -> tuple[Delivery, Thing, bytes]:
    """Shown at most once, whatever fails in between: the delivery counts as opened before the value leaves us.

    It is taken out of custody before that, so that a custody that does not answer uses nothing up. The value is empty
    in a dry run."""
    with keeping.translated():
        await call.site.custody.check()
    ready = await _taken_out(call, find_held, delivery_id)
    delivery, thing, is_first = await call.site.database.write(lambda tx: _open(tx, call, find_held, delivery_id, of))
    if not is_first:
        raise errors.SecretAlreadyDelivered(
            "This delivery was opened before.",
            details={"delivery_id": delivery_id},
            fix="Ask for a new delivery; if nobody of yours opened this one, revoke what it held.",
        )
    return delivery, thing, b"" if call.dry_run else ready or await keeping.read(call.site, delivery.secret_id)


async def _taken_out(call: Call, find_held: FindHeld, delivery_id: str) -> bytes:
    """Empty where `_open` is going to refuse: it has the words, and the record."""
    reader = call.site.database.reader
    held, delivery = await find_held(reader), await _find(reader, delivery_id)
    if call.dry_run or delivery is None or delivery.is_opened or delivery.instance_id != held.instance_id:
        return b""
    try:
        return await keeping.read(call.site, delivery.secret_id, custody.SecretMissing)
    except custody.SecretMissing:
        return b""


async def _open(
    tx: db.Tx, call: Call, find_held: FindHeld, delivery_id: str, of: Delivered[Thing]
) -> tuple[Delivery, Thing, bool]:
    """Whether this was the first opening. A second one is put on record, so it does not raise here."""
    held = await find_held(tx)
    delivery = await _find(tx, delivery_id)
    thing = await of.find(tx, delivery) if delivery and delivery.instance_id == held.instance_id else None
    if delivery is None or thing is None:
        raise errors.NotFound(f"There is no delivery {delivery_id} for this operation's instance.")
    if delivery.is_opened:
        await of.refuse(tx, held, delivery, thing)
        return delivery, thing, False
    _check_age(delivery, call.now)
    opened = await of.open(tx, held, delivery, thing)
    await tx.run(
        "UPDATE secret_deliveries SET opened_at = $2 WHERE delivery_id = $1", delivery_id, clock.micros(call.now)
    )
    return delivery, opened, True


def _check_age(delivery: Delivery, now: datetime.datetime) -> None:
    if delivery.expires_at and delivery.expires_at <= clock.micros(now):
        raise errors.Conflict("The delivery was not opened in time.", fix="Ask for a new one.")


async def _find(reader: db.Reader, delivery_id: str) -> Delivery | None:
    row = await reader.one(
        f"SELECT {_COLUMNS}, opened_at FROM secret_deliveries WHERE delivery_id = $1",  # noqa: S608 - names are ours
        delivery_id,
    )
    return Delivery(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7] > 0) if row is not None else None
