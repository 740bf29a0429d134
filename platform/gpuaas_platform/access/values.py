"""Put values into custody and take them out, so that none stays there by accident. For secrets, credentials and
the SSH authority.

Custody may be another server, so values move outside transactions. The database says first that a value is going to be
there and until when: whatever is interrupted, `secrets_reconcile` takes it out again.
"""

import contextlib
import datetime
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import structlog
from gpuaas_contract import errors

from gpuaas_platform.access.secrets import store
from gpuaas_platform.call import Site
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import db, ids

log = structlog.get_logger()
Kept = TypeVar("Kept")

TOPIC = "secrets"
"""Wakes the loop that destroys values."""
FOR_EVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
_RESERVED_FOR = datetime.timedelta(seconds=60)
_RESERVED_AT_LEAST = datetime.timedelta(seconds=30)
"""With less left a reservation is not relied on: the clock of another process may be ahead."""
_VERSION = 1
"""In custody: a secret id is used for one value only."""


async def keep(
    site: Site,
    value: bytes,
    find: Callable[[db.Tx], Awaitable[Kept | None]],
    make: Callable[[db.Tx, str], Awaitable[Kept]],
    *,
    kind: str = "sec",
    dry_run: bool = False,
) -> Kept:
    """`find` looks for what is there already; if nothing is, the value goes into custody and `make` records its id.

    `find` looks twice: somebody else may have been faster while custody was slow. `kind` begins the id, for people who
    look into custody. Raises custody's own errors: whoever answers a request wraps this in `translated`.
    """
    secret_id, write = ids.new(kind), site.database.write

    async def begin(tx: db.Tx) -> Kept | None:
        found = await find(tx)
        if found is None:
            await store.reserve(tx, secret_id, site.clock() + _RESERVED_FOR)
        return found

    async def finish(tx: db.Tx) -> Kept:
        return await find(tx) or await make(tx, secret_id)

    async def rehearse(tx: db.Tx) -> Kept:
        return await begin(tx) or await finish(tx)

    await site.custody.check()
    if dry_run:
        return await write(rehearse)
    found = await write(begin)
    if found is None:
        await _put(site, secret_id, value)
        found = await write(finish)
    return found


async def keep_until(tx: db.Tx, site: Site, secret_id: str, until: datetime.datetime) -> None:
    """What was only reserved stays; called by `make`."""
    reserved_past = site.clock() + _RESERVED_AT_LEAST
    if not await store.keep_until(tx, secret_id, until, reserved_past=reserved_past):
        raise errors.Unavailable("Custody took too long to keep the value; it was given up.")


async def read(site: Site, secret_id: str, *untouched: type[Exception]) -> bytes:
    with translated(*untouched):
        return await site.custody.get(secret_id, _VERSION)


async def destroy(tx: db.Tx, secret_id: str, now: datetime.datetime) -> None:
    await store.destroy_now(tx, secret_id, now)
    tx.wake(TOPIC)


async def _put(site: Site, secret_id: str, value: bytes) -> None:
    try:
        await site.custody.put(secret_id, value)
    except custody.Refused:
        await site.database.write(lambda tx: store.forget_due(tx, secret_id))
        raise


@contextlib.contextmanager
def translated(*untouched: type[Exception]) -> Iterator[None]:
    """Custody's errors in the words of the API, but for those the caller understands."""
    try:
        yield
    except untouched:
        raise
    except custody.SecretMissing as error:
        raise errors.Conflict("It ended meanwhile; its value is destroyed.") from error
    except custody.Sealed as error:
        raise errors.Sealed(f"Secrets are sealed: {error}.") from error
    except custody.Refused as error:
        log.error("custody refuses the platform", why=str(error))
        raise errors.Unavailable("Custody refuses this server.", fix="An operator finds why in its log.") from error
    except custody.Unavailable as error:
        log.error("custody does not answer", why=str(error))
        raise errors.Unavailable("Custody does not answer.", fix="Ask again when it does.") from error
    except custody.CustodyError as error:
        log.error("custody cannot read a value", why=str(error))
        raise errors.ApiError("The value cannot be read.") from error
