"""Decide and check where homes are, before anything is installed. Called by the handlers in `bring_up`."""

import asyncio
from collections.abc import Sequence

import msgspec
from gpuaas_sdk.controller import Member, Operation, members

from gpuaas_app_slurm.workload import config, facts, home, users


async def chosen(
    op: Operation,
    controller: Member,
    present: Sequence[Member],
    inputs: config.Inputs,
    accounts: Sequence[users.User],
) -> tuple[home.Home, dict[str, facts.Facts]]:
    """Return where the homes of a new cluster are, after a check on all its machines, and the facts of these machines
    by allocation. A repeated deploy keeps what the first one chose, and reads no facts."""
    head = await op.machine(controller)
    if await head.get(home.UNIT_PATH) is not None:
        return await checked(op, controller, present, inputs), {}
    distinct = members.one_per_machine(present)
    machines = await asyncio.gather(*(op.machine(member) for member in distinct))
    seen = await asyncio.gather(*(facts.read(machine) for machine in machines))
    by_allocation = {member.allocation_id: each for member, each in zip(distinct, seen, strict=True)}
    homes = home.resolve(inputs.home, head.address, seen)
    others = [machine for machine in machines if machine.address != head.address]
    await op.say(f"checking home {homes.shown} on {len(machines)} machines")
    await home.check(homes, head, others)
    if homes.kind == "shared":
        await users.refuse_other_owners(head, homes.source, accounts)
    if homes.is_exported:
        homes = msgspec.structs.replace(homes, clients=tuple(member.address for member in op.members))
    return homes, by_allocation


async def checked(op: Operation, controller: Member, targets: Sequence[Member], inputs: config.Inputs) -> home.Home:
    """Return where the homes of a deployed cluster are, after a check on the machines that join it."""
    head = await op.machine(controller)
    homes = await home.in_use(head, inputs.home, head.address)
    machines = await asyncio.gather(*(op.machine(member) for member in members.one_per_machine(targets)))
    await home.check(homes, head, [machine for machine in machines if machine.address != head.address])
    if homes.is_exported:
        await home.export(head, [member.address for member in (*op.members, *targets)])
    return homes
