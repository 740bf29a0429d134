"""The content of a placement, for the node that it is queued for."""

import functools

from gpuaas_contract import errors
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.node import TaskError, TaskResult
from gpuaas_contract.paths import PlacedContentPath
from gpuaas_contract.placements import ArtifactPlacement

from gpuaas_platform.access.placements import rules, service, store
from gpuaas_platform.artifacts import content
from gpuaas_platform.artifacts.blobs import Reading, WrongContent
from gpuaas_platform.call import Call, CutOff, Site, Source, system_origin
from gpuaas_platform.kit import db


async def open_content(call: Call[PlacedContentPath]) -> Source:
    """Only the node that it is queued for can open it; for any other caller, and at any other time, it is not found."""
    placement, artifact = await _open_to(call.site, call.path.placement_id, call.caller.actor_id)
    return _Placing(call.site, placement, await content.opened(call.site, artifact))


class _Placing:
    """The content of a placement. During the transfer the placement is checked again regularly, as the node is. A
    stored file that turns out to be wrong ends the placement: the node only sees that the connection broke."""

    def __init__(self, site: Site, placement: ArtifactPlacement, reading: Reading) -> None:
        self._site, self._placement, self._reading = site, placement, reading
        self._checked_at = site.clock()

    async def next(self) -> bytes:
        await self._check_again()
        try:
            return await self._reading.next()
        except WrongContent as wrong:
            await self._site.database.write(functools.partial(self._fail, wrong.refusal))
            raise

    def end(self) -> None:
        self._reading.end()

    def close(self) -> None:
        self._reading.close()

    async def _check_again(self) -> None:
        now = self._site.clock()
        if (now - self._checked_at).total_seconds() < self._site.settings.stream_recheck_s:
            return
        self._checked_at = now
        try:
            await _open_to(self._site, self._placement.placement_id, self._placement.node_id)
        except errors.ApiError as refusal:
            raise CutOff(refusal.message) from refusal

    async def _fail(self, refusal: errors.ArtifactRefused, tx: db.Tx) -> None:
        origin = system_origin(self._site.clock(), self._placement.correlation_id)
        error = TaskError(code=refusal.code, message=refusal.message)
        await service.record_result(tx, origin, self._placement.placement_id, TaskResult(status="failed", error=error))


async def _open_to(site: Site, placement_id: str, node_id: str) -> tuple[ArtifactPlacement, Artifact]:
    """All conditions of the placement are checked again: a key or the artifact may have been revoked since."""
    reader = site.database.reader
    placement = await store.PLACEMENTS.get(reader, placement_id)
    if placement is None or not rules.is_open_to(placement, node_id, site.clock()):
        raise errors.NotFound
    return placement, await service.deliverable(reader, placement)
