"""The handlers of deploy and add: install Slurm, join the machines, run a first job. Registered by `controller`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Member, Operation, Permanent, members, package_sources
from gpuaas_sdk.machine import Machine, MachineUnreachable

from gpuaas_app_slurm import homes_of_cluster, login, reports, roles, user_accounts
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    choices,
    cluster,
    config,
    containers,
    facts,
    home,
    nodes,
    reporter,
    rest,
    slurm,
    state,
    users,
)
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.removal_acts import SlurmActs

Result = TypeVar("Result")
POLL_S = 0.1
BUSY_POLL_S = 2.0
"""How often a node is asked for jobs of people while its first job waits."""


@dataclass(frozen=True)
class Joining:
    """What every step of one deploy or add needs."""

    op: Operation
    inputs: config.Inputs
    settings: Settings
    homes: home.Home
    users: tuple[users.User, ...]
    """The users of the cluster who are not people of the project."""
    seen: dict[str, facts.Facts] = field(default_factory=dict)
    """Facts that were read before the packages were installed, by allocation."""
    prepared: dict[str, facts.Facts] = field(default_factory=dict)
    """Facts of the nodes that this process gave their files, by allocation. A later attempt begins without them."""
    with_reporter: set[str] = field(default_factory=set)
    """Allocations whose machines this process gave the files of the health reporter."""

    @property
    def controller(self) -> Member:
        return roles.controller_of(self.op.members)


async def deploy(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    config.check_users(inputs.users)
    choices.check(inputs.scheduler)
    roles.refuse_shared_logins(op.members)
    accounts = await _users_of_form(op, inputs)
    controller = roles.controller_of(op.members)
    reached = await op.each(op.to_do, lambda member: _reach(op, member, settings), raises=False)
    if _is_failed(op, controller):
        return  # There is no cluster without its controller.
    present = tuple(member for member in op.members if not _is_failed(op, member))
    homes, seen = await homes_of_cluster.chosen(op, controller, present, inputs, accounts)
    joining = Joining(op, inputs, settings, homes, accounts, seen)
    installed = await op.each(reached.ok, lambda member: _prepare(joining, member, present), raises=False)
    if _is_failed(op, controller):
        return
    async with beside(_finish_controller(joining, present)):
        head = await op.machine(controller)
        await _join_and_prove(
            joining, roles.nodes_of(installed.ok), await slurm.read_common(head, inputs, op.instance.app_version)
        )
    if not _is_alone(controller, present):
        await _report_on(joining, controller, present)
    await reports.ready_controller(op, controller, inputs)
    await reports.publish_access(op)


async def add(op: Operation, settings: Settings) -> None:
    inputs = config.parse_inputs(op.instance.inputs)
    roles.refuse_joining_shared_logins(op.to_do, op.members, op.instance.name)
    async with beside(_connect(op)):
        head = await reports.head(op)
    homes, accounts = await asyncio.gather(
        homes_of_cluster.checked(op, roles.controller_of(op.members), op.to_do, inputs),
        user_accounts.of_cluster(op, head),
    )
    joining = Joining(op, inputs, settings, homes, accounts)
    # This does not change while machines are installed: an upgrade and a new key exclude other operations.
    async with beside(slurm.read_common(head, inputs, op.instance.app_version)) as common:
        installed = await op.each(op.to_do, lambda member: _install(joining, member, ()), raises=False)
    ready = await _with_users_of_now(joining, head, installed.ok)
    await _join_and_prove(joining, ready, common.result())
    await reports.publish_access(op)


async def _users_of_form(op: Operation, inputs: config.Inputs) -> tuple[users.User, ...]:
    """Return the users of the form with their numbers. Before anything was changed, refuse logins of people. A person
    who gets such a login later is ignored instead: see `reports.sync_people`."""
    people = reports.people_of(await op.people())
    if all(member.status == "requested" for member in op.members):
        users.refuse_people(inputs.users, people, "deploy again with other names in `users`")
    return users.at_deploy(inputs.users, people)


async def _with_users_of_now(joining: Joining, head: Machine, installed: tuple[Member, ...]) -> tuple[Member, ...]:
    """Bring the accounts of new machines up to date: users may have been added or removed while packages were
    installed. It costs one command if they were not. Return the machines that have them."""
    op = joining.op
    if op.attempt == 1 and await user_accounts.of_cluster(op, head) == joining.users:
        return installed
    give = partial(user_accounts.give, op, head=head, settings=joining.settings)
    return (await op.each(installed, give, raises=False)).ok


async def _connect(op: Operation) -> None:
    """Open the connections to the new machines, all at once."""
    await asyncio.gather(*(op.machine(member) for member in members.one_per_machine(op.to_do)))


async def _reach(op: Operation, member: Member, settings: Settings) -> None:
    async def answer(machine: Machine) -> None:
        await machine.run("true")

    async def step() -> None:
        await members.on_machine(op, member, "reach the machine", answer, patience_s=settings.reach_s)

    await op.advance(member, "provisioning")
    await op.step("reach the machine", step, member=member)


async def _prepare(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    """Install Slurm on the machine. Start the controller as soon as its machine is ready, before all workers are."""
    await _install(joining, member, present)
    if member.component_key == roles.CONTROLLER:
        await joining.op.step("start the controller", _start_controller, joining, member, present, member=member)


async def _install(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    op = joining.op
    roles_here = roles.roles_on(present, member.allocation_id) or (member.component_key,)
    if len(roles_here) > 1 and member.component_key != roles.CONTROLLER:
        return  # If both roles share a machine, the step of the controller installs for both.

    async def install(machine: Machine) -> None:
        await members.take_over(op, member, machine, SLURM, SlurmActs())
        source = await package_sources.of(op, member, machine, SLURM, joining.inputs.packages)
        instance_id, homes, address = op.instance.instance_id, joining.homes, joining.controller.address
        more = packages_of_options(joining.inputs, roles_here)
        seen = await slurm.install(
            machine, instance_id, roles_here, joining.users, op.say, homes, source, address, more
        )
        await containers.require(machine, joining.inputs.containers, roles_here, joining.inputs.users[0])
        if seen is not None:
            joining.prepared[member.allocation_id] = seen
            joining.with_reporter.add(member.allocation_id)

    async def step() -> None:
        await members.on_machine(op, member, "install packages", install, patience_s=joining.settings.reach_s)

    await op.advance(member, "provisioning")
    await op.step("install packages", step, member=member)


def packages_of_options(inputs: config.Inputs, roles_here: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages of the options that were chosen, for a machine with these roles."""
    return *rest.packages(inputs.rest_api, roles_here), *containers.packages(inputs.containers, roles_here)


