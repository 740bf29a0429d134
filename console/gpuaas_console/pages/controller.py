"""The page of a controller: what fails in it, since when, and the newest lines of its log."""

from gpuaas_cli import output
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG
from starlette.responses import Response

from gpuaas_console.web import Failure, Visit


async def show(visit: Visit) -> Response:
    """The id is a query parameter: a controller chooses its name, and slashes are allowed in it."""
    controller_id = visit.query.text("controller_id")
    known = await visit.calls().every(CONTROLLER_LIST)
    controller = next((item for item in known if item.controller_id == controller_id), None)
    if controller is None:
        raise Failure(404, "This controller does not exist", "It was not seen for a long time.", "Open the list.")
    log = await visit.calls().every(CONTROLLER_LOG, query={"controller_id": controller_id})
    await visit.learn_names()
    return visit.page("controller.html", controller=controller, log=log, read_at=output.now())
