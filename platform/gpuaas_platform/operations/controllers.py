"""App controllers: store when each was last seen and what it reports of itself, and delete those that were not seen for
a long time. The log is in a column of its own, so that lists do not read it."""

import datetime

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.controllers import Controller, ControllerLogLine, ControllerLogQuery, ControllerReport
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.protocol import controllers as rules
from gpuaas_contract.runtime import ClaimOperation
from gpuaas_contract.wire import Page, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.kit import clock, db, paging
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.kit.tables import Table

CONTROLLERS = Table(
    "controllers",
    Controller,
    "controller_id",
    project_id=lambda controller: controller.project_id,
    last_seen_at=lambda controller: clock.micros(controller.last_seen_at),
)
_SEEN_EVERY = datetime.timedelta(seconds=5)
"""Shortest interval between two writes of a controller's `last_seen_at`, even if it reports more often."""

_LINES = msgspec.json.Decoder(list[ControllerLogLine])

PER_APP_MAX = 200
"""Most controllers that are stored for an app of a project. A controller chooses its name and may change it each time;
it removes no controller of another app with that."""


async def page(reader: db.Reader, call: Call[ProjectPath, PageQuery]) -> EncodedPage[Controller]:
    return await paging.encoded(reader, CONTROLLERS, call.query, "project_id = $1", call.path.project_id)


async def log_page(reader: db.Reader, call: Call[ProjectPath, ControllerLogQuery]) -> Page[ControllerLogLine]:
    """Return the stored lines of a controller of the project."""
    rules.check_log_query(call.query.controller_id)
    sql = "SELECT log FROM controllers WHERE controller_id = $1 AND project_id = $2"
    row = await reader.one(sql, call.query.controller_id, call.path.project_id)
    if row is None:
        raise errors.NotFound(f"There is no controller {call.query.controller_id}.")
    lines = _LINES.decode(row[0]) if row[0] else []

    async def read(after: str, limit: int) -> list[ControllerLogLine]:
        return [line for line in lines if _place(line) > after][:limit]

    return await paging.page("controllers.log", call.query, read, _place)


def _place(line: ControllerLogLine) -> str:
    # As text of a fixed length: a caller can make a page token with a key that is not a number.
    return f"{line.number:020d}"


async def present(call: Call[ProjectPath], body: ClaimOperation) -> None:
    """Store that the controller claims work now, and its report if it is new. Nothing is written if the stored row is
    recent: polling causes no transactions."""
    seen = await sight(call.site.database.reader, call, body.app_slug, body.holder, body.controller_version)
    if body.report is not None or seen is not None:
        await call.site.database.write(lambda tx: _note_claim(tx, call, body))


async def _note_claim(tx: db.Tx, call: Call[ProjectPath], body: ClaimOperation) -> None:
    seen = await sight(tx, call, body.app_slug, body.holder, body.controller_version)
    if seen is not None:
        await put(tx, seen)
    if body.report is not None:
        await _report(tx, call, f"{call.path.project_id}/{body.app_slug}/{body.holder}", body.report)


async def _report(tx: db.Tx, call: Call[ProjectPath], controller_id: str, report: ControllerReport) -> None:
    known = await CONTROLLERS.get(tx, controller_id)
    if known is None or not rules.replaces(known.state, report, call.now):
        return
    await put(tx, msgspec.structs.replace(known, state=rules.state(report, call.now)))
    log = msgspec.json.encode(report.log).decode()
    await tx.run("UPDATE controllers SET log = $2 WHERE controller_id = $1", controller_id, log)


async def sight(
    reader: db.Reader, call: Call[ProjectPath], app_slug: str, holder: str, version: str = ""
) -> Controller | None:
    """Return the row of the controller that must be saved; None if the stored row is recent enough."""
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
        state=known.state if known else None,
    )
    if known is None or call.now - known.last_seen_at >= _SEEN_EVERY:
        return seen
    unchanged = msgspec.structs.replace(seen, last_seen_at=known.last_seen_at) == known
    return None if unchanged else seen


async def apps_of(reader: db.Reader, project_id: str, actor_id: str) -> set[str]:
    """Return the apps of the controllers that sign in as this account."""
    seen = await CONTROLLERS.find(reader, "project_id = $1", project_id)
    return {controller.app_slug for controller in seen if controller.actor_id == actor_id}


async def put(tx: db.Tx, controller: Controller) -> None:
    """Save the row. A new one replaces the one that was not seen for longest, if the app has as many as it may."""
    controller_id, project_id, *values = CONTROLLERS.values(controller)
    sql = "UPDATE controllers SET last_seen_at = $2, document = $3 WHERE controller_id = $1"
    if await tx.run(sql, controller_id, *values):
        return
    await CONTROLLERS.insert(tx, controller)
    sql = """DELETE FROM controllers WHERE controller_id IN (
             SELECT controller_id FROM controllers WHERE project_id = $1 AND substr(controller_id, 1, $2) = $3
             ORDER BY last_seen_at DESC, controller_id DESC LIMIT 1000 OFFSET $4)"""
    of_app = f"{project_id}/{controller.app_slug}/"
    await tx.run(sql, project_id, len(of_app), of_app, PER_APP_MAX)


async def note(tx: db.Tx, call: Call[ProjectPath], app_slug: str, holder: str) -> None:
    """Update `last_seen_at` of a controller, in the transaction of its report."""
    controller = await sight(tx, call, app_slug, holder)
    if controller is not None:
        await put(tx, controller)


async def _is_old(reader: db.Reader, seen_before: int) -> bool:
    return await reader.one("SELECT 1 FROM controllers WHERE last_seen_at < $1 LIMIT 1", seen_before) is not None


async def _forget(tx: db.Tx, seen_before: int, limit: int) -> None:
    sql = """DELETE FROM controllers WHERE controller_id IN (
             SELECT controller_id FROM controllers WHERE last_seen_at < $1 LIMIT $2)"""
    await tx.run(sql, seen_before, limit)


RETAINED = Retained("operations.controllers", lambda settings: settings.controllers_kept_s, _is_old, _forget)
