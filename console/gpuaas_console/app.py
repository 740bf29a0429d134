"""The application: its routes, the headers of every answer, and the pages of errors."""

import contextlib
from collections.abc import AsyncIterator
from importlib import resources

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuaas_console import view, web
from gpuaas_console.pages import (
    act,
    action,
    action_table,
    catalog,
    change,
    controller,
    deploy,
    home,
    instance,
    operation,
    records,
    sign_in,
    times,
    triage,
)
from gpuaas_console.sessions import Sessions
from gpuaas_console.settings import Settings
from gpuaas_console.web import EXPECTED, NO_STORE, Failure, Page, signed_in

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_STATIC = {
    "console.css": ("gpuaas_console", "static/console.css", "text/css"),
    "console.js": ("gpuaas_console", "static/console.js", "text/javascript"),
    "htmx.js": ("django_htmx", "static/django_htmx/htmx-2.min.js", "text/javascript"),
    "sse.js": ("django_htmx", "static/django_htmx/ext/hx-sse-2.min.js", "text/javascript"),
}

_PROJECT = "/p/{project}"
_INSTANCE = _PROJECT + "/instances/{instance}"
_OPERATION = _PROJECT + "/operations/{operation}"
_APP = _PROJECT + "/catalog/{app}/{version}"
PAGES: dict[str, tuple[str, Page]] = {
    "/": ("GET", home.show),
    "/stream": ("GET", home.stream),
    _INSTANCE: ("GET", instance.show),
    f"{_INSTANCE}/stream": ("GET", instance.stream),
    f"{_INSTANCE}/act": ("GET POST", act.show),
    f"{_INSTANCE}/actions/{{action}}": ("GET POST", action.show),
    f"{_INSTANCE}/readings/{{action}}": ("GET", action_table.show),
    _OPERATION: ("GET", operation.show),
    f"{_OPERATION}/statement.json": ("GET", operation.statement),
    f"{_OPERATION}/stream": ("GET", operation.stream),
    f"{_OPERATION}/exit/{{exit}}": ("GET POST", operation.take_exit),
    f"{_PROJECT}/catalog": ("GET", catalog.show),
    _APP: ("GET", catalog.app),
    f"{_APP}/deploy": ("GET POST", deploy.show),
    f"{_PROJECT}/change/{{change}}": ("GET POST", change.show),
    f"{_PROJECT}/controllers": ("GET", controller.show),
    f"{_PROJECT}/records": ("GET", records.index),
    f"{_PROJECT}/records/{{kind}}": ("GET", records.show),
    f"{_PROJECT}/triage": ("GET", triage.show),
    f"{_PROJECT}/policy": ("GET", triage.policy),
    "/sessions": ("GET POST", sign_in.sessions),
    "/times": ("POST", times.choose),
}


def make_app(settings: Settings) -> Starlette:
    routes = [Route(path, signed_in(page), methods=methods.split()) for path, (methods, page) in PAGES.items()]
    routes += [
        Route("/sign-in", sign_in.show, methods=["GET", "POST"]),
        Route("/sign-in/link/{code}", sign_in.link, methods=["GET", "POST"]),
        Route("/sign-in/provider", sign_in.provider, methods=["POST"]),
        Route("/signed-in", sign_in.provided, methods=["GET"]),
        Route("/sign-out", sign_in.out, methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
        Route("/healthz", _healthy, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=_lifespan,
        exception_handlers={**dict.fromkeys(EXPECTED, _failed), 404: _not_found, 405: _not_found, 500: _internal},
    )
    app.state.settings = settings
    app.state.sessions = Sessions(settings.server, settings.ca_file)
    app.add_middleware(_Headers)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    await app.state.sessions.close()


class _Headers:
    """Adds the security headers to every answer, also to errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)


async def _healthy(request: Request) -> Response:
    return Response("ok", media_type="text/plain")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    package, path, media_type = _STATIC[name]
    content = resources.files(package).joinpath(path).read_bytes()
    return Response(content, media_type=media_type, headers={"Cache-Control": "public, max-age=300"})


def _failed(request: Request, error: Exception) -> Response:
    failure = web.failure_of(error)
    name = "_failure.html" if request.headers.get("HX-Request") else "failure.html"
    session = getattr(request.state, "session", None)
    project = request.path_params.get("project", "")
    html = view.render(name, failure=failure, session=session, project=project, **web.surroundings(request))
    # htmx swaps only successful answers; the live part of a page shows the error in its place.
    status = 200 if request.headers.get("HX-Request") else failure.status
    return HTMLResponse(html, status, {**NO_STORE, "X-Failure": str(failure.status)})


def _not_found(request: Request, error: Exception) -> Response:
    return _plain(Failure(404, "Page not found", "There is no page at this address.", "Start from the home page."))


def _internal(request: Request, error: Exception) -> Response:
    why = "An error in the console; its log has the details."
    return _plain(Failure(500, "The console failed", why, "Reload the page."))


def _plain(failure: Failure) -> Response:
    html = view.render("failure.html", failure=failure, session=None, project="")
    # Starlette answers after an unexpected error outside of the middleware that adds these headers.
    return HTMLResponse(html, failure.status, {**SECURITY, **NO_STORE})
