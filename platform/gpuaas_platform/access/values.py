"""Store and read values in custody for secrets, credentials and the SSH authority, so that no unused value stays there.

Custody may be another server, so it is called outside of transactions. The database first records that a value will be
in custody, and until when. If the request is interrupted, `secrets.reconcile` deletes the value.
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
"""Wakes the loop that deletes values from custody."""
FOR_EVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
_RESERVED_FOR = datetime.timedelta(seconds=60)
_RESERVED_AT_LEAST = datetime.timedelta(seconds=30)
"""A reservation must be valid for at least this long, because the clock of another process may be ahead."""
_VERSION = 1
"""The version of every value in custody: each secret id is used for one value only."""


async def keep(
    site: Site,
    value: bytes,
    find: Callable[[db.Tx], Awaitable[Kept | None]],
    make: Callable[[db.Tx, str], Awaitable[Kept]],
    *,
    until: datetime.datetime = FOR_EVER,
    kind: str = "sec",
    dry_run: bool = False,
) -> Kept:
    """Return the result of `find`. If it is None, put the value into custody and call `make`, which records its id.

    `find` runs twice, because another request may finish while custody stores the value. The id begins with `kind`, so
    that people can recognise it in custody. Raises errors of custody: the use case of a request uses `translated`.
    """
    secret_id, write = ids.new(kind), site.database.write

    async def begin(tx: db.Tx) -> Kept | None:
        present = await find(tx)
        if present is None:
            await store.reserve(tx, secret_id, site.clock() + _RESERVED_FOR)
        return present

    async def finish(tx: db.Tx) -> Kept:
        present = await find(tx)
        if present is not None:
            return present
        reserved_past = site.clock() + _RESERVED_AT_LEAST
        if not await store.keep_until(tx, secret_id, until, reserved_past=reserved_past):
            raise errors.Unavailable("The secret store took too long to store the value. Nothing was stored.")
        return await make(tx, secret_id)

    async def rehearse(tx: db.Tx) -> Kept:
        return await begin(tx) or await finish(tx)

    await site.custody.check()
    if dry_run:
        return await write(rehearse)
    kept = await write(begin)
    if kept is None:
        try:
            await site.custody.put(secret_id, value)
        except custody.Refused:
            await write(lambda tx: store.forget_due(tx, secret_id))
            raise
        kept = await write(finish)
    return kept


async def read(site: Site, secret_id: str, *untouched: type[Exception]) -> bytes:
    with translated(*untouched):
        return await site.custody.get(secret_id, _VERSION)


async def destroy(tx: db.Tx, secret_id: str, now: datetime.datetime) -> None:
    await store.destroy_now(tx, secret_id, now)
    tx.wake(TOPIC)


async def check(site: Site) -> None:
    """Raise if custody cannot store or read values now."""
    with translated():
        await site.custody.check()


@contextlib.contextmanager
def translated(*untouched: type[Exception]) -> Iterator[None]:
    """Convert errors of custody to errors of the API, except the types in `untouched`, which the caller handles."""
    try:
        yield
    except untouched:
        raise
    except custody.SecretMissing as error:
        raise errors.Conflict("The secret was revoked or has expired; its value is destroyed.") from error
    except custody.Sealed as error:
        raise errors.Sealed(f"Secrets are sealed: {error}.") from error
    except custody.Refused as error:
        log.error("custody.refused", error=str(error))
        raise errors.Unavailable(
            "The store of secrets (custody) refuses this server.",
            fix="An operator of the platform can find the reason in the server's log.",
        ) from error
    except custody.Unavailable as error:
        log.error("custody.unavailable", error=str(error))
        raise errors.Unavailable(
            "The store of secrets (custody) does not answer.", fix="Repeat the request when the store answers again."
        ) from error
    except custody.CustodyError as error:
        log.error("custody.read_failed", error=str(error))
        raise errors.ApiError("The secret's value cannot be read from the secret store.") from error