async def _start_controller(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    op = joining.op

    async def start(machine: Machine) -> None:
        own = joining.seen.get(member.allocation_id) or await facts.read(machine)
        others = await _facts_of_others(joining, member, present)
        cluster.refuse_same_names((own, *others))
        roles_here = roles.roles_on(present, member.allocation_id)
        is_shared = roles.WORKER in roles_here
        workers = (own, *others) if is_shared else others
        wanted = cluster.cluster_of(op.instance.instance_id, joining.inputs, own, machine.address, workers)
        await slurm.start_controller(machine, wanted, joining.inputs.users, joining.settings, op.say, roles_here)
        joining.with_reporter.add(member.allocation_id)

    await op.advance(member, "joining")
    await members.on_machine(op, member, "start the controller", start, patience_s=joining.settings.reach_s)


async def _finish_controller(joining: Joining, present: tuple[Member, ...]) -> None:
    """Do what the nodes need not wait for: give people their place in Slurm, and start the health reporter."""
    op, member = joining.op, joining.controller

    async def sync(machine: Machine) -> None:
        await reports.sync_people(op, machine, joining.inputs, joining.settings)

    await members.on_machine(op, member, "start the controller", sync, patience_s=joining.settings.reach_s)
    if _is_alone(member, present):
        await _report_on(joining, member, present)


def _is_alone(controller: Member, present: tuple[Member, ...]) -> bool:
    """Return whether the machine has no other role, so that it is complete before the nodes have joined."""
    return roles.roles_on(present, controller.allocation_id) == (roles.CONTROLLER,)


async def _join_and_prove(joining: Joining, installed: tuple[Member, ...], common: slurm.Common) -> None:
    op = joining.op
    head = await op.machine(joining.controller)
    looks = nodes.Looks(head)
    joined = await op.each(installed, lambda member: _join(joining, member, common, looks), raises=False)
    await op.each(joined.ok, lambda member: _prove(joining, member, head, looks), raises=False)


async def _join(joining: Joining, member: Member, common: slurm.Common, looks: nodes.Looks) -> None:
    op, role = joining.op, member.component_key

    async def join(machine: Machine) -> None:
        head, prepared = await op.machine(joining.controller), joining.prepared.get(member.allocation_id)
        await slurm.join(machine, head, common, joining.settings, op.say, role, prepared, looks)

    async def step() -> None:
        await members.on_machine(op, member, "join the cluster", join, patience_s=joining.settings.reach_s)

    await op.advance(member, "joining")
    await op.step("join the cluster", step, member=member)


async def _prove(joining: Joining, member: Member, head: Machine, looks: nodes.Looks) -> None:
    """Report the member as ready after a job ran on it, or, on a login machine, a question was answered."""
    op, user = joining.op, joining.inputs.users[0]
    async with beside(_report_on(joining, member, op.members)):
        if member.component_key == roles.WORKER:
            name = (await op.machine(member)).hostname
            await op.step("first job runs", run_first_job, op, head, name, user, joining.settings, looks, member=member)
    if member.component_key == roles.LOGIN:
        await login.report_ready(op, member, user)
    else:
        await reports.ready_worker(op, member, head, looks)


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, Result]) -> AsyncIterator[asyncio.Future[Result]]:
    """Do this work while the block runs; its result is there after the block. If the block fails, it is stopped."""
    working = asyncio.ensure_future(work)
    try:
        yield working
        await working
    finally:
        working.cancel()
        await asyncio.wait({working})


