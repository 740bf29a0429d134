"""Steps of an operation: the latest with the operation, all of them in pages, none in lists."""

import pytest
from gpuaas_contract import errors, operations
from gpuaas_platform.kit import db
from gpuaas_platform.operations import store
from msgspec.structs import replace
from platform_world import World
from scripted_controller import Cluster, Controller, Held

SHOWN = operations.STEPS_SHOWN_MAX


async def held_with_steps(world: World, count: int) -> Held:
    """An operation as after so many reports."""
    held = await (await Cluster.requested(world)).controller.take()

    async def add(tx: db.Tx) -> None:
        head = await store.get(tx, held.operation_id)
        assert head is not None
        for number in range(count):
            head = replace(head, revision=head.revision + 1, steps_total=number + 1)
            step = operations.Step(name=f"step-{number}", state="running", started_at=world.clock())
            await store.add_step(tx, head, step)
        await store.save(tx, head)

    await world.site.database.write(add)
    return held


async def pages(world: World, operation_id: str, **query: int) -> list[list[str]]:
    """Names of the steps on each page."""
    names, token = [], ""
    while True:
        asked = {"page_size": 2, "page_token": token, **query}
        page = await world.call(operations.OPERATION_STEPS, query=asked, operation_id=operation_id)
        names.append([step.name for step in page.items])
        if page.next_page_token is None:
            return names
        token = page.next_page_token


async def test_steps_page_in_the_order_in_which_they_began(world: World) -> None:
    held = await held_with_steps(world, 5)
    await held.step("step-0")
    assert await pages(world, held.operation_id) == [["step-0", "step-1"], ["step-2", "step-3"], ["step-4"]]


async def test_a_reader_gets_only_the_steps_that_changed_since_a_revision(world: World) -> None:
    held = await held_with_steps(world, 3)
    seen = (await world.operation(held.operation_id)).revision
    assert await pages(world, held.operation_id, changed_since=seen) == [[]]
    await held.step("step-1")
    await held.step("step-9", "running")
    assert await pages(world, held.operation_id, changed_since=seen) == [["step-1", "step-9"]]


async def test_an_operation_shows_the_steps_that_changed_last_and_counts_all(world: World) -> None:
    held = await held_with_steps(world, SHOWN + 2)
    await held.step("step-1")
    shown = await world.operation(held.operation_id)
    assert shown.steps_total == SHOWN + 2
    assert [step.name for step in shown.steps] == ["step-1", *(f"step-{at}" for at in range(3, SHOWN + 2))]
    (listed,) = (await world.call(operations.OPERATION_LIST)).items
    assert (listed.steps, listed.steps_total, listed.targets) == ([], SHOWN + 2, shown.targets)


async def test_a_claim_has_every_step_so_that_none_is_repeated(world: World) -> None:
    held = await held_with_steps(world, SHOWN + 1)
    world.clock.forward(16)
    again = await Controller(world, held.token).take()
    assert len(again.operation.steps) == again.operation.steps_total == SHOWN + 1


async def test_steps_of_another_project_are_not_found(world: World) -> None:
    with pytest.raises(errors.NotFound):
        await pages(world, "op_elsewhere")
