"""Delete old artifact deliveries, drafts of interrupted uploads, and content that no artifact needs."""

import asyncio
import functools
from collections.abc import Sequence

import structlog

from gpuaas_platform.artifacts import content, rules, store
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.retention import Retained

log = structlog.get_logger()

TOPIC = "artifacts.sweep"
CONTENT_TOPIC = "artifacts.content"
_BATCH = 500
RETAINED = Retained("artifacts.deliveries", lambda _: 86_400, store.is_old, store.forget)
"""Deliveries are deleted one day after they expired. Until then the error is "expired", later "unknown"."""


async def sweep(site: Site) -> None:
    content.blobs(site).drop_abandoned_drafts()


class ContentSweep:
    """Deletes content after every artifact with its digest has been retired or revoked for a configured time.

    Such content is no longer delivered; a reader that has the file open can read it to its end. The decision and the
    move of the file happen in one write transaction, and write transactions of all processes run one at a time. So a
    digest is published either before it, and keeps its content, or after it, and its content is stored again."""

    def __init__(self, site: Site) -> None:
        self._site, self._blobs = site, content.blobs(site)
        self._unknown_since: dict[str, int] = {}
        """Digest -> when this process first saw content without any artifact, because the end of its last artifact is
        unknown. So a server that is started with a wrong database deletes nothing at once."""

    async def sweep(self) -> None:
        stored = await asyncio.to_thread(self._blobs.digests)
        self._unknown_since = {
            digest: self._unknown_since[digest] for digest in stored if digest in self._unknown_since
        }
        for some in db.chunks(stored, _BATCH):
            spent = await self._spent(self._site.database.reader, some)
            if spent:
                await self._site.database.write(functools.partial(self._set_aside, digests=spent))
        await asyncio.to_thread(self._blobs.drop_aside)

    async def _set_aside(self, tx: db.Tx, digests: Sequence[str]) -> None:
        """Set aside the content that is still unneeded: the caller checked committed data, this checks in the write."""
        for digest in await self._spent(tx, digests):
            self._blobs.set_aside(digest)
            log.info("artifact.content_deleted", digest=digest)

    async def _spent(self, reader: db.Reader, digests: Sequence[str]) -> list[str]:
        now, unneeded_since = self._site.clock(), await store.ended_at(reader, digests)
        for digest in digests:
            if digest not in unneeded_since:
                unneeded_since[digest] = self._unknown_since.setdefault(digest, clock.micros(now))
        return rules.spent(unneeded_since, content.kept_since(self._site, now))
