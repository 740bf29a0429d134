"""Sign in with a password, a one-time link or the identity provider; sign out; list and end sessions."""

import secrets
from typing import Any

from gpuaas_cli import output
from gpuaas_contract import errors
from gpuaas_contract.identity import LOGIN, Login
from gpuaas_contract.sessions import OIDC_AUTHORIZE, OIDC_EXCHANGE, SESSION_END, SESSION_LIST, OidcExchange
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gpuaas_console import commands, links, view, web
from gpuaas_console.sessions import CALL_S, Sessions
from gpuaas_console.settings import Settings
from gpuaas_console.web import NO_STORE, Failure, Visit

_FORM = "gpuaas-console-form"
"""Cookie with the token of a form that is sent before the sign-in."""
_STATE = "gpuaas-console-state"
"""Cookie with the state of a sign-in at the identity provider."""


async def show(request: Request) -> Response:
    target = web.local(request.query_params.get("next", "/"))
    if request.method == "GET":
        return _page(request, "sign_in.html", next=target, name="", error="")
    form = await _checked_form(request)
    name, target = form.text("name"), web.local(form.text("next", "/"))
    try:
        async with _sessions(request).anonymous() as client:
            login = Login(name=name, password=form.get("password", [""])[0])
            token = await client.call(LOGIN, login, timeout_s=CALL_S)
        return await _started(request, token.access_token, target)
    except (errors.CredentialsInvalid, errors.TooManyAttempts, errors.ValidationFailed) as error:
        text = f"{error.message}. {error.fix}"
        return _page(request, "sign_in.html", status=error.status, next=target, name=name, error=text)


async def link(request: Request) -> Response:
    """Show a button first: programs that open addresses in advance must not use the link up."""
    code = str(request.path_params["code"])
    if request.method == "GET":
        return _page(request, "sign_in_step.html", heading="Sign in", text="This link works once.", url="")
    await _checked_form(request)
    folder = _settings(request).links
    token = links.take(folder, code, output.now()) if folder else ""
    if not token:
        raise Failure(
            410,
            "This sign-in link does not work any more",
            "A link works once and for one hour.",
            "gpuaas up prints a new one; or sign in with your password.",
        )
    return await _started(request, token, "/", borrowed=True)


async def provider(request: Request) -> Response:
    """Send the browser to the identity provider."""
    await _checked_form(request)
    async with _sessions(request).anonymous() as client:
        start = await client.call(OIDC_AUTHORIZE, timeout_s=CALL_S)
    # A page with a link: the policy for forms does not allow a redirect to another site.
    text, url = "You sign in at another site, which sends you back here.", start.authorization_url
    response = _page(request, "sign_in_step.html", heading="Identity provider", text=text, url=url)
    # The provider sends the browser here from its own site, and a strict cookie would not come along.
    response.set_cookie(_STATE, start.state, httponly=True, samesite="lax", secure=_settings(request).https)
    # For the same reason the cookie of an earlier session does not come along: the session stores what will end it.
    name = web.cookie_name(_settings(request))
    if session := _sessions(request).get(request.cookies.get(name, ""), output.now()):
        session.ends_with = start.state
    return response


async def provided(request: Request) -> Response:
    """Finish a sign-in at the identity provider."""
    code, state = request.query_params.get("code", ""), request.query_params.get("state", "")
    expected = request.cookies.get(_STATE, "")
    if not expected or not secrets.compare_digest(expected.encode(), state.encode()):
        raise Failure(403, "This sign-in was not started here", "Its state does not match.", "Sign in again.")
    async with _sessions(request).anonymous() as client:
        token = await client.call(OIDC_EXCHANGE, OidcExchange(code=code, state=state), timeout_s=CALL_S)
    session_id = await _replaced(request, token.access_token)
    await _sessions(request).end_with(state)
    # A page and no redirect: the browser sends a strict cookie only from a page of this site.
    response = _page(request, "sign_in_step.html", heading="Signed in", text="", url="/")
    _set(response, request, session_id)
    response.delete_cookie(_STATE)
    return response


async def out(request: Request) -> Response:
    form = await web.read_form(request)
    name = web.cookie_name(_settings(request))
    session_id = request.cookies.get(name, "")
    session = _sessions(request).get(session_id, output.now())
    if session and not secrets.compare_digest(form.text("csrf").encode(), session.csrf.encode()):
        raise web.forged()
    await _sessions(request).end(session_id)
    # Also removes what the browser stored, so that the Back button shows nothing.
    response = RedirectResponse("/sign-in", 303, {**NO_STORE, "Clear-Site-Data": '"cache"'})
    response.delete_cookie(name, path="/", secure=_settings(request).https, httponly=True, samesite="strict")
    return response


async def sessions(visit: Visit) -> Response:
    """List the person's sessions at the platform, and end one."""
    calls = visit.calls()
    if visit.request.method == "POST":
        await calls.call(SESSION_END, session_id=visit.form.text("session_id"))
        return visit.go("/sessions")
    rows = sorted(await calls.every(SESSION_LIST), key=lambda row: row.created_at, reverse=True)
    server = visit.session.client.server
    curls = {row.session_id: commands.curl(server, SESSION_END, None, session_id=row.session_id) for row in rows}
    return visit.page("sessions.html", rows=rows, curls=curls)


async def _started(request: Request, token: str, target: str, *, borrowed: bool = False) -> Response:
    session_id = await _replaced(request, token, borrowed=borrowed)
    response = RedirectResponse(target, 303, NO_STORE)
    _set(response, request, session_id)
    return response


async def _replaced(request: Request, token: str, *, borrowed: bool = False) -> str:
    """Start a session with a new id and end the one that the browser had. Return the new id."""
    old = request.cookies.get(web.cookie_name(_settings(request)), "")
    session_id = await _sessions(request).start(token, output.now(), borrowed=borrowed)
    if old:
        await _sessions(request).end(old)
    return session_id


def _set(response: Response, request: Request, session_id: str) -> None:
    settings = _settings(request)
    response.set_cookie(
        web.cookie_name(settings), session_id, httponly=True, samesite="strict", secure=settings.https, path="/"
    )
    response.delete_cookie(_FORM)


async def _checked_form(request: Request) -> web.Form:
    """Return a form that is sent before the sign-in; its token must be the one in the cookie."""
    form, expected = await web.read_form(request), request.cookies.get(_FORM, "")
    if not expected or not secrets.compare_digest(form.text("csrf").encode(), expected.encode()):
        raise web.forged()
    return form


def _page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    csrf = request.cookies.get(_FORM) or secrets.token_urlsafe(32)
    html = view.render(template, csrf=csrf, session=None, project="", **values)
    response = HTMLResponse(html, status, NO_STORE)
    response.set_cookie(_FORM, csrf, httponly=True, samesite="strict", secure=_settings(request).https, path="/")
    return response


def _sessions(request: Request) -> Sessions:
    result: Sessions = request.app.state.sessions
    return result


def _settings(request: Request) -> Settings:
    result: Settings = request.app.state.settings
    return result
