"""Sixteen writers, each of which repeats a request until it is answered, and the count of what was stored."""

import asyncio
import collections
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from gpuaas_contract import artifacts, audit, identity
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import PAGE_SIZE_MAX

from bench.badday.parts import Cloud, ServerProcess
from bench.badday.result import Result

WRITERS = 16
OPTIONS = ("--rate-limit-per-s", "0")  # one caller sends all requests
ANSWER_S_MAX = 10.0
WAIT_S_MAX = 120.0
REPEATED_AT_END = 50
_POLL_S, _PAUSE_S = 0.05, 0.2
_DIGEST = f"sha256:{hashlib.sha256(b'').hexdigest()}"
_CONTENT = {"digest": _DIGEST, "size_bytes": 1, "media_type": "text/plain", "source": {"kind": "local"}}
Kind = tuple[Endpoint[Any, Any], dict[str, Any]]
"""An endpoint, and what is sent beside a name."""
# A repeat of either has a second effect unless it has the same idempotency key.
ARTIFACT: Kind = (artifacts.PUBLISH, _CONTENT)
ACCOUNT: Kind = (identity.SERVICE_ACCOUNT_CREATE, {})


@dataclass(frozen=True, eq=False)
class Change:
    """A request that stores one row, one audit row and, for an artifact, one event."""

    name: str
    endpoint: Endpoint[Any, Any]
    body: dict[str, Any]

    @classmethod
    def new(cls, kind: Kind) -> "Change":
        name, (endpoint, more) = f"change-{uuid.uuid4().hex}", kind
        return cls(name, endpoint, {"name": name, **more})

    async def send(self, cloud: Cloud) -> httpx.Response:
        headers = {"X-Correlation-ID": self.name}
        return await cloud.send(self.endpoint, self.body, key=self.name, headers=headers)


class Load:
    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.result = cloud, Result()
        self.answers: dict[Change, bytes] = {}
        """The answers to the acknowledged changes."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write until the block ends; then every request has its answer."""
        over = asyncio.Event()
        writers = [asyncio.create_task(self._write(kind, over)) for kind in [ARTIFACT, ACCOUNT] * (WRITERS // 2)]
        try:
            yield
            over.set()
            async with asyncio.timeout(WAIT_S_MAX):
                await asyncio.gather(*writers)
        finally:
            for writer in writers:
                writer.cancel()

    async def advance(self, changes: int = 2 * WRITERS) -> None:
        """Wait until that many more changes are acknowledged."""
        wanted = len(self.answers) + changes
        await until(lambda: len(self.answers) >= wanted, "changes are acknowledged")

    async def ready_is(self, status: int, check: str = "") -> None:
        """Wait until `/readyz` has this status and names this check; if it never does, it is not truthful."""

        async def asked() -> bool:
            with contextlib.suppress(httpx.TransportError):
                answer = await self.cloud.http.get("/readyz")
                return answer.status_code == status and check in answer.text
            return False

        try:
            await until(asked, "/readyz")
        except TimeoutError:
            self.result.unready.append(f"not {status} {check}".strip())

    async def accepts(self) -> None:
        """After `/readyz` reported that the server is ready, a change must succeed at once."""
        change = Change.new(ARTIFACT)
        answer = await change.send(self.cloud)
        if answer.status_code == change.endpoint.status:
            self.answers[change] = answer.content
        else:
            self.result.unready.append(f"200, but a change got {answer.status_code}")

    async def count(self, server: ServerProcess, done: str) -> Result:
        """Repeat some changes, count what is stored for each, and verify the audit trail."""
        for change, stored in [*self.answers.items()][:: max(1, len(self.answers) // REPEATED_AT_END)]:
            answer = await change.send(self.cloud)
            if answer.content != stored:
                self.result.wrong.append(f"a repeat was answered with {answer.status_code} {answer.text[:200]}")
        rows, events = await self._all(audit.AUDIT_LIST), await self.cloud.recorded()
        accounts, published = await self._all(identity.SERVICE_ACCOUNT_LIST), await self._all(artifacts.LIST)
        for names, changes in (
            ([row.correlation_id for row in rows], [*self.answers]),
            ([event.correlation_id for event in events], self._of(artifacts.PUBLISH)),
            ([artifact.name for artifact in published], self._of(artifacts.PUBLISH)),
            ([account.name for account in accounts], self._of(identity.SERVICE_ACCOUNT_CREATE)),
        ):
            counts = collections.Counter(names)
            self.result.lost += sum(counts[change.name] == 0 for change in changes)
            self.result.doubled += sum(counts[change.name] > 1 for change in changes)
        await asyncio.to_thread(server.run, "audit", "verify")
        self.result.done, self.result.acknowledged = done, len(self.answers)
        return self.result

    async def _write(self, kind: Kind, over: asyncio.Event) -> None:
        while not over.is_set():
            change = Change.new(kind)
            self.answers[change] = await self._answer(change)

    async def _answer(self, change: Change) -> bytes:
        while True:
            try:
                answer = await change.send(self.cloud)
            except httpx.TransportError:
                self.result.unknown += 1
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status_code == change.endpoint.status:
                return answer.content
            self.result.refused += 1
            if not answer.json()["retryable"]:
                self.result.wrong.append(f"{change.endpoint.name}: {answer.status_code} {answer.text[:200]}")
            await asyncio.sleep(_PAUSE_S)

    async def _all(self, endpoint: Endpoint[Any, Any]) -> list[Any]:
        items: list[Any] = []
        token = ""
        while True:
            page = await self.cloud.call(endpoint, query={"page_size": PAGE_SIZE_MAX, "page_token": token})
            items += page.items
            token = page.next_page_token
            if not token:
                return items

    def _of(self, endpoint: Endpoint[Any, Any]) -> list[Change]:
        return [change for change in self.answers if change.endpoint is endpoint]


@contextlib.asynccontextmanager
async def load_on(server: ServerProcess, url: str = "") -> AsyncIterator[Load]:
    """The writers of a new project on a server that runs."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2 * WRITERS)
    async with httpx.AsyncClient(base_url=url or server.url, timeout=ANSWER_S_MAX, limits=limits) as client:
        cloud = Cloud(client)
        await cloud.sign_in(await asyncio.to_thread(server.admin_password))
        await cloud.make_project()
        yield Load(cloud)


async def until(condition: Callable[[], bool | Awaitable[bool]], awaited: str) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while True:
        met = condition()
        if met if isinstance(met, bool) else await met:
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{awaited}: not within {WAIT_S_MAX:.0f} s")
        await asyncio.sleep(_POLL_S)
