"""A real `gpuaas-platform server` on loopback, to be killed and started again, and a small client of its API."""

import asyncio
import http.client
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import msgspec
import preloaded
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import capacity, catalog, events, identity, node
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform import server
from gpuaas_platform.call import system_origin
from gpuaas_platform.identity import service as identity_service
from gpuaas_platform.kit import clock, ids
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.testing import free_port
from platform_world import Node, enrol_body, login_body

Body = TypeVar("Body")
Answer = TypeVar("Answer")

_PLATFORM = [sys.executable, "-m", "gpuaas_platform.main"]
_START_S_MAX = 60.0
APP: dict[str, Any] = {
    "slug": "toy",
    "display_name": "Toy",
    "version": "1.0.0",
    "runtime_backend": "toy",
    "operating_modes": ["tenant_dedicated"],
    "control_plane_scopes": ["project"],
    "roles": [{"component_key": "head", "max": 1}],
    "topologies": {"solo": {"head": "allocation"}},
    "deploy_form": {"type": "object", "properties": {"allocation": {"type": "string"}}},
}


class ServerProcess:
    """Use it as a context manager; it is killed at the end."""

    def __init__(
        self,
        data: Path,
        database_url: str = "",
        *,
        options: Sequence[str] = (),
        descriptors_max: int = 0,
        program: Sequence[str] = _PLATFORM,
    ) -> None:
        """`options` are more of the command `server`; further addresses to listen on among them. `descriptors_max` is
        the hard limit of its open files; 0: the limit of the test. `program` starts the platform of a release; it may
        be set to that of another one while the server is stopped."""
        self.program = program
        self._options = options
        self._limited = ["prlimit", f"--nofile={descriptors_max}:{descriptors_max}"] if descriptors_max else []
        self._settings = Settings(data_dir=data, database_url=database_url)
        self._store = ["--data", str(data), *(["--database", database_url] if database_url else [])]
        self._log = data.with_name(f"{data.name}-server.log")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | preloaded.Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log_text(self) -> str:
        return self._log.read_text()

    def admin_password(self) -> str:
        """Give the admin a new password, as the command `admin` does, without the second that a process takes to start.
        In a thread, because the caller may have an event loop."""
        if self.program != _PLATFORM:
            return self.run("admin")
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._new_password()).result()

    def run(self, *words: str) -> str:
        """Run another command of the platform on the same store. Return its output; it must succeed."""
        if self.program != _PLATFORM:
            command = [*self.program, *words, *self._store]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        ended = preloaded.run(preloaded.PLATFORM, [*words, *self._store])
        ended.check_returncode()
        return ended.stdout.strip()

    def command(self) -> list[str]:
        return [*self.program, "server", *self._store, "--listen", f"127.0.0.1:{self.port}", *self._options]

    def start(self) -> None:
        with self._log.open("ab") as log:
            if self._limited or self.program != _PLATFORM:
                self._process = subprocess.Popen([*self._limited, *self.command()], stdout=log, stderr=log)
            else:
                self._process = preloaded.start(preloaded.PLATFORM, self.command()[len(_PLATFORM) :], log)
        deadline = time.monotonic() + _START_S_MAX
        while not self._is_ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"the server did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to exit; its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        os.kill(process.pid, number)
        return process.wait(60)

    def _is_ready(self) -> bool:
        return readyz(self.port) == 200

    async def _new_password(self) -> str:
        password, origin = ids.new_secret("admin"), system_origin(clock.utc_now())
        async with server.open_site(self._settings) as site:
            await identity_service.set_password(site, origin, "admin", password, "platform_admin")
        return password


