"""What the loops cost: no write while nothing is due, and no more statements with more nodes, grants or keys."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fleet import allocate, copy_node
from gpuaas_contract import access, capacity, node, ssh_keys
from gpuaas_platform import server
from gpuaas_platform.access.machines import authority, revoke
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.access.machines import store as grants_store
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.allocations import installation
from gpuaas_platform.allocations import reconcile as allocations_reconcile
from gpuaas_platform.allocations.keys import store as key_store
from gpuaas_platform.allocations.people import reconcile as people_reconcile
from gpuaas_platform.allocations.people import service as people
from gpuaas_platform.artifacts import reconcile as artifacts_reconcile
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import reconcile as nodes_reconcile
from gpuaas_platform.operations import reconcile as operations_reconcile
from platform_world import World, ssh_public_key

Sweep = Callable[[Site], Awaitable[None]]
SWEEPS: dict[str, Sweep] = {
    "allocations": allocations_reconcile.sweep,
    "artifacts": artifacts_reconcile.sweep,
    "authority": authority.sweep,
    "grants": grants_reconcile.sweep,
    "nodes": nodes_reconcile.sweep,
    "operations": operations_reconcile.sweep,
    "people": people_reconcile.sweep,
    "retention": server.forget_old_rows,
    "secrets": secrets_reconcile.sweep,
}
FEW, MANY = 10, 500


async def writes_of(world: World, sweep: Sweep, sweeps: int = 5) -> int:
    """Return how many write transactions these sweeps open when nothing is due."""
    await sweep(world.site)
    count = 0

    def counted(size: int, _: float) -> None:
        nonlocal count
        count += size

    world.site.database.on_group = counted
    for _ in range(sweeps):
        world.clock.forward(1)
        await sweep(world.site)
    return count


async def use_everything(world: World) -> None:
    """Make the history of a platform: a released allocation, an ended grant, tasks of the past, a retired node."""
    allocation = await world.allocation("n1")
    granted = await world.machine_access(world.token, allocation.allocation_id)
    await world.call(access.GRANT_REVOKE, {"reason": "over"}, grant_id=granted.grant_id)
    await world.finish_task(world.nodes["n1"])
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    await world.finish_task(world.nodes["n1"])
    await world.call(capacity.NODE_RETIRE, {"reason": "sold"}, node_id=world.nodes["n1"].node_id)


@pytest.mark.parametrize("name", SWEEPS)
async def test_an_idle_platform_writes_nothing(world: World, name: str) -> None:
    await use_everything(world)
    assert await writes_of(world, SWEEPS[name]) == 0


async def test_with_nodes_the_sweep_writes_only_the_note_of_presence(world: World) -> None:
    """Every heartbeat is a write of its own; the note is one small row for the whole fleet, every few seconds."""
    enrolled = await world.node("n1")
    facts = capacity.Facts(hostname="n1", cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    await world.call(node.STATUS, {"agent_version": "1", "boot_id": "1", "facts": facts}, token=enrolled.token)
    assert await writes_of(world, nodes_reconcile.sweep, sweeps=12) == 3


async def test_keys_that_are_installed_are_compared_without_a_write(world: World) -> None:
    await keys_on_machines(world, FEW)
    assert await writes_of(world, allocations_reconcile.sweep, sweeps=25) == 0


class CountingReader:
    """Records the statements of a reader."""

    def __init__(self, reader: db.Reader) -> None:
        self._reader = reader
        self.statements: list[str] = []

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        self.statements.append(sql)
        return await self._reader.one(sql, *values)

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        self.statements.append(sql)
        return await self._reader.all(sql, *values)


async def statements_of(world: World, sweep: Sweep) -> int:
    """The statements of one sweep that finds nothing to do."""
    await sweep(world.site)
    reader = world.site.database.reader
    world.site.database.reader = counting = CountingReader(reader)
    await sweep(world.site)
    world.site.database.reader = reader
    return len(counting.statements)


class CountingTx(CountingReader):
    """Records the reads of a transaction."""

    def __init__(self, tx: db.Tx) -> None:
        super().__init__(tx)
        self.run, self.wake = tx.run, tx.wake


async def test_the_sweep_of_nodes_takes_the_same_statements_for_any_fleet(world: World) -> None:
    await world.node("n0")
    await copy_node(world, "n0", FEW)
    few = await statements_of(world, nodes_reconcile.sweep)
    await world.node("m0")
    await copy_node(world, "m0", MANY)
    assert await statements_of(world, nodes_reconcile.sweep) == few


async def test_the_sweep_of_allocations_takes_the_same_statements_for_any_number_of_key_sets(world: World) -> None:
    await keys_on_machines(world, FEW)
    few = await statements_of(world, allocations_reconcile.sweep)
    await keys_on_machines(world, MANY, prefix="m")
    assert await statements_of(world, allocations_reconcile.sweep) == few


async def keys_on_machines(world: World, count: int, prefix: str = "n") -> None:
    """So many allocations whose machines have the keys of one person."""
    ada = await world.person(f"{prefix}ada", "project_admin", world.project_id)
    key = ssh_keys.AddSshKey(public_key=ssh_public_key(Ed25519PrivateKey.generate()))
    await world.call(ssh_keys.SSH_KEY_CREATE, key, token=ada.token)
    original = await world.allocation(f"{prefix}0")
    where = {"allocation_id": original.allocation_id}
    await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": [ada.user_id]}, **where)
    await world.finish_task(world.nodes[f"{prefix}0"])
    present = await key_store.key_set(world.site.database.reader, original.allocation_id)
    assert present is not None
    nodes = await copy_node(world, f"{prefix}0", count)
    copies = await allocate(world, original, nodes)

    async def use_case(tx: db.Tx) -> None:
        for allocation in copies:
            await key_store.set_people(tx, allocation.allocation_id, [ada.user_id])
            same = installation.InstalledSet(
                allocation_id=allocation.allocation_id, digest=present.digest, installed=present.installed
            )
            await key_store.save(tx, same, 0)

    await world.site.database.write(use_case)


async def test_the_sweep_of_people_takes_the_same_statements_for_any_number_of_people_and_machines(
    world: World,
) -> None:
    await people_on_machines(world, FEW)
    few = await statements_of(world, people_reconcile.sweep)
    await people_on_machines(world, MANY, prefix="m")
    assert await statements_of(world, people_reconcile.sweep) == few


async def test_the_people_of_a_project_are_read_once_for_all_its_machines(world: World) -> None:
    allocation_ids = [(await world.allocation(name)).allocation_id for name in ("n1", "n2", "n3")]

    async def install(tx: db.Tx) -> list[str]:
        counting = CountingTx(tx)
        await people.install(counting, world.site, system_origin(world.clock()), allocation_ids)
        return counting.statements

    statements = await world.site.database.write(install)
    assert sum("FROM posix_identities" in sql for sql in statements) == 1
    tasks = [await world.next_task(world.nodes[name]) for name in ("n1", "n2", "n3")]
    assert [task["type"] for task in tasks if task] == ["allocation.people"] * 3


async def people_on_machines(world: World, count: int, prefix: str = "n") -> None:
    """So many people of a project, and as many machines that have their accounts."""
    original = await world.allocation(f"{prefix}0")
    await allocate(world, original, await copy_node(world, f"{prefix}0", count))

    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            user_id = await identity_store.add_user(tx, f"{prefix}{number}", created_by="", now=world.clock())
            await identity_store.bind(tx, user_id, "project_member", world.project_id)

    await world.site.database.write(use_case)
    await people_reconcile.sweep(world.site)


async def test_the_sweep_of_grants_takes_the_same_statements_for_any_number_of_grants(world: World) -> None:
    await grants_of_people(world, FEW)
    few = await statements_of(world, grants_reconcile.sweep)
    await grants_of_people(world, MANY, prefix="m")
    assert await statements_of(world, grants_reconcile.sweep) == few
    assert len(await grants_store.active(world.site.database.reader)) == FEW + MANY + 2


async def grants_of_people(world: World, count: int, prefix: str = "n") -> None:
    """Grants of so many people, each for a machine of their own."""
    original = await world.allocation(f"{prefix}0")
    granted = await world.machine_access(world.token, original.allocation_id)
    grant = await grants_store.GRANTS.get(world.site.database.reader, granted.grant_id)
    assert grant is not None
    copies = await allocate(world, original, await copy_node(world, f"{prefix}0", count))

    async def use_case(tx: db.Tx) -> None:
        for number, allocation in enumerate(copies):
            user_id = await identity_store.add_user(tx, f"{prefix}{number}", created_by="", now=world.clock())
            await identity_store.bind(tx, user_id, "project_admin", world.project_id)
            copy = {
                "grant_id": f"{grant.grant_id}x{number}",
                "serial": str(int(grant.serial) + number + 1),
                "allocation_id": allocation.allocation_id,
                "node_id": allocation.node_id,
                "actor_id": user_id,
            }
            await grants_store.GRANTS.insert(tx, msgspec.structs.replace(grant, **copy))

    await world.site.database.write(use_case)


async def test_the_sweep_of_grants_takes_the_same_statements_for_any_number_of_nodes_with_revoked_serials(
    world: World,
) -> None:
    await send_serials(world, FEW)
    few = await statements_of(world, grants_reconcile.sweep)
    await send_serials(world, MANY)
    assert await statements_of(world, grants_reconcile.sweep) == few


async def send_serials(world: World, count: int) -> None:
    """Queue the task with revoked serials for so many nodes."""
    prefix = f"n{count}"
    await world.node(prefix)
    nodes = await copy_node(world, prefix, count)

    async def use_case(tx: db.Tx) -> None:
        for target in nodes:
            await revoke.send(tx, world.site, system_origin(world.clock()), target.node_id)

    await world.site.database.write(use_case)


async def test_a_node_whose_next_try_is_later_costs_no_write(world: World) -> None:
    allocation = await world.allocation("n1")
    granted = await world.machine_access(world.token, allocation.allocation_id)
    await world.call(access.GRANT_REVOKE, {"reason": "over"}, grant_id=granted.grant_id)
    await world.finish_task(world.nodes["n1"], "failed")
    assert await writes_of(world, grants_reconcile.sweep) == 0
