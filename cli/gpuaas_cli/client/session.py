"""A signed-in client for one command: it finds server, token and project, and closes when the command ends."""

import asyncio
import contextlib
import dataclasses
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import NotFound
from gpuaas_contract.identity import PROJECT_GET, PROJECT_LIST, Token
from gpuaas_contract.wire import PAGE_SIZE_MAX, Item, NoBody, Page
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client, Tagged

from gpuaas_cli import failures
from gpuaas_cli.client import home
from gpuaas_cli.flags import Flags

READ_S = 6.0
"""How long a read waits for a server that does not answer. A restart takes less time."""
CHANGE_S = 20.0

Result = TypeVar("Result")
Prove = Callable[[Client], Awaitable[Token]]
"""A function that signs in and returns a token. Module `sign_in` has the possible ones."""


class Session:
    def __init__(self, client: Client, flags: Flags, target: home.Target) -> None:
        self.client = client
        self.flags = flags
        self.target = target
        self._project = target.project

    async def project(self) -> str:
        """Return the project (name or id) of the flag, environment or context; else the only one that is visible."""
        if not self._project:
            projects = (await self.call(PROJECT_LIST, query={"page_size": 2})).items
            if not projects:
                raise failures.usage("You can see no project yet", "gpuaas project create NAME --org ORG")
            if len(projects) > 1:
                fix = "gpuaas project use NAME, or --project NAME"
                raise failures.usage("You can see several projects; name one", fix)
            self._project = projects[0].project_id
        return self._project

    async def call(
        self,
        endpoint: Endpoint[RequestBody, Answer],
        body: RequestBody | None = None,
        *,
        query: dict[str, Any] | None = None,
        dry_run: bool = False,
        if_match: str = "",
        timeout_s: float | None = None,
        **path: Any,
    ) -> Answer:
        """Call an endpoint. If the path needs a project and none is given, use the session's project."""
        if "{project_id}" in endpoint.path:
            path["project_id"] = path.get("project_id") or await self.project()
        timeout_s = timeout_s or (CHANGE_S if endpoint.mutates else READ_S)
        try:
            return await self.client.call(
                endpoint, body, query=query, dry_run=dry_run, if_match=if_match, timeout_s=timeout_s, **path
            )
        except NotFound as error:
            # The server sends the same error for a hidden project and for one that does not exist.
            if error.message == NotFound.title and "project_id" in path:
                is_the_project = endpoint.path == PROJECT_GET.path
                place = "" if is_the_project else f" in project {path['project_id']}"
                error.message = f"Not found{place}, or you have no access to it"
                error.fix = "gpuaas get projects"
            raise

    async def every(
        self, endpoint: Endpoint[NoBody, Page[Item]], *, query: dict[str, Any] | None = None, **path: Any
    ) -> list[Item]:
        """Return every item of a list, from all pages. Some lists have no pages."""
        return (await self.first(None, endpoint, query=query, **path))[0]

    async def first(
        self, limit: int | None, endpoint: Endpoint[NoBody, Page[Item]], *, query: dict[str, Any] | None, **path: Any
    ) -> tuple[list[Item], bool]:
        """Return the first items of a list, and whether there may be more. An empty page is not always the last."""
        items: list[Item] = []
        is_paged = "page_size" in endpoint.query.__struct_fields__
        token: str | None = ""
        while token is not None and (limit is None or len(items) < limit):
            size = PAGE_SIZE_MAX if limit is None else min(limit - len(items), PAGE_SIZE_MAX)
            paging = {"page_size": size, **({"page_token": token} if token else {})} if is_paged else {}
            page = await self.call(endpoint, query={**(query or {}), **paging}, **path)
            items += page.items
            token = getattr(page, "next_page_token", None)
        return items, token is not None

    async def read(self, endpoint: Endpoint[NoBody, Answer], **path: str) -> Tagged[Answer]:
        """Return a resource with its ETag, so that a later change can be refused if the resource changed since."""
        if "{project_id}" in endpoint.path:
            path["project_id"] = path.get("project_id") or await self.project()
        return await self.client.read(endpoint, **path)


@contextlib.asynccontextmanager
async def open_session(flags: Flags, environ: Mapping[str, str] = os.environ) -> AsyncIterator[Session]:
    target = home.resolve(flags, environ, home.load(home.folder(environ)))
    if not target.server:
        raise failures.usage(
            "No server is configured: sign in first", "gpuaas login --server URL, or gpuaas up for a local cloud"
        )
    async with make_client(target) as client:
        yield Session(client, flags, target)


def make_client(target: home.Target) -> Client:
    auth = BearerToken(target.token) if target.token else NoAuth()
    try:
        return Client(target.server, auth, ca_file=Path(target.ca_file) if target.ca_file else None)
    except OSError as error:
        reason = " holds no certificate" if isinstance(error, ssl.SSLError) else f": {error.strerror}"
        raise failures.usage(f"--ca-file {target.ca_file}{reason}", "gpuaas --help") from error
    except ValueError as error:
        raise failures.usage(str(error), "gpuaas login --server http://127.0.0.1:7070") from error


def run(flags: Flags, work: Callable[[Session], Coroutine[Any, Any, Result]]) -> Result:
    async def whole() -> Result:
        async with open_session(flags) as session:
            return await work(session)

    return asyncio.run(whole())


async def sign_in(target: home.Target, prove: Prove) -> home.Context:
    """Sign in and return a context with a new token. If the caller can see only one project, choose it."""
    async with make_client(target) as client:
        token = await prove(client)
    signed_in = dataclasses.replace(target, token=token.access_token)
    async with make_client(signed_in) as client:
        projects = (await client.call(PROJECT_LIST, timeout_s=READ_S)).items
    project_id = projects[0].project_id if len(projects) == 1 else ""
    return home.Context(server=target.server, token=token.access_token, project_id=project_id, ca_file=target.ca_file)
