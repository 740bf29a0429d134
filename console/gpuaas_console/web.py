"""One request of a signed-in person: the session behind its cookie, its form, and the answers that pages return."""

import asyncio
import datetime
import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs

from gpuaas_cli import failures
from gpuaas_cli.client import home
from gpuaas_cli.client.session import Session as Calls
from gpuaas_cli.flags import Flags
from gpuaas_contract import errors
from gpuaas_contract.bindings import PROJECT_BINDING_LIST
from gpuaas_contract.catalog import PROJECT_APP_GET, PROJECT_APP_LIST, AppVersion, Manifest
from gpuaas_contract.endpoint import AnyEndpoint, Endpoint
from gpuaas_contract.identity import PROJECT_GET, SERVICE_ACCOUNT_LIST, Project
from gpuaas_contract.instances import Instance
from gpuaas_contract.org_accounts import ACCEPTED_LIST
from gpuaas_contract.policy import CAN_I, CanI
from gpuaas_contract.wire import NoBody
from gpuaas_contract.wire import Page as ListPage
from gpuaas_sdk.outcomes import NoAnswer, OutcomeUnknown
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from gpuaas_console import live, view
from gpuaas_console.sessions import Session, Sessions
from gpuaas_console.settings import Settings

FORM_BYTES_MAX = 256 * 1024
FORM_FIELDS_MAX = 5000
REMEMBER_S = 30.0
STREAMS_PER_PERSON_MAX = 50
"""An open page has one. Each costs a connection, which other people need, too."""
ROWS_MAX = 50
"""Rows of a table of instances or members: the cost of a page does not depend on how many there are."""
NAMES_MAX = 500
"""People and programs of a project whose names are read; others are shown by their id."""
TIMES_COOKIE = "gpuaas-console-times"
NO_STORE = {"Cache-Control": "no-store"}
SEND_S = 60.0
"""A preview waits up to ten seconds for the app's controller; a passphrase takes long on a busy host."""
Item = TypeVar("Item")
RequestBody = TypeVar("RequestBody")
Result = TypeVar("Result")


class Form(dict[str, list[str]]):
    """The fields of a form or a query; each may have several values."""

    def text(self, name: str, otherwise: str = "") -> str:
        values = self.get(name)
        return values[0].strip() if values else otherwise

    def every(self, name: str) -> list[str]:
        return [value for value in self.get(name, []) if value]


@dataclass(frozen=True)
class Outcome(Generic[Item]):
    """What a check or a request of a form gave."""

    answer: Item | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    """Text by field; the empty name is the form as a whole."""
    status: int = 200


