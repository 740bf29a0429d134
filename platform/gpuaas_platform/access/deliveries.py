"""Return a secret value at most once. The services of runtime secrets and credentials check and record the delivery."""

from typing import Literal, NamedTuple, Protocol, TypeVar

from gpuaas_contract import errors
from gpuaas_contract.credentials import OpenCredential
from gpuaas_contract.paths import SealedDeliveryPath
from gpuaas_contract.secrets import OpenDelivery

from gpuaas_platform.access import values
from gpuaas_platform.call import Call
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import clock, db
from gpuaas_platform.operations import fence
from gpuaas_platform.operations.rules import ClaimedOperation

Thing = TypeVar("Thing")
Opening = OpenDelivery | OpenCredential
"""The body of a request that opens a delivery. It names the operation that the caller has claimed."""
Outcome = Literal["opened", "reopened"]
_COLUMNS = "delivery_id, secret_id, project_id, instance_id, credential_id, recipient_key, expires_at, opened_at"


class Delivery(NamedTuple):
    delivery_id: str
    secret_id: str
    """Id of the value in custody."""
    project_id: str
    instance_id: str
    """Only operations of this instance can open the delivery."""
    credential_id: str = ""
    recipient_key: str = ""
    """The public key for which a credential is encrypted; empty for a runtime secret."""
    expires_at: int = 0
    """In microseconds; 0: the delivery is valid as long as the secret is valid."""
    opened_at: int = 0


class Delivered(Protocol[Thing]):
    """The methods that each kind of delivered value, runtime secret or credential, implements."""

    async def find(self, tx: db.Tx, delivery: Delivery) -> Thing | None:
        """Return the value's resource; None if the delivery is for another kind of value."""

    async def open(self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: Thing) -> Thing:
        """Check that the secret or credential is still valid, and record that its value was read."""

    async def record(
        self, tx: db.Tx, call: Call, held: ClaimedOperation, delivery: Delivery, thing: Thing, what: Outcome
    ) -> None:
        """Record the first opening, or a later opening, which is refused."""


async def add(tx: db.Tx, delivery: Delivery) -> None:
    sql = f"INSERT INTO secret_deliveries ({_COLUMNS}) VALUES ({db.marks(8)})"  # noqa: S608 - names are ours
    await tx.run(sql, *delivery)


async def open_once(
    call: Call[SealedDeliveryPath], body: Opening, of: Delivered[Thing]
) -> tuple[Delivery, Thing, bytes]:
    """Return a value at most once, even if a step fails: the delivery is marked as opened before the value is sent.

    The value is read from custody first, so that the delivery stays unopened if custody does not answer. In a dry run
    the returned value is empty."""
    await values.check(call.site)
    ready = await _read_early(call, body)
    delivery, thing, is_first = await call.site.database.write(lambda tx: _open(tx, call, body, of))
    if not is_first:
        details = {"delivery_id": delivery.delivery_id}
        fix = "Ask for a new delivery; if none of your processes opened this one, revoke what it held."
        raise errors.SecretAlreadyDelivered("This delivery was opened before.", details=details, fix=fix)
    return delivery, thing, b"" if call.dry_run else ready or await values.read(call.site, delivery.secret_id)


async def _read_early(call: Call[SealedDeliveryPath], body: Opening) -> bytes:
    """Return the value from custody; empty in a dry run, or if `_open` will refuse the request and report why."""
    reader = call.site.database.reader
    held = await fence.claimed(reader, call, body.operation_id, body.epoch)
    delivery = await _find(reader, call.path.delivery_id)
    if call.dry_run or delivery is None or delivery.opened_at or delivery.instance_id != held.instance_id:
        return b""
    try:
        return await values.read(call.site, delivery.secret_id, custody.SecretMissing)
    except custody.SecretMissing:
        return b""


async def _open(
    tx: db.Tx, call: Call[SealedDeliveryPath], body: Opening, of: Delivered[Thing]
) -> tuple[Delivery, Thing, bool]:
    """Return the delivery; the last item is True if it was not opened before. A second opening raises no error here,
    because it must be recorded first."""
    held, delivery_id = await fence.claimed(tx, call, body.operation_id, body.epoch), call.path.delivery_id
    delivery = await _find(tx, delivery_id)
    thing = await of.find(tx, delivery) if delivery and delivery.instance_id == held.instance_id else None
    if delivery is None or thing is None:
        raise errors.NotFound(f"There is no delivery {delivery_id} for this operation's instance.")
    if delivery.opened_at:
        await of.record(tx, call, held, delivery, thing, "reopened")
        return delivery, thing, False
    now = clock.micros(call.now)
    if delivery.expires_at and delivery.expires_at <= now:
        raise errors.Conflict(
            "The delivery of the secret has expired, because it was not opened in time.", fix="Ask for a new delivery."
        )
    thing = await of.open(tx, call, held, delivery, thing)
    await of.record(tx, call, held, delivery, thing, "opened")
    await tx.run("UPDATE secret_deliveries SET opened_at = $2 WHERE delivery_id = $1", delivery_id, now)
    return delivery, thing, True


async def _find(reader: db.Reader, delivery_id: str) -> Delivery | None:
    sql = f"SELECT {_COLUMNS} FROM secret_deliveries WHERE delivery_id = $1"  # noqa: S608 - names are ours
    row = await reader.one(sql, delivery_id)
    return Delivery(*(row[at] for at in range(8))) if row is not None else None
