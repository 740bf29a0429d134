"""A node that a project used is for that project only, until operators have reinstalled it and say so."""

import dataclasses
import datetime

import httpx
import old_store
import pytest
from gpuaas_contract import audit, capacity, errors, identity, node
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import store
from platform_world import World, enrol_body
from tenancy_world import REASON, allocate, other_project, released, shown

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def test_a_released_node_is_for_its_project_only(world: World) -> None:
    await released(world)
    rival = await other_project(world)
    with pytest.raises(errors.NoCapacity, match="not sanitised since another project used them") as refused:
        await allocate(world, rival)
    assert refused.value.details["reasons"] == {"used": 1}
    assert refused.value.details["why_not"] == {"n1": "the node was not sanitised since another project used it"}
    assert (await allocate(world, world.project_id)).node_name == "n1"


async def test_another_project_of_the_same_organisation_is_refused_too(world: World) -> None:
    await released(world)
    (org,) = (await world.call(identity.ORG_LIST)).items
    with pytest.raises(errors.NoCapacity):
        await allocate(world, await other_project(world, org.org_id))


async def test_a_project_gets_the_node_that_it_used_before_a_clean_one_of_the_same_size(world: World) -> None:
    await released(world, "n2")
    await world.node("n1")
    assert (await allocate(world, world.project_id)).node_name == "n2"
    assert (await allocate(world, world.project_id)).node_name == "n1"


async def test_without_reuse_the_same_project_is_refused(world: World) -> None:
    await released(world)
    settings = dataclasses.replace(world.site.settings, node_reuse=False)
    strict = http.application(dataclasses.replace(world.site, settings=settings), server.DOMAINS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=strict), base_url="http://test") as client:
        with pytest.raises(errors.NoCapacity):
            await allocate(dataclasses.replace(world, http=client), world.project_id)


async def test_the_word_of_an_operator_needs_a_machine_with_a_new_key(world: World) -> None:
    machine = await released(world)
    rival = await other_project(world)
    with pytest.raises(errors.Conflict, match="may have a copy"):
        await world.call(capacity.NODE_MARK_SANITISED, REASON, node_id="n1")
    again = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    await world.call(node.ENROL, enrol_body(again.token, "n1", machine.key), token="")
    with pytest.raises(errors.Conflict, match="may have a copy"):
        await world.call(capacity.NODE_MARK_SANITISED, REASON, node_id="n1")
    await world.node("n1")
    clean = await world.call(capacity.NODE_MARK_SANITISED, REASON, node_id="n1")
    me = await world.call(identity.ME)
    assert (clean.tenancy, clean.sanitised_by, clean.sanitised_at) == (
        "clean",
        f"operator:{me.actor_id}",
        world.clock(),
    )
    assert (await allocate(world, rival)).node_name == "n1"
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"page_size": 100})).items
    assert REASON["reason"] in [
        row.details.get("reason") for row in rows if row.action == "capacity.node.mark_sanitised"
    ]


async def test_a_new_enrolment_alone_does_not_make_a_node_clean(world: World) -> None:
    await released(world)
    await world.node("n1")
    assert (await shown(world)).tenancy == "used"
    with pytest.raises(errors.NoCapacity):
        await allocate(world, await other_project(world))


async def test_a_node_with_work_on_it_cannot_be_called_clean(world: World) -> None:
    await world.allocation("n1")
    await world.node("n1")
    with pytest.raises(errors.Conflict, match="still has allocation"):
        await world.call(capacity.NODE_MARK_SANITISED, REASON, node_id="n1")


async def test_without_a_provisioner_sanitise_names_the_way_by_hand(world: World) -> None:
    await released(world)
    with pytest.raises(errors.Conflict, match="no provisioner") as refused:
        await world.call(capacity.NODE_SANITISE, REASON, node_id="n1")
    assert "gpuaas node mark-sanitised n1" in refused.value.fix


def _old_node(number: int, allocation_id: str = "") -> str:
    on_it = f'"{allocation_id}"' if allocation_id else "null"
    document = (
        f'{{"node_id":"node_{number}","name":"n{number}","region":"eu","sku":"s","status":"ready","address":"",'
        f'"ssh_host_public_key":"","facts":{{"hostname":"n","cpus":1,"memory_mb":1}},"agent_version":"","boot_id":"",'
        f'"enrolled_at":"2026-01-01T00:00:00Z","last_seen_at":"2026-01-01T00:00:00Z","allocation_id":{on_it}}}'
    )
    return f"""INSERT INTO nodes
        (node_id, name, status, admin_state, region, sku, last_seen_at, allocation_id, document)
        VALUES ('node_{number}', 'n{number}', 'ready', 'active', 'eu', 's', 0, '{allocation_id}', '{document}')"""


def _old_allocation(number: int, node_number: int, project: str, status: str = "released") -> str:
    document = f'{{"updated_at":"2026-01-0{number}T00:00:00Z"}}'
    return f"""INSERT INTO allocations (allocation_id, project_id, node_id, status, document)
        VALUES ('alloc_{number}', '{project}', 'node_{node_number}', '{status}', '{document}')"""


async def test_nodes_of_an_older_release_belong_to_the_project_that_alone_used_them(settings: Settings) -> None:
    settings.data_dir.mkdir()
    rows = [
        *(_old_node(1), _old_node(2), _old_node(3), _old_node(4, "alloc_5")),
        *(_old_allocation(1, 2, "a"), _old_allocation(2, 2, "a"), _old_allocation(3, 3, "a")),
        *(_old_allocation(4, 3, "b"), _old_allocation(5, 4, "b", "active"), _old_allocation(6, 4, "a")),
    ]
    await old_store.schema_before(34, settings.sqlite_path, settings.database_url, *rows)
    async with server.open_site(settings) as site:
        nodes = await _all(site)
    assert [(each.tenancy, each.used_by_project_id, each.released_at) for each in nodes] == [
        ("clean", "", None),
        ("used", "a", DAY + datetime.timedelta(days=1)),
        ("used", "", DAY + datetime.timedelta(days=3)),
        ("used", "b", None),
    ]


async def _all(site: Site) -> list[capacity.Node]:
    nodes = await store.NODES.find(site.database.reader, "1 = 1 ORDER BY node_id")
    for each in nodes:
        values = "tenancy = $1 AND used_by_project_id = $2 AND node_id = $3"
        assert await store.NODES.keys(
            site.database.reader, values, each.tenancy, each.used_by_project_id, each.node_id
        ), "columns and document agree"
    return nodes
