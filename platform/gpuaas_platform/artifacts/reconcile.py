"""Forget what is over: deliveries, what uploads left behind that died, content that nobody needs."""

import asyncio
import functools
from collections.abc import Mapping, Sequence

import structlog

from gpuaas_platform.artifacts import content, rules, store
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock, db

log = structlog.get_logger()

TOPIC = "artifacts.sweep"
CONTENT_TOPIC = "artifacts.content"
_BATCH = 500
_EXPIRED_KEPT_S = 86_400
"""For a day one that is over is told apart from one that never was."""


async def sweep(site: Site) -> None:
    """A look costs one step in an index."""
    content.blobs(site).drop_abandoned_drafts()
    expired_before = clock.micros(site.clock()) - _EXPIRED_KEPT_S * 1_000_000
    for table in store.EXPIRING:
        forget = functools.partial(store.forget, table=table, expired_before=expired_before, limit=_BATCH)
        while (oldest := await store.oldest_expiry(site.database.reader, table)) and oldest < expired_before:
            await site.database.write(forget)


class ContentSweep:
    """Deletes content once every artifact with its digest has been retired or revoked for long enough.

    Nobody is handed such content any more; whoever reads it at that moment has the file open and reads to its end.
    The decision is taken, and the file set aside, within a write: there is one at a time, over all processes, so a
    digest is published before it, and keeps its content, or after it, and gets new content."""

    def __init__(self, site: Site) -> None:
        self._site, self._blobs = site, content.blobs(site)
        self._unknown_since: dict[str, int] = {}
        """Content without any artifact. When its last one ended nobody knows, so its time begins when it is noticed:
        a server that was started on another database by mistake deletes nothing at once."""

    async def sweep(self) -> None:
        stored = await asyncio.to_thread(self._blobs.digests)
        self._unknown_since = {
            digest: self._unknown_since[digest] for digest in stored if digest in self._unknown_since
        }
        for first in range(0, len(stored), _BATCH):
            found = await self._spent(self._site.database.reader, stored[first : first + _BATCH])
            if found:
                await self._site.database.write(functools.partial(self._set_aside, digests=found))
        await asyncio.to_thread(self._blobs.drop_aside)

    async def _set_aside(self, tx: db.Tx, digests: Sequence[str]) -> None:
        """Both must agree: what was committed before, and what this write sees, which may yet come to nothing."""
        for digest in await self._spent(tx, digests):
            self._blobs.set_aside(digest)
            log.info("content deleted, no artifact needs it", digest=digest)

    async def _spent(self, reader: db.Reader, digests: Sequence[str]) -> list[str]:
        now, known = self._site.clock(), await store.ended_at(reader, digests)
        return rules.spent(
            {digest: self._unneeded_since(digest, known, clock.micros(now)) for digest in digests},
            content.kept_since(self._site, now),
        )

    def _unneeded_since(self, digest: str, known: Mapping[str, int], now: int) -> int:
        return known[digest] if digest in known else self._unknown_since.setdefault(digest, now)
