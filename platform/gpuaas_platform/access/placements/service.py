"""Place an artifact on a machine or remove it, for a controller that has claimed an operation there.

The node fetches the content with its own token, while the placement is queued for it. So the task contains no
secret.
"""

import datetime
import functools
from collections.abc import Mapping, Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import ArtifactPlacementChanged
from gpuaas_contract.lifecycles import PlacementState
from gpuaas_contract.node import FETCH_TASK, UNPLACE_TASK, TaskError, TaskResult
from gpuaas_contract.paths import PlacedContentPath, PlacementPath, ProjectArtifactPath
from gpuaas_contract.placements import ArtifactPlacement, PlaceArtifact, PlacementQuery, UnplaceArtifact
from gpuaas_contract.wire import NoBody

from gpuaas_platform.access.machines import rules as machine_rules
from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.access.placements import rules, store
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.facts import ReleaseStarted
from gpuaas_platform.artifacts import content
from gpuaas_platform.artifacts import service as artifacts
from gpuaas_platform.artifacts.blobs import Reading, WrongContent
from gpuaas_platform.call import Call, CutOff, Origin, Site, Source, system_origin
from gpuaas_platform.kit import db, ids, structs
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.nodes.facts import TaskEnded
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.record import service as record

reactions = Reactions()
RETAINED = Retained("access.placements", lambda _: 86_400, store.is_old, store.forget)
"""Placements are deleted one day after they expired, unless the artifact is still on its machine."""


async def place(tx: db.Tx, call: Call[ProjectArtifactPath], body: PlaceArtifact) -> ArtifactPlacement:
    """Queue a placement. The artifact must be allowed for a delivery, and the caller for a machine grant."""
    project, artifact = call.in_project(), await artifacts.visible(tx, call)
    allocation = await allocations.in_project(tx, project.project_id, body.allocation_id)
    await grants.check_claim(tx, call, allocation, body.operation_id, body.epoch)
    machine_rules.check_open(allocation)
    await artifacts.check_deliverable(tx, project, artifact)
    fetch_s_max = rules.fetch_s_max(artifact.size_bytes, call.site.settings.task_ttl_s)
    draft = _draft(call, artifact, allocation, body.operation_id, state="queued", answer_s_max=fetch_s_max)
    placement = msgspec.structs.replace(draft, mode=body.mode)
    fetching = {"size_bytes": placement.size_bytes, "mode": placement.mode}
    await _begin(tx, call, placement, FETCH_TASK, fetching | {"user": allocation.username_on_node})
    return placement


async def unplace(tx: db.Tx, call: Call[ProjectArtifactPath], body: UnplaceArtifact) -> ArtifactPlacement:
    """Queue the removal of an artifact. Whether it may still be delivered does not matter: it must be possible to
    remove an artifact that was revoked."""
    project, artifact = call.in_project(), await artifacts.visible(tx, call)
    allocation = await allocations.in_project(tx, project.project_id, body.allocation_id)
    await grants.check_claim(tx, call, allocation, body.operation_id, body.epoch)
    machine_rules.check_open(allocation)
    answer_s_max = call.site.settings.task_ttl_s
    draft = _draft(call, artifact, allocation, body.operation_id, state="removing", answer_s_max=answer_s_max)
    placed = await _placed(tx, draft)
    removal = rules.removing(placed[-1], draft.expires_at) if placed else draft
    await _begin(tx, call, removal, UNPLACE_TASK, {"user": allocation.username_on_node})
    return removal


async def wait_for(call: Call[PlacementPath, PlacementQuery], _: NoBody) -> ArtifactPlacement:
    """Return the placement that the path names when it has ended or the wait time is over."""
    path = call.path

    async def look() -> ArtifactPlacement:
        placement = await store.PLACEMENTS.get(call.site.database.reader, path.placement_id)
        if placement is None or (placement.project_id, placement.artifact_id) != (path.project_id, path.artifact_id):
            raise errors.NotFound
        return placement

    topic, wait_s = _topic(path.placement_id), call.query.wait_s
    return await call.poll(topic, wait_s, look, rules.has_ended)


async def open_content(call: Call[PlacedContentPath]) -> Source:
    """Open the content for the node that the placement is queued for. For other callers and times it is not found."""
    placement, artifact = await _open_to(call.site, call.path.placement_id, call.caller.actor_id)
    return _Placing(call.site, placement, await content.opened(call.site, artifact))


async def record_result(tx: db.Tx, origin: Origin, placement_id: str, result: TaskResult) -> None:
    """Record the result of the node's task. A placement that has already ended does not change. If the artifact was
    revoked during the transfer, the placement fails; the release of the machine deletes the content."""
    placement = await store.PLACEMENTS.get(tx, placement_id)
    if placement is None or placement.state != "queued":
        return
    outcome = rules.with_result(placement, result, origin.now)
    try:
        if outcome.state == "placed":
            await _deliverable(tx, placement)
    except errors.ApiError as refusal:
        outcome = rules.failed(placement, TaskError(code=refusal.code, message=refusal.message), origin.now)
    await _save(tx, origin, outcome)


async def on_allocations(reader: db.Reader, allocation_ids: Sequence[str]) -> list[ArtifactPlacement]:
    """Return the artifacts that were placed on these allocations, and those that were removed from them since."""
    if not allocation_ids:
        return []
    where = (
        f"state IN ('placed', 'removed') AND allocation_id IN ({db.marks(len(allocation_ids))}) ORDER BY placement_id"
    )
    return await store.PLACEMENTS.find(reader, where, *allocation_ids)


