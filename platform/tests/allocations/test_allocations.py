"""Requests for allocations: all or none, within quota, on nodes that fit, and never the same node twice."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from gpuaas_contract import audit, capacity, errors, events
from gpuaas_contract.capacity import CreateAllocation
from gpuaas_contract.policy import PROJECT_SET, Overlay
from gpuaas_platform import server
from gpuaas_platform.allocations import store
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from old_store import first_schema
from platform_world import World


async def create(world: World, token: str | None = None, **wanted: Any) -> list[capacity.Allocation]:
    return (await world.call(capacity.ALLOCATION_CREATE, CreateAllocation(**wanted), token=token)).items


async def held(world: World) -> list[str]:
    return [allocation.node_name for allocation in (await world.call(capacity.ALLOCATION_LIST)).items]


async def test_one_request_makes_as_many_allocations_as_it_asks_for(world: World) -> None:
    for name in ("n3", "n1", "n2"):
        await world.node(name)
    made = await create(world, count=3)
    assert [allocation.node_name for allocation in made] == ["n1", "n2", "n3"]
    assert {allocation.status for allocation in made} == {"provisioning"}
    assert len({allocation.username_on_node for allocation in made}) == 3


async def test_one_node_too_few_makes_none_at_all(world: World) -> None:
    nodes = [await world.node(name) for name in ("n1", "n2")]
    with pytest.raises(errors.NoCapacity) as refused:
        await create(world, count=3)
    assert refused.value.details["fitting"] == {"local": 2}
    assert await held(world) == []
    assert [await world.next_task(gpu_node) for gpu_node in nodes] == [None, None]


async def test_fifty_requests_at_once_for_the_last_three_nodes_make_three_allocations(world: World) -> None:
    for number in range(3):
        await world.node(f"n{number}")
    answers = await asyncio.gather(*(world.send(capacity.ALLOCATION_CREATE, {}) for _ in range(50)))
    assert Counter(answer.status_code for answer in answers) == {202: 3, 422: 47}
    assert {answer.json()["code"] for answer in answers if answer.is_error} == {"no_capacity"}
    assert sorted(await held(world)) == ["n0", "n1", "n2"]


async def test_requests_for_several_at_once_share_the_nodes_without_a_half_served_one(world: World) -> None:
    for number in range(7):
        await world.node(f"n{number}")
    answers = await asyncio.gather(*(world.send(capacity.ALLOCATION_CREATE, {"count": 3}) for _ in range(10)))
    assert Counter(answer.status_code for answer in answers) == {202: 2, 422: 8}
    assert len(set(await held(world))) == 6


async def test_the_store_itself_keeps_a_node_from_carrying_two_allocations(world: World) -> None:
    await world.node("n1")
    (made,) = await create(world)
    second = msgspec.structs.replace(made, allocation_id="alloc_second")
    with pytest.raises(db.Duplicate):
        await world.site.database.write(lambda tx: store.ALLOCATIONS.insert(tx, second))


async def test_a_quota_counts_all_that_one_request_asks_for(world: World) -> None:
    for number in range(3):
        await world.node(f"n{number}")
    await world.call(PROJECT_SET, Overlay(allocations_max=2))
    with pytest.raises(errors.PolicyDenied) as refused:
        await create(world, count=3)
    assert (refused.value.details["present"], refused.value.details["asked"]) == (0, 3)
    assert len(await create(world, count=2)) == 2


async def test_a_dry_run_shows_the_node_and_allocates_nothing(world: World) -> None:
    n1 = await world.node("n1")
    await world.node("n2", sku="big")
    body = CreateAllocation(sku="standard")
    shown = await world.call(capacity.ALLOCATION_CREATE, body, query={"dry_run": "true"})
    assert [allocation.node_name for allocation in shown.items] == ["n1"]
    assert (await held(world), await world.next_task(n1)) == ([], None)


@pytest.mark.parametrize("count", [0, 65, -1])
async def test_a_request_is_for_one_to_64(world: World, count: int) -> None:
    answer = await world.send(capacity.ALLOCATION_CREATE, {"count": count})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "count")


async def test_a_node_asked_for_by_name_is_one(world: World) -> None:
    with pytest.raises(errors.ValidationFailed, match="names one node"):
        await create(world, node_name="n1", count=2)


async def test_admins_may_name_the_node_and_members_may_not(world: World) -> None:
    await world.node("n1")
    await world.node("n2")
    member = await world.person("mia", "project_member", world.project_id)
    admin = await world.person("ada", "project_admin", world.project_id)
    with pytest.raises(errors.PermissionDenied) as refused:
        await create(world, member.token, node_name="n2")
    assert refused.value.details == {"permission": "capacity.allocation.place"}
    trail = await world.call(audit.AUDIT_LIST, query={"action": "authz.deny"})
    assert trail.items[-1].details == {"permission": "capacity.allocation.place"}
    assert [allocation.node_name for allocation in await create(world, admin.token, node_name="n2")] == ["n2"]
    assert [allocation.node_name for allocation in await create(world, member.token)] == ["n1"]


async def test_callers_who_may_not_see_nodes_get_counts_and_no_names(world: World) -> None:
    await world.node("hidden-1")
    await create(world)
    member = await world.person("mia", "project_member", world.project_id)
    with pytest.raises(errors.NoCapacity) as refused:
        await create(world, member.token)
    assert refused.value.details == {"asked": 1, "fitting": {}, "reasons": {"allocated": 1}}
    assert "hidden" not in refused.value.message
    with pytest.raises(errors.NoCapacity) as explained:
        await create(world)
    assert explained.value.details["why_not"] == {"hidden-1": "it is allocated"}


async def test_integration_metadata_is_stored_unchanged(world: World) -> None:
    await world.node("n1")
    metadata = {"queue": ["a", {"b": None}], "weight": 1.5, "Ω": "naïve"}
    (made,) = await create(world, scheduler_type="home-grown", integration_metadata=metadata)
    allocation = await world.call(capacity.ALLOCATION_GET, allocation_id=made.allocation_id)
    assert (allocation.scheduler_type, allocation.integration_metadata) == ("home-grown", metadata)


async def test_integration_metadata_has_a_size_limit(world: World) -> None:
    await world.node("n1")
    with pytest.raises(errors.ValidationFailed, match="the limit is 8192") as refused:
        await create(world, integration_metadata={"x": "y" * 8192})
    assert refused.value.details == {"field": "integration_metadata"}


async def test_free_allocations_are_active_and_without_an_instance(world: World) -> None:
    await world.entitled_app()
    deployed = await world.deploy()
    free = await world.allocation("spare")
    await world.node("waiting")
    (waiting,) = await create(world)
    shown = (await world.call(capacity.ALLOCATION_LIST, query={"free": "true"})).items
    assert [allocation.allocation_id for allocation in shown] == [free.allocation_id]
    used = [
        allocation
        for allocation in (await world.call(capacity.ALLOCATION_LIST)).items
        if allocation.used_by_instance_ids
    ]
    assert {allocation.used_by_instance_ids[0] for allocation in used} == {deployed.instance.instance_id}
    provisioning = (await world.call(capacity.ALLOCATION_LIST, query={"status": "provisioning"})).items
    assert [allocation.allocation_id for allocation in provisioning] == [waiting.allocation_id]


async def test_allocations_are_listed_by_sku_and_region(world: World) -> None:
    await world.node("n1", sku="big", region="us")
    await world.node("n2")
    await create(world, sku="big")
    await create(world)
    for query, names in (({"sku": "big"}, ["n1"]), ({"region": "local"}, ["n2"]), ({"region": "eu"}, [])):
        shown = (await world.call(capacity.ALLOCATION_LIST, query=query)).items
        assert [allocation.node_name for allocation in shown] == names


async def test_the_event_of_a_transition_reports_the_status_before_it(world: World) -> None:
    n1 = await world.node("n1")
    (made,) = await create(world)
    await world.finish_task(n1)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=made.allocation_id)
    await world.finish_task(n1)
    recorded = (await world.call(events.EVENT_LIST, query={"limit": 500})).items
    moves = [
        (event.payload.get("was"), event.payload["status"])
        for event in recorded
        if event.type == "capacity.allocation.changed"
    ]
    assert moves == [
        (None, "provisioning"),
        ("provisioning", "active"),
        ("active", "releasing"),
        ("releasing", "released"),
    ]


async def test_allocations_of_the_first_release_are_found_by_their_use(settings: Settings) -> None:
    settings.data_dir.mkdir()
    rows = []
    for number, users in enumerate(([], ["inst_1"])):
        held = f"alloc_{number}"
        document = msgspec.json.encode(_OLD | {"allocation_id": held, "used_by_instance_ids": users}).decode()
        rows.append(f"INSERT INTO allocations VALUES ('{held}', 'p', 'node_{number}', 'active', '{document}')")
    await first_schema(settings.data_dir / "gpuaas.sqlite", settings.database_url, *rows)
    async with server.open_site(settings) as site:
        where, values = store.list_filter("p", capacity.AllocationQuery(free=True))
        (free,) = await store.ALLOCATIONS.find(site.database.reader, where, *values)
    assert (free.allocation_id, free.release_attempts, free.scheduler_type) == ("alloc_0", 0, "")


_OLD = {
    "org_id": "o",
    "project_id": "p",
    "status": "active",
    "status_reason": "",
    "node_id": "n",
    "node_name": "n1",
    "address": "10.0.0.1",
    "sku": "standard",
    "region": "local",
    "gpus": 0,
    "username_on_node": "gpu-1",
    "requested_by": "u",
    "correlation_id": "c",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}
