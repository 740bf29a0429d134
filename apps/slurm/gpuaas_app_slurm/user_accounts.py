"""The accounts of users who are not people of the project, on all machines of a cluster. Used by `user_actions`, and by
the handlers that bring up or repair a machine.

Actions run beside other operations, so every list of users can be old when it is written: see `workload.users`."""

import asyncio
from collections.abc import Sequence

import msgspec
from gpuaas_sdk.controller import Member, Operation, Permanent, Temporary, members
from gpuaas_sdk.machine import CommandFailed, Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, users
from gpuaas_app_slurm.workload.users import User

NAMES_MAX = 10
"""How many machines a note names: the platform limits its length."""


class Written(msgspec.Struct, frozen=True):
    """On how many machines accounts were written, and which machines could not be reached."""

    machines: int
    away: tuple[str, ...] = ()

    @property
    def away_text(self) -> str:
        shown = ", ".join(self.away[:NAMES_MAX])
        rest = len(self.away) - NAMES_MAX
        return f"{shown} and {rest} more" if rest > 0 else shown


async def of_cluster(op: Operation, head: Machine) -> tuple[User, ...]:
    """Return the users of the cluster who are not people of the project, as the machine of slurmctld has them now."""
    inputs, people = config.parse_inputs(op.instance.inputs), reports.people_of(await op.people())
    return await users.of_cluster(head, inputs.users, people)


async def write(
    op: Operation, head: Machine, accounts: Sequence[User], settings: Settings, *, restores: bool = False
) -> Written:
    """Write these accounts on the machine of slurmctld, whose accounts are the record of users and numbers, and then on
    every other machine that answers."""
    await users.ensure_noted(head, op.instance.instance_id, accounts, restores=restores)
    return await write_elsewhere(op, head, accounts, settings, restores=restores)


async def write_elsewhere(
    op: Operation, head: Machine, accounts: Sequence[User], settings: Settings, *, restores: bool = False
) -> Written:
    """Write these accounts on every machine but the one of slurmctld. A failure is raised when all have ended."""

    async def ensure(machine: Machine) -> None:
        await users.ensure_noted(machine, op.instance.instance_id, accounts, restores=restores)

    controller = roles.controller_of(op.members)
    distinct = members.one_per_machine(op.members)
    others = [member for member in distinct if member.allocation_id != controller.allocation_id]
    results = await asyncio.gather(
        *(_is_done(op, member, ensure, settings) for member in others), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    away = tuple(members.name(member) for member, done in zip(others, results, strict=True) if not done)
    return Written(1 + len(others) - len(away), away)


async def give(op: Operation, member: Member, head: Machine, settings: Settings) -> None:
    """Give a machine the users that the cluster has now. It can have accounts from a list that was read earlier."""

    async def ensure(machine: Machine) -> None:
        await users.ensure_noted(machine, op.instance.instance_id, await of_cluster(op, head))

    await op.on(member, ensure, patience_s=settings.reach_s)


async def _is_done(op: Operation, member: Member, work: members.Work, settings: Settings) -> bool:
    """Do the work on the machine; return whether it could be reached."""
    try:
        await op.on(member, work, patience_s=settings.reach_repair_s)
    except CommandFailed:
        raise
    except (Temporary, Permanent) as error:
        await op.say(f"{members.name(member)} was not changed: {error}")
        return False
    return True