def readyz(port: int, timeout_s: float = 2) -> int:
    """The status of `/readyz`; 0 without an answer. To poll with a client of httpx would load the host's authorities
    each time, which takes longer than the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@dataclass
class Cloud:
    """An admin's client of one server, with a project in which anything can be made to happen."""

    http: httpx.AsyncClient
    token: str = ""
    project_id: str = ""
    answered: list[str] = field(default_factory=list)
    """Correlation ids of the changes that were answered."""

    async def sign_in(self, password: str) -> None:
        token = await self.call(identity.LOGIN, identity.Login(name="admin", password=password))
        self.token = token.access_token

    async def make_project(self) -> None:
        """A project of a new organisation, where an app can be entitled: each change of that is one event."""
        name = uuid.uuid4().hex[:12]
        org = await self.call(identity.ORG_CREATE, {"name": f"org-{name}"})
        made = await self.call(identity.PROJECT_CREATE, identity.CreateProject(name="research"), org_id=org.org_id)
        self.project_id = made.project_id
        await self.call(catalog.VERSION_REGISTER, APP)

    async def service_account(self, name: str, *apps: str) -> str:
        """A new service account's token."""
        key = await self.service_account_key(name, *apps)
        return (await self.call(identity.SERVICE_ACCOUNT_TOKEN, key, token="")).access_token

    async def service_account_key(self, name: str, *apps: str) -> identity.ServiceAccountLogin:
        """A key of a new service account, which operates the apps."""
        body = identity.CreateServiceAccount(name=name, apps=list(apps))
        account = await self.call(identity.SERVICE_ACCOUNT_CREATE, body)
        account_id = account.service_account_id
        key = await self.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account_id)
        return identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)

    async def allocation(self, owner: "Cloud | None" = None) -> str:
        """An active allocation on a new node, which is enrolled and answers as its agent would."""
        name = ids.new("node")
        admitted = await self.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name))
        key = Ed25519PrivateKey.generate()
        enrolled = await self.call(node.ENROL, enrol_body(admitted.token, name, key), token="")
        body = login_body(Node(enrolled.node_id, name, key, ""), int(time.time()), uuid.uuid4().hex)
        token = (await self.call(node.NODE_TOKEN, body, token="")).access_token
        made = await (owner or self).call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))
        given = (await self.call(node.TASK_NEXT, token=token)).task
        assert given is not None
        task_id = msgspec.json.decode(given.payload)["task_id"]
        result = {"status": "succeeded", "result": {}}
        await self.call(node.TASK_RESULT, result, token=token, task_id=task_id)
        return made.items[0].allocation_id

    async def make_event(self) -> str:
        """One event; the correlation id it carries."""
        correlation_id = f"made-{uuid.uuid4().hex}"
        enabled = len(self.answered) % 2 == 0
        headers = {"X-Correlation-ID": correlation_id}
        await self.call(catalog.ENTITLEMENT_SET, {"enabled": enabled}, headers=headers, app_slug=APP["slug"])
        self.answered.append(correlation_id)
        return correlation_id

    async def recorded(self) -> list[events.Event]:
        """The whole record of the project, by short polls."""
        recorded: list[events.Event] = []
        while True:
            after = recorded[-1].cursor if recorded else 0
            page = await self.call(events.EVENT_LIST, query={"after": after, "limit": 500})
            if not page.items:
                return recorded
            recorded += page.items

    async def send(
        self,
        endpoint: Endpoint[Body, Answer],
        body: Any = None,
        *,
        token: str | None = None,
        key: str = "",
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **params: str,
    ) -> httpx.Response:
        """Waits when the server asks it to slow down, as a client should."""
        if endpoint is identity.ORG_CREATE and isinstance(body, dict):
            body = {"first_admin": "admin", **body}
        path = endpoint.path.format(**{"project_id": self.project_id, **params})
        token = self.token if token is None else token
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        if endpoint.mutates:
            sent["X-Idempotency-Key"] = key or str(uuid.uuid4())
        content = msgspec.json.encode(body) if body is not None else b""
        sent |= {"Content-Type": "application/json"} if content else {}
        while True:
            answer = await self.http.request(endpoint.method, path, content=content, params=query, headers=sent)
            if answer.status_code != 429:
                return answer
            await asyncio.sleep(float(answer.headers["Retry-After"]))

    async def call(self, endpoint: Endpoint[Body, Answer], body: Any = None, **options: Any) -> Answer:
        answer = await self.send(endpoint, body, **options)
        if answer.status_code != endpoint.status:
            raise AssertionError(f"{endpoint.name}: {answer.status_code} {answer.text}")
        return msgspec.json.decode(answer.content, type=endpoint.response)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until other tasks have made the condition true; the test has the deadline."""
    while not condition():  # noqa: ASYNC110 - a condition of many parts has no one event
        await asyncio.sleep(0.02)
