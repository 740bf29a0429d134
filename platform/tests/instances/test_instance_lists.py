"""Lists of instances and members with filters, and the numbers that people see without reading all rows."""

from typing import Any

import pytest
from gpuaas_contract import instances
from gpuaas_contract.instances import InstanceListQuery, MemberListQuery
from gpuaas_platform.instances import filters, store
from platform_world import World
from scripted_controller import Cluster


async def names(world: World, **query: Any) -> list[str]:
    return [item.name for item in (await world.call(instances.INSTANCE_LIST, query=query)).items]


async def nodes(cluster: Cluster, **query: Any) -> list[str]:
    path = {"instance_id": cluster.instance_id}
    return [item.node_name for item in (await cluster.world.call(instances.MEMBER_LIST, query=query, **path)).items]


async def test_instances_are_listed_by_status_and_by_a_part_of_their_name(world: World) -> None:
    cluster = await Cluster.running(world)
    instance = await world.call(instances.INSTANCE_GET, instance_id=cluster.instance_id)
    assert await names(world, status="running") == [instance.name]
    assert await names(world, status="failed") == []
    assert await names(world, search=instance.name[1:].upper()) == [instance.name]
    assert await names(world, search="%") == []
    assert await names(world, search="_" * len(instance.name)) == []


def test_a_status_other_than_deleted_chooses_live_instances() -> None:
    assert filters.instances("p", InstanceListQuery(status="failed"))[0] == f"{store.LIVE_INSTANCES} AND status = $2"
    assert filters.instances("p", InstanceListQuery(status="deleted"))[0] == "project_id = $1 AND status = $2"


async def test_members_are_listed_by_status_role_and_a_part_of_their_node(world: World) -> None:
    cluster = await Cluster.running(world)
    every = await nodes(cluster)
    assert every
    assert await nodes(cluster, status="ready", live=True) == every
    assert await nodes(cluster, status="failed") == []
    assert await nodes(cluster, component_key="nothing") == []
    assert await nodes(cluster, search=every[0][1:].upper()) == [node for node in every if every[0][1:] in node]


async def test_numbers_by_status_are_those_of_the_rows(world: World) -> None:
    cluster = await Cluster.running(world)
    every = (await world.call(instances.MEMBER_LIST, instance_id=cluster.instance_id)).items
    roles = (await world.call(instances.ROLE_LIST, instance_id=cluster.instance_id)).items
    assert sum(role.by_status.get("ready", 0) for role in roles) == len(every)
    for role in roles:
        assert role.ready == len([item for item in every if item.component_key == role.component_key])
    counts = (await world.call(instances.INSTANCE_COUNTS)).items
    assert [(item.status, item.instances) for item in counts] == [("running", 1)]


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (f"SELECT component_key, status, COUNT(*) FROM members WHERE {store.LIVE_MEMBERS} GROUP BY 1, 2", "by_role"),
        (f"SELECT app_slug, status, COUNT(*) FROM instances WHERE {store.LIVE_INSTANCES} GROUP BY 1, 2", "by_app"),
        ("members " + filters.members("i", MemberListQuery(live=True, status="failed"))[0], "with_status"),
        ("instances " + filters.instances("p", InstanceListQuery(live=True, status="failed"))[0], "with_status"),
        ("instances " + filters.instances("p", InstanceListQuery(status="failed"))[0], "with_status"),
    ],
)
async def test_numbers_and_filtered_pages_read_an_index(world: World, sql: str, index: str) -> None:
    """A page of a large project costs as much as one of a small project."""
    if world.site.settings.database_url:
        pytest.skip("PostgreSQL scans tables of one page, with or without an index")
    table, _, condition = sql.partition(" ")
    key = "member_id" if table == "members" else "instance_id"
    whole = sql if table == "SELECT" else f"SELECT document FROM {table} WHERE {condition} ORDER BY {key} LIMIT 51"
    rows = await world.site.database.reader.all(f"EXPLAIN QUERY PLAN {whole}", *["x"] * whole.count("$"))
    plan = " ".join(row["detail"] for row in rows)
    assert index in plan
    assert "TEMP B-TREE" not in plan
