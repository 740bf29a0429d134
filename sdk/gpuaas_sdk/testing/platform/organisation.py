"""Several fake projects behind one server, with one service account of their organisation. Each project accepts the
account or not, and each is a `FakePlatform` of its own, so nothing of one project reaches another one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gpuaas_sdk.client import Client
from gpuaas_sdk.testing.platform.edge import SignIn
from gpuaas_sdk.testing.platform.platform import FakePlatform
from gpuaas_sdk.testing.server import serving

_PROJECTS = "/api/v1/projects/"
_NO_PROJECT = ""


class FakeOrganisation:
    """Fake projects that accept one service account of their organisation, or do not.

    organisation = FakeOrganisation("hello", ["prj_a", "prj_b"])
    organisation.accept("prj_a")
    instance = organisation.projects["prj_a"].add_instance({"server": ["gpu-1"]})
    async with organisation.serve() as client:
        runners = ProjectRunners(client, lambda project_id: app.runner(client, project_id, "test"))
        running = asyncio.create_task(runners.run())"""

    def __init__(self, app_slug: str, project_ids: Sequence[str], **options: Any) -> None:
        """`options` are those of each `FakePlatform`."""
        sign_in = SignIn()
        self.projects = {
            project_id: FakePlatform(app_slug, project_id=project_id, sign_in=sign_in, **options)
            for project_id in project_ids
        }
        """The fake platform of each project, by project id."""
        self.outside = FakePlatform(app_slug, project_id=_NO_PROJECT, sign_in=sign_in, **options)
        """Serves what belongs to no project, and all projects that do not accept the account: they look absent."""
        self.outside.visible_projects = self._visible
        self._accepting: set[str] = set()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self._of(scope.get("path", "")).app(scope, receive, send)

        self.app = app
        """Serves each request by the fake platform of its project, if the project accepts the account."""

    def accept(self, project_id: str) -> None:
        """Let the account work in the project, as an admin of the project does."""
        if project_id not in self.projects:
            raise ValueError(f"The organisation has no project {project_id}.")
        self._accepting.add(project_id)

    def dismiss(self, project_id: str) -> None:
        """End the access of the account to the project: the project looks absent, and its leases end."""
        self._accepting.discard(project_id)
        self.projects[project_id].end_leases()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Client]:
        """Serve the projects on loopback and yield a client that is signed in as the account."""
        async with serving(self.app) as server, self.outside.client(server) as client:
            yield client

    @property
    def key_id(self) -> str:
        """The key of the service account."""
        return self.outside.key_id

    @property
    def client_secret(self) -> str:
        """The secret of the key."""
        return self.outside.client_secret

    def _of(self, path: str) -> FakePlatform:
        project_id = path.removeprefix(_PROJECTS).partition("/")[0] if path.startswith(_PROJECTS) else ""
        return self.projects[project_id] if project_id in self._accepting else self.outside

    def _visible(self) -> list[str]:
        return sorted(self._accepting)
