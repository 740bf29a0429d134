"""Lists of operations: oldest or newest first, of one instance, only those that have not ended, and only changes."""

from typing import Any

import pytest
from gpuaas_contract import actions, operations
from gpuaas_platform.operations import store
from platform_world import World
from scripted_controller import Cluster


async def listed(world: World, **query: Any) -> list[str]:
    """The ids of all operations, over pages of two."""
    names: list[str] = []
    token: str | None = ""
    while token is not None:
        asked = {"page_size": 2, "page_token": token, **query}
        page = await world.call(operations.OPERATION_LIST, query=asked)
        names += [operation.operation_id for operation in page.items]
        token = page.next_page_token
    return names


READING: dict[str, Any] = {
    "permissions": {"shop.queue.read": {"meaning": "read the queue", "roles": ["project_member"]}},
    "actions": [
        {
            "name": "queue.list",
            "title": "List the queue",
            "permission": "shop.queue.read",
            "input_schema": {"type": "object"},
            "result": {"columns": [{"name": "item", "title": "Item"}]},
            "reading": True,
        }
    ],
}


async def cluster_with_a_past(world: World) -> Cluster:
    """An instance that was deployed, stopped and started, and is to stop again."""
    cluster = await Cluster.requested(world)
    await cluster.controller.carry_out()
    for change in ("stop", "start"):
        await cluster.change(change)
        await cluster.controller.carry_out()
    await cluster.change("stop")
    return cluster


async def test_operations_are_listed_from_either_end(world: World) -> None:
    cluster = await cluster_with_a_past(world)
    oldest = await listed(world, instance_id=cluster.instance_id)
    assert len(oldest) == 4
    assert await listed(world, instance_id=cluster.instance_id, order="newest") == oldest[::-1]
    assert await listed(world, order="newest") == oldest[::-1]


async def test_a_list_can_leave_out_the_operations_that_ended(world: World) -> None:
    cluster = await cluster_with_a_past(world)
    newest, *_ = await listed(world, order="newest")
    assert await listed(world, live=True) == [newest]
    assert await listed(world, live=True, instance_id=cluster.instance_id) == [newest]
    assert await listed(world, live=True, instance_id="inst_other") == []


async def test_a_page_token_of_one_order_is_refused_by_the_other(world: World) -> None:
    await cluster_with_a_past(world)
    page = await world.call(operations.OPERATION_LIST, query={"page_size": 1})
    answer = await world.send(operations.OPERATION_LIST, query={"order": "newest", "page_token": page.next_page_token})
    assert answer.status_code == 400


async def test_a_list_of_changes_has_no_actions_between_them(world: World) -> None:
    cluster = await Cluster.running(world, **READING)
    path = {"instance_id": cluster.instance_id, "action": "queue.list"}
    await world.call(actions.ACTION_INVOKE, {}, **path)
    change = await cluster.operate("drain", (await cluster.hands())[0])
    for _ in range(3):
        await world.call(actions.ACTION_INVOKE, {}, **path)
    asked = {"instance_id": cluster.instance_id, "order": "newest"}
    everything, changes = await listed(world, **asked), await listed(world, **asked, changes=True)
    assert len(everything) == len(changes) + 4
    assert changes[0] == change.operation_id
    assert await listed(world, order="newest", changes=True) == changes
    assert await listed(world, **asked, changes=True, live=True) == [change.operation_id]


async def test_a_list_of_changes_reads_no_actions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.site.settings.database_url:
        pytest.skip("PostgreSQL scans tables of one page, with or without an index")
    plans: list[str] = []
    heads = store.heads

    async def explained(reader: Any, where: str, *values: object) -> Any:
        rows = await reader.all(f"EXPLAIN QUERY PLAN SELECT 1 FROM operations WHERE {where}", *values)
        plans.extend(row["detail"] for row in rows)
        return await heads(reader, where, *values)

    cluster = await Cluster.requested(world)
    with monkeypatch.context() as patch:
        patch.setattr(store, "heads", explained)
        await listed(world, instance_id=cluster.instance_id, order="newest", changes=True)
    assert plans
    assert all(
        "USING INDEX operations_changes" in plan or "COVERING INDEX operations_changes" in plan for plan in plans
    )