@reactions.to(TaskEnded, FETCH_TASK)
async def fetch_ended(tx: db.Tx, ended: TaskEnded) -> None:
    await record_result(tx, ended.origin, ended.subject_id, ended.result)


@reactions.to(TaskEnded, UNPLACE_TASK)
async def removal_ended(tx: db.Tx, ended: TaskEnded) -> None:
    """Record the result of a removal. The same content is one file on a machine, so every placement of it ends."""
    removal = await store.PLACEMENTS.get(tx, ended.subject_id)
    if removal is None or removal.state != "removing":
        return
    outcome = rules.with_removal(removal, ended.result, ended.origin.now)
    await _save(tx, ended.origin, outcome)
    if outcome.state == "removed":
        # A node does one task after another, so what was requested after the removal is not placed yet.
        for placement in await _placed(tx, removal):
            await _save(tx, ended.origin, rules.removed(placement, ended.origin.now))


@reactions.to(ReleaseStarted)
async def release_started(tx: db.Tx, started: ReleaseStarted) -> None:
    """End placements and removals in progress and withdraw their tasks: a fetch must not run after the machine was
    cleaned. The release removes what was placed."""
    allocation, origin = started.allocation, started.origin
    error = TaskError(
        code="allocation_released", message="The artifact was not placed, because the machine is being released."
    )
    where = "state IN ('queued', 'removing', 'placed') AND allocation_id = $1"
    for placement in await store.PLACEMENTS.find(tx, where, allocation.allocation_id):
        if placement.state == "queued":
            await _save(tx, origin, rules.failed(placement, error, origin.now))
        else:
            await _save(tx, origin, rules.removed(placement, origin.now))
        if placement.state != "placed":
            await tasks.withdraw(tx, allocation.node_id, placement.placement_id, origin.now)


async def _placed(reader: db.Reader, like: ArtifactPlacement) -> list[ArtifactPlacement]:
    """Return the placements of the same content on the same machine, oldest first."""
    where = "state = 'placed' AND allocation_id = $1 ORDER BY placement_id"
    placed = await store.PLACEMENTS.find(reader, where, like.allocation_id)
    return [placement for placement in placed if placement.digest == like.digest]


async def _deliverable(reader: db.Reader, placement: ArtifactPlacement) -> Artifact:
    artifact = await artifacts.still_deliverable(reader, placement.project_id, placement.artifact_id)
    if artifact is None:
        raise errors.NotFound("The artifact or its project no longer exists.")
    return artifact


def _draft(
    call: Call,
    artifact: Artifact,
    allocation: Allocation,
    operation_id: str,
    *,
    state: PlacementState,
    answer_s_max: int,
) -> ArtifactPlacement:
    return ArtifactPlacement(
        placement_id=ids.new("plc"),
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        digest=artifact.digest,
        size_bytes=artifact.size_bytes,
        mode="0644",
        allocation_id=allocation.allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        operation_id=operation_id,
        actor_id=call.caller.actor_id,
        state=state,
        correlation_id=call.origin.correlation_id,
        created_at=call.now,
        expires_at=call.now + datetime.timedelta(seconds=answer_s_max),
    )


async def _begin(tx: db.Tx, call: Call, placement: ArtifactPlacement, task: str, more: Mapping[str, str | int]) -> None:
    known = await store.PLACEMENTS.get(tx, placement.placement_id)
    await (store.PLACEMENTS.save if known else store.PLACEMENTS.insert)(tx, placement)
    call.details.update(digest=placement.digest, node_id=placement.node_id, operation_id=placement.operation_id)
    await _announce(tx, call.origin, placement)
    params = {
        "placement_id": placement.placement_id,
        "allocation_id": placement.allocation_id,
        "digest": placement.digest,
        **more,
    }
    ttl_s = int((placement.expires_at - call.now).total_seconds())
    about = (placement.node_id, task, placement.placement_id)
    await tasks.queue(tx, call.site, call.origin, *about, params, project_id=placement.project_id, ttl_s=ttl_s)


async def _save(tx: db.Tx, origin: Origin, placement: ArtifactPlacement) -> None:
    await store.PLACEMENTS.save(tx, placement)
    await _announce(tx, origin, placement)
    tx.wake(_topic(placement.placement_id))


async def _announce(tx: db.Tx, origin: Origin, placement: ArtifactPlacement) -> None:
    code, cause = placement.error.code if placement.error else "", placement.correlation_id
    payload = structs.pick(ArtifactPlacementChanged, placement, code=code)
    await record.emit(tx, origin, "artifacts.placement.changed", payload, placement, correlation_id=cause)


def _topic(placement_id: str) -> str:
    """Return the topic that is woken when the placement has ended."""
    return f"placement:{placement_id}"


class _Placing:
    """The content of a placement. During the transfer the placement and its node are checked again at intervals. If the
    stored file is wrong, the placement fails here, because the node sees only a broken connection."""

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
        await record_result(tx, origin, self._placement.placement_id, TaskResult(status="failed", error=error))


async def _open_to(site: Site, placement_id: str, node_id: str) -> tuple[ArtifactPlacement, Artifact]:
    """Check all conditions of the placement again, because a trust key or the artifact may have been revoked since."""
    reader = site.database.reader
    placement = await store.PLACEMENTS.get(reader, placement_id)
    if placement is None or not rules.is_open_to(placement, node_id, site.clock()):
        raise errors.NotFound
    return placement, await _deliverable(reader, placement)
