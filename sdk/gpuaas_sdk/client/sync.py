"""The client for scripts without `async`: each method of `Client`, made into one that waits for its answer.

Nothing is written twice. Requests, retries and idempotency keys are those of `Client`."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from gpuaas_contract.endpoint import Answer, Endpoint

from gpuaas_sdk.auth import Auth
from gpuaas_sdk.client.client import Client

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _waiting(
    method: Callable[Concatenate[Client, Arguments], Awaitable[Result]],
) -> Callable[Concatenate["SyncClient", Arguments], Result]:
    @functools.wraps(method)
    def call(self: "SyncClient", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._wait(lambda: method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[Client, Arguments], AsyncIterator[Result]],
) -> Callable[Concatenate["SyncClient", Arguments], Iterator[Result]]:
    @functools.wraps(method)
    def iterate(self: "SyncClient", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        items: Any = method(self._client, *args, **kwargs)
        try:
            while True:
                try:
                    yield self._wait(items.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            # A script that leaves the loop early must not leave a request open. `close` ends what is left.
            if not self._is_closed:
                self._wait(items.aclose)

    return iterate


class SyncClient:
    """Calls one server from a script, one call at a time. Close it with `with` or `close()`.

    It is for one thread. In a program with an event loop, use `Client`.

        with SyncClient(server, ServiceAccount(key_id, client_secret)) as client:
            for instance in client.pages(INSTANCE_LIST, project_id=project_id):
                print(instance.name, instance.status)"""

    def __init__(self, server: str, auth: Auth, *, ca_file: Path | None = None) -> None:
        self._client = Client(server, auth, ca_file=ca_file)
        self._loop = asyncio.Runner()
        self._is_closed = False

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._client.server

    call = _waiting(Client.call)
    """Send a request and return the answer, as `Client.call` does."""
    read = _waiting(Client.read)
    """Read a resource with its tag, as `Client.read` does."""
    pages = _iterating(Client.pages)
    """Yield every item of a list, as `Client.pages` does."""
    watch_operation = _iterating(Client.watch_operation)
    """Yield an operation after each change until it ends, as `Client.watch_operation` does."""
    events = _iterating(Client.events)
    """Yield the events of a project and wait for new ones, as `Client.events` does."""
    follow = _iterating(Client.follow)
    """Yield the events of any list, as `Client.follow` does."""
    download = _iterating(Client.download)
    """Yield the bytes of content, as `Client.download` does."""

    def upload(
        self,
        /,
        endpoint: Endpoint[bytes, Answer],
        content: Iterable[bytes],
        *,
        dry_run: bool = False,
        **path_params: str,
    ) -> Answer:
        """Upload content in one attempt, as `Client.upload` does."""
        return self._wait(lambda: self._client.upload(endpoint, _chunks(content), dry_run=dry_run, **path_params))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end iterations that the script left."""
        try:
            self._wait(self._client.aclose)
        finally:
            self._is_closed = True
            self._loop.close()

    def _wait(self, begin: Callable[[], Awaitable[Result]]) -> Result:
        _refuse_running_loop()

        async def result() -> Result:
            return await begin()

        return self._loop.run(result())


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("SyncClient would block the running event loop. Use Client there.")


async def _chunks(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in content:
        yield chunk
