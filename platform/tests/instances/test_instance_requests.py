"""What was requested for an instance is in a table of its own; a save writes it only when it changed."""

import msgspec
from gpuaas_contract.instances import Instance
from gpuaas_platform.instances import store
from gpuaas_platform.kit import db
from platform_world import World
from scripted_controller import Cluster


async def _change(world: World, before: Instance, **values: object) -> Instance:
    after = msgspec.structs.replace(before, **values)
    await world.site.database.write(lambda tx: store.INSTANCES.change(tx, before, after))
    return after


async def _stored(world: World, instance_id: str) -> Instance | None:
    return await store.INSTANCES.get(world.site.database.reader, instance_id)


async def test_inputs_that_are_equal_in_python_and_differ_as_json_are_written(world: World) -> None:
    cluster = await Cluster.running(world)
    with_number = await _change(world, await cluster.instance(), inputs={"flag": 1})
    await _change(world, with_number, inputs={"flag": True})
    stored = await _stored(world, cluster.instance_id)
    assert stored is not None
    assert stored.inputs["flag"] is True


async def test_the_two_halves_of_a_changed_instance_are_read_as_one(world: World) -> None:
    cluster = await Cluster.running(world)
    inputs = {"name": 'a "quoted" }{ name', "empty": {}, "list": [None, 1.5, 2**40]}
    changed = await _change(world, await cluster.instance(), inputs=inputs, status_reason="}, {", previous_inputs={})
    assert await _stored(world, cluster.instance_id) == changed


async def test_both_halves_of_a_deleted_row_are_gone(world: World) -> None:
    cluster = await Cluster.running(world)
    before = await cluster.instance()

    async def delete_and_insert(tx: db.Tx) -> None:
        await store.INSTANCES.delete(tx, before.instance_id)
        await store.INSTANCES.insert(tx, before)

    await world.site.database.write(delete_and_insert)
    assert await _stored(world, cluster.instance_id) == before