async def _report_on(joining: Joining, member: Member, present: tuple[Member, ...]) -> None:
    """Start the health reporter of the machine, which now is what it should be."""
    roles_here = roles.roles_on(present, member.allocation_id)
    is_written = member.allocation_id in joining.with_reporter

    async def start(machine: Machine) -> None:
        await reporter.start(machine, roles_here, is_written=is_written)

    patience_s = joining.settings.reach_s
    await members.on_machine(joining.op, member, "start the health reporter", start, patience_s=patience_s)


async def run_first_job(
    op: Operation, head: Machine, name: str, user: str, settings: Settings, looks: nodes.Looks | None = None
) -> None:
    """Check that a job runs on the node. If it does not, pass only if the node ran jobs of people while it waited."""
    looks = looks or nodes.Looks(head)
    await op.say(f"{user} runs srun on {name}")
    running = asyncio.ensure_future(nodes.canary(head, user, (name,), settings.first_job_s))
    try:
        is_busy = await _runs_jobs_of_people(looks, name, until=running)
        check = await running
    finally:
        running.cancel()
        await asyncio.wait({running})
    if check.ok:
        over = partial(is_first_job_over, looks, name)
        await op.until(over, within_s=settings.first_job_s, every_s=POLL_S)
    elif not is_busy:
        raise Permanent(check.reason, fix=f"sinfo -N -l; srun -w {name} hostname")


async def _runs_jobs_of_people(looks: nodes.Looks, name: str, *, until: asyncio.Future[Check]) -> bool:
    """Return whether the node ran jobs of people at some time until the first job ended. In a cluster with a queue,
    these start first, and the first job can wait for longer than its limit. If it ran, this is not asked again."""
    while not await looks.runs_jobs_of_people(name):
        if until.done():
            return False
        await asyncio.wait({until}, timeout=BUSY_POLL_S)
        if until.done() and until.result().ok:
            return False
    return True


async def is_first_job_over(looks: nodes.Looks, name: str) -> Check:
    return state.last_job_over((name,), await looks.nodes())


async def _facts_of_others(
    joining: Joining, controller: Member, present: tuple[Member, ...]
) -> tuple[facts.Facts, ...]:
    """Return the facts of the other machines. Leave out unreachable machines: the steps of their members will fail."""
    others = [member for member in present if member.allocation_id != controller.allocation_id]

    async def read(member: Member) -> facts.Facts | None:
        if member.allocation_id in joining.seen:
            return joining.seen[member.allocation_id]
        try:
            return await facts.read(await joining.op.machine(member))
        except MachineUnreachable:
            return None

    answers = await asyncio.gather(*(read(member) for member in others))
    return tuple(machine for machine in answers if machine is not None)


def _is_failed(op: Operation, member: Member) -> bool:
    return op.now(member).status == "failed"
