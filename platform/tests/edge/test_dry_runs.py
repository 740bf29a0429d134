"""Walk the endpoint table with every change rehearsed first: a dry run leaves nothing and uses nothing up."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from endpoint_tour import NOT_DRIVEN, endpoint_of, tour
from gpuaas_contract import actions, operations, registry
from gpuaas_platform.operations import previews
from platform_world import World
from scripted_controller import take_exit

CHANGES = {endpoint.name for endpoint in registry.ENDPOINTS if endpoint.mutates}
PREVIEW_LEAVES = {"operations", "events"}
"""The preview operation for the controller of the app, which expires."""

Kept = dict[str, Counter[str]]
"""The rows of every table, and the files of the content store."""


@dataclass
class Rehearsal:
    """Before every change the same request as a dry run; the change itself comes after it."""

    world: World
    done: set[str] = field(default_factory=set)

    async def __call__(self, request: httpx.Request) -> None:
        endpoint = endpoint_of(request)
        if endpoint is None or not endpoint.mutates or "dry_run" in request.url.params:
            return
        before = await kept(self.world)
        answer = await self._rehearse(request)
        assert answer.status_code == endpoint.status, (endpoint.name, answer.text)
        after = await kept(self.world)
        left = {name: rows - before[name] for name, rows in after.items() if rows != before[name]}
        # The preview of an action states what was checked; its app is not asked.
        is_previewed = bool(answer.json().get("preview")) and endpoint is not actions.ACTION_INVOKE
        assert set(left) == (PREVIEW_LEAVES if is_previewed else set()), (endpoint.name, left)
        self.done.add(endpoint.name)
        if is_previewed:
            await self._end_previews()

    async def _rehearse(self, request: httpx.Request) -> httpx.Response:
        client, url = self.world.http, request.url.copy_merge_params({"dry_run": "true"})
        return await client.send(
            client.build_request(request.method, url, headers=request.headers, content=request.content)
        )

    async def _end_previews(self) -> None:
        """No controller answers them here, and the next controller that looks would take them for work."""
        listed = (await self.world.call(operations.OPERATION_LIST, query={"page_size": 500})).items
        for operation in listed:
            if (operation.kind, operation.status) == ("preview", "accepted"):
                await take_exit(self.world, operation, "cancel")


async def test_a_dry_run_of_every_change_leaves_nothing_and_the_change_succeeds_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "ANSWER_WAIT_S", 0.0)
    rehearsal = Rehearsal(world)
    world.http.event_hooks = {"request": [rehearsal]}
    await tour(world)
    assert CHANGES - rehearsal.done == set(NOT_DRIVEN)


async def kept(world: World) -> Kept:
    reader, folder = world.site.database.reader, world.site.settings.data_dir / "blobs"
    content = {"files": Counter(str(path) for path in folder.rglob("*") if path.is_file())}
    for name in await tables(world):
        rows: Any = await reader.all(f"SELECT * FROM {name}")
        content[name] = Counter(str(tuple(row)) for row in rows)
    return content


async def tables(world: World) -> list[str]:
    if world.site.settings.database_url:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    else:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [row[0] for row in await world.site.database.reader.all(listed)]
