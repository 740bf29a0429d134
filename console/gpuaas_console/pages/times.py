"""Choose how times are shown on all pages, in this browser: as ages, in UTC or as a local clock shows them."""

from starlette.responses import Response

from gpuaas_console import view, web
from gpuaas_console.web import Failure, Visit

STORED_S = 365 * 86400


async def choose(visit: Visit) -> Response:
    chosen = visit.form.text("times")
    if chosen not in view.TIMES:
        raise Failure(400, "Times cannot be shown in this way", "It is not one of those offered.", "Reload the page.")
    response = visit.go(web.local(visit.form.text("next", "/")))
    https = visit.request.app.state.settings.https
    response.set_cookie(web.TIMES_COOKIE, chosen, STORED_S, httponly=True, samesite="strict", secure=https)
    return response
