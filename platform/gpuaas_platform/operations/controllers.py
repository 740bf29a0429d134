"""App controllers: when each was last seen, and forget those that were not seen for long."""

import datetime
import functools

import msgspec
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.runtime import Controller
from gpuaas_contract.wire import PageQuery

from gpuaas_platform.call import Call, Site
from gpuaas_platform.kit import clock, db, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.kit.tables import Table

CONTROLLERS = Table(
    "controllers",
    Controller,
    "controller_id",
    project_id=lambda controller: controller.project_id,
    last_seen_at=lambda controller: clock.micros(controller.last_seen_at),
)
TOPIC = "controllers"
BATCH = 500
_SEEN_EVERY = datetime.timedelta(seconds=5)
"""Presence is written no more often than this for each controller, however often it reports."""


async def page(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> EncodedPage[Controller]:
    return await paging.encoded(reader, CONTROLLERS, call.query, "project_id = $1", call.path.project_id)


async def sight(
    reader: db.Reader, call: Call[ProjectPath], app_slug: str, holder: str, version: str = ""
) -> Controller | None:
    """Return the controller as it should be saved; None while the stored row is recent enough."""
    project_id = call.path.project_id
    controller_id = f"{project_id}/{app_slug}/{holder}"
    known = await CONTROLLERS.get(reader, controller_id)
    seen = Controller(
        controller_id=controller_id,
        project_id=project_id,
        app_slug=app_slug,
        holder=holder,
        actor_id=call.caller.actor_id,
        version=version or (known.version if known else ""),
        last_seen_at=call.now,
    )
    if known is None or call.now - known.last_seen_at >= _SEEN_EVERY:
        return seen
    unchanged = msgspec.structs.replace(seen, last_seen_at=known.last_seen_at) == known
    return None if unchanged else seen


async def put(tx: db.Tx, controller: Controller) -> None:
    await tx.run(
        """INSERT INTO controllers (controller_id, project_id, last_seen_at, document) VALUES ($1, $2, $3, $4)
           ON CONFLICT (controller_id) DO UPDATE
           SET last_seen_at = excluded.last_seen_at, document = excluded.document""",
        *CONTROLLERS.values(controller),
    )


async def note(tx: db.Tx, call: Call[ProjectPath], app_slug: str, holder: str) -> None:
    """Record inside a report that its controller is there."""
    controller = await sight(tx, call, app_slug, holder)
    if controller is not None:
        await put(tx, controller)


async def sweep(site: Site) -> None:
    """Forget a batch of controllers that were not seen for as long as the settings keep them."""
    seen_before = clock.micros(site.clock()) - site.settings.controllers_kept_s * 1_000_000
    row = await site.database.reader.one(
        "SELECT EXISTS (SELECT 1 FROM controllers WHERE last_seen_at < $1)", seen_before
    )
    if row is not None and row[0]:
        await site.database.write(functools.partial(_forget, seen_before=seen_before))


async def _forget(tx: db.Tx, *, seen_before: int) -> None:
    await tx.run(
        """DELETE FROM controllers WHERE controller_id IN (
               SELECT controller_id FROM controllers WHERE last_seen_at < $1 LIMIT $2)""",
        seen_before,
        BATCH,
    )