class Visit:
    """One request of a signed-in person."""

    def __init__(self, request: Request, session: Session, form: Form) -> None:
        self.request = request
        self.session = session
        self.form = form
        self.query = Form(parse_qs(request.url.query, keep_blank_values=True))
        self.project = str(request.path_params.get("project", ""))

    @property
    def is_fragment(self) -> bool:
        """Whether the open page asks only for its live part."""
        return self.request.headers.get("HX-Request") == "true"

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def calls(self, project: str = "") -> Calls:
        """Return the functions that call the platform as this person, in a project."""
        client = self.session.client
        return Calls(client, Flags(), home.Target("", client.server, project=project or self.project))

    async def read(self, endpoint: Endpoint[NoBody, Item, Any, Any], *, project: str = "", **path: Any) -> Item | None:
        """Return what the person may read; else None."""
        return await or_none(self.calls(project).call(endpoint, **path))

    async def attempt(
        self, endpoint: Endpoint[RequestBody, Item, Any, Any], body: RequestBody, *, is_check: bool, **options: Any
    ) -> Outcome[Item]:
        """Send the request of a form, or check it. The form has a key, so that sending it twice makes one change."""
        options |= {"dry_run": is_check, "idempotency_key": None if is_check else self.form.text("key")}
        try:
            answer = await self.session.client.call(endpoint, body, timeout_s=SEND_S, **options)
        except errors.ApiError as error:
            return Outcome(None, {field_of(error): refusal(error)}, error.status)
        return Outcome(answer)

    async def one_page(
        self,
        endpoint: Endpoint[NoBody, ListPage[Item]],
        query: dict[str, Any],
        *,
        project: str = "",
        rows_max: int = ROWS_MAX,
        **path: Any,
    ) -> tuple[list[Item], str]:
        """Return the page of a list that the address names with `page`, and the token of the next one; empty: none."""
        calls, token = self.calls(project), self.query.text("page") or self.form.text("page")
        asked = {**query, "page_size": rows_max, **({"page_token": token} if token else {})}
        answer = await calls.call(endpoint, query={key: value for key, value in asked.items() if value != ""}, **path)
        return answer.items, answer.next_page_token or ""

    async def manifest(self, instance: Instance) -> Manifest | None:
        """Return the manifest of the instance's version; none if the project may not read it any more."""

        async def read() -> Manifest | None:
            path: dict[str, Any] = {"app_slug": instance.app_slug, "version": instance.app_version}
            row = await self.read(PROJECT_APP_GET, project=instance.project_id, **path)
            return row.manifest if row else None

        return await self.remember(read, "manifest", instance.project_id, instance.app_slug, instance.app_version)

    async def versions(self, app_slug: str) -> list[AppVersion]:
        """Return the versions of an app that the project may deploy, newest first."""
        rows = [item for item in await self.calls().every(PROJECT_APP_LIST) if item.app_slug == app_slug]
        return sorted(rows, key=lambda item: item.created_at, reverse=True)

    async def may(self, permissions: Iterable[str], project: str = "") -> dict[str, str]:
        """Return why the person may not use each permission in a project; empty text if it is allowed."""
        keys, place = sorted(set(permissions)), project or self.project
        answers = [self.remember(functools.partial(self._why_not, key, place), "may", place, key) for key in keys]
        return dict(zip(keys, await asyncio.gather(*answers), strict=True))

    async def why_not(self, endpoint: AnyEndpoint) -> str:
        """Return why the person may not use an endpoint, of this project or of the platform; empty: it is allowed."""
        org = await self.org() if "{org_id}" in endpoint.path else ""
        place, key = self.project if "{project_id}" in endpoint.path else "", endpoint.permission
        return await self.remember(functools.partial(self._why_not, key, place, org), "may", org or place, key)

    async def here(self) -> Project:
        return await self.remember(lambda: self.calls().call(PROJECT_GET), "project", self.project)

    async def org(self) -> str:
        """Return the id of the project's organisation."""
        return (await self.here()).org_id

    async def learn_project(self) -> None:
        """Read how the project is called: every page shows it. Pages of no project lead to the last one that exists."""
        if self.project and self.project not in self.session.names and (project := await or_none(self.here())):
            self.session.names[self.project] = project.name
        if self.project in self.session.names:
            self.session.last_project = self.project

    async def _why_not(self, permission: str, project: str, org: str = "") -> str:
        answer = await self.calls().call(CAN_I, CanI(permission=permission, project_id=project, org_id=org))
        return "" if answer.allowed else answer.explanation

    async def learn_names(self) -> None:
        """Read how the project's people and programs are called, if the person may: pages show no ids then."""

        async def read() -> dict[str, str]:
            calls = self.calls()
            accounts, accepted, bindings = await asyncio.gather(
                or_none(calls.first(NAMES_MAX, SERVICE_ACCOUNT_LIST, query=None)),
                or_none(calls.first(NAMES_MAX, ACCEPTED_LIST, query=None)),
                or_none(calls.first(NAMES_MAX, PROJECT_BINDING_LIST, query=None)),
            )
            programs = [*(accounts[0] if accounts else ()), *(accepted[0] if accepted else ())]
            names = {item.service_account_id: f"{item.name} (service account)" for item in programs}
            names |= {item.user_id: item.user_name for item in bindings[0]} if bindings else {}
            return {self.session.me.actor_id: self.session.me.name} | names

        self.session.names |= await self.remember(read, "names", self.project)

    async def remember(self, read: Callable[[], Awaitable[Result]], *key: str, for_s: float = REMEMBER_S) -> Result:
        now = datetime.datetime.now(datetime.UTC)
        known = self.session.remembered.get(key)
        if known is None or (now - known[0]).total_seconds() > for_s:
            known = (now, await read())
            self.session.remembered[key] = known
        result: Result = known[1]
        return result

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page, or only its live part: that of `x.html` is `_x.html`."""
        name = f"_{template}" if self.is_fragment and template in view.LIVE else template
        common: dict[str, Any] = {"session": self.session, "project": self.project, "visit": self}
        # htmx shows only successful answers. A refused check must not leave the page waiting.
        return HTMLResponse(
            view.render(name, **common, **surroundings(self.request), **values),
            200 if self.is_fragment else status,
            NO_STORE,
        )

    def stream(self, projects: Sequence[str], concerns: live.Concerns) -> Response:
        """Return the news of projects for an open page. A person can have so many pages open, in all sessions."""
        sessions: Sessions = self.request.app.state.sessions
        streams, person = sessions.streams, self.session.me.actor_id
        if streams[person] >= STREAMS_PER_PERSON_MAX:
            text = f"They are more than {STREAMS_PER_PERSON_MAX}, in all browsers together."
            raise Failure(429, "You have too many open pages", text, "Close some of them.")

        async def counted() -> AsyncIterator[bytes]:
            if streams[person] >= STREAMS_PER_PERSON_MAX:  # others began since the check; the browser tries again
                return
            streams[person] += 1
            try:
                followers = [self.session.follower(project) for project in projects]
                async for message in live.stream(followers, concerns):
                    yield message
            finally:
                streams[person] -= 1

        return StreamingResponse(counted(), media_type="text/event-stream", headers=NO_STORE)

    def go(self, path: str) -> Response:
        return RedirectResponse(path, 303, NO_STORE)


def surroundings(request: Request) -> dict[str, str]:
    """Return what every page needs of its request: its path, its address, and how the person wants times to be shown.
    The answer of a form has no address: it would be empty after a reload."""
    address = f"{request.url.path}?{request.url.query}".removesuffix("?") if request.method == "GET" else ""
    times = request.cookies.get(TIMES_COOKIE, "")
    return {"here": request.url.path, "address_here": address, "times": times if times in view.TIMES else "relative"}


async def or_none(read: Awaitable[Result]) -> Result | None:
    """Return None for what the person may not read: the page shows that it is missing."""
    try:
        return await read
    except (errors.NotFound, errors.PermissionDenied):
        return None


Page = Callable[[Visit], Awaitable[Response]]


class Failure(Exception):
    """A page that cannot be shown: what happened, why, and the next step."""

    def __init__(self, status: int, title: str, message: str, fix: str, correlation_id: str = "") -> None:
        super().__init__(message)
        self.status, self.title, self.message, self.fix = status, title, message, fix
        self.correlation_id = correlation_id


def failure_of(error: Exception) -> Failure:
    """Return what a page shows about an expected error. Every other one is raised again."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, errors.ApiError):
        return Failure(error.status, error.title, error.message, error.fix, error.correlation_id)
    if isinstance(error, failures.Failure):
        return Failure(409, "This is not possible now", error.message, error.fix)
    if isinstance(error, OutcomeUnknown):
        return Failure(504, "The outcome is unknown", error.message, "Reload the page: it makes no second change.")
    if isinstance(error, NoAnswer):
        return Failure(504, "The platform does not answer", error.message, error.fix or "Reload the page later.")
    raise error


def field_of(error: errors.ApiError) -> str:
    """Return the name of the input that an error is about; empty: the form as a whole."""
    path = str(error.details.get("field", ""))
    return path.removeprefix("inputs").lstrip("./").replace("[", ".").replace("/", ".").partition(".")[0]


def refusal(error: errors.ApiError) -> str:
    """Return why the platform refused a request, and the fix, to show in the form. Other errors are raised again."""
    if error.status >= 500 or error.status == 401:
        raise error
    if error.status == 412:
        return "This was changed after you opened the form. Open it again, and repeat your change."
    return f"{error.message} {error.fix}".strip()


EXPECTED = (Failure, errors.ApiError, failures.Failure, NoAnswer)
"""Errors with a page of their own. No page catches them only to show them."""
SIGN_IN_AGAIN = (errors.TokenMissing, errors.TokenInvalid, errors.TokenExpired)


def cookie_name(settings: Settings) -> str:
    return "__Host-gpuaas-console" if settings.https else "gpuaas-console"


def signed_in(page: Page) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that calls the page for signed-in people, with a checked form, and sends others to sign in."""

    async def route(request: Request) -> Response:
        sessions: Sessions = request.app.state.sessions
        session_id = request.cookies.get(cookie_name(request.app.state.settings), "")
        session = sessions.get(session_id, datetime.datetime.now(datetime.UTC))
        if session is None:
            return to_sign_in(request)
        request.state.session = session  # a page about a failure has the same navigation
        form = Form()
        if request.method == "POST":
            form = await read_form(request)
            if not secrets.compare_digest(form.text("csrf").encode(), session.csrf.encode()):
                raise forged()
        try:
            visit = Visit(request, session, form)
            await visit.learn_project()
            return await page(visit)
        except SIGN_IN_AGAIN:
            await sessions.end(session_id)
            return to_sign_in(request)

    return route


def forged() -> Failure:
    return Failure(
        403,
        "The form is not valid",
        "It was not made by this console for your present session.",
        "Go back, reload the page and send the form again.",
    )


async def read_form(request: Request) -> Form:
    check_origin(request)
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > FORM_BYTES_MAX:
            raise too_large("It has more than 256 KiB.")
    if content.count(b"&") >= FORM_FIELDS_MAX:
        raise too_large(f"It has more than {FORM_FIELDS_MAX} fields.")
    return parsed(content.decode("utf-8", "replace"))


def parsed(content: str) -> Form:
    """Return the fields of a form. Browsers send each line break as CR LF; people wrote LF, and scripts need it."""
    fields = parse_qs(content, keep_blank_values=True)
    return Form({name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()})


def too_large(why: str) -> Failure:
    return Failure(413, "The form is too large", why, "Use the command line for it.")


def check_origin(request: Request) -> None:
    """Refuse forms of other sites. Browsers send Origin with every POST; clients without it need the form's token."""
    origin = request.headers.get("origin", "")
    if origin and origin.partition("://")[2] != request.headers.get("host", ""):
        raise forged()


def to_sign_in(request: Request) -> Response:
    where = "" if request.headers.get("HX-Request") else surroundings(request)["address_here"]
    target = view.link("sign-in", next="" if where == "/" else where)
    if request.headers.get("HX-Request"):
        return Response(status_code=204, headers={"HX-Redirect": target, **NO_STORE})
    return RedirectResponse(target, 303, NO_STORE)


def local(path: str) -> str:
    """Return a path of this console; another address becomes the home page."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if is_local else "/"
