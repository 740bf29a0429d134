"""Report to the platform what Slurm shows: ready workers, failures on machines, evidence, the access bundle."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Literal

import msgspec
from gpuaas_contract.errors import LeaseLost
from gpuaas_sdk.controller import Evidence, Member, Operation, Permanent, PosixPerson, Temporary
from gpuaas_sdk.installs import packages
from gpuaas_sdk.machine import CommandFailed, Machine, MachineUnreachable
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_app_slurm import access, details, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    choices,
    config,
    hold,
    home,
    nodes,
    people,
    slurm,
    state,
    users,
    warnings,
)
from gpuaas_app_slurm.workload.people import Person


async def head(op: Operation) -> Machine:
    """Return the controller machine. While slurmctld does not answer, raise Temporary: the operation waits for it."""
    machine = await op.machine(roles.controller_of(op.members))
    check = await slurm.controller_answers(machine)
    if not check.ok:
        raise Temporary(check.reason)
    return machine


async def set_partitions(op: Operation, head: Machine, wanted: str) -> None:
    """Set the state of all partitions: `up`, `down` or `inactive`."""
    for partition in config.parse_inputs(op.instance.inputs).scheduler.partitions:
        await nodes.set_partition(head, partition.name, wanted)


async def open_partitions(op: Operation, head: Machine) -> None:
    """Open the partitions that are closed, unless an upgrade holds the queue: its end opens them. What Slurm shows
    decides, not what this attempt did: an attempt or an operation before may have closed them."""
    if await hold.is_held(head):
        return
    shown = choices.partition_states(await nodes.partitions_text(head))
    for partition in config.parse_inputs(op.instance.inputs).scheduler.partitions:
        if shown.get(partition.name, "").upper() != "UP":
            await nodes.set_partition(head, partition.name, "up")


@contextlib.asynccontextmanager
async def opened_after_failure(op: Operation, head: Machine) -> AsyncIterator[None]:
    """Open the partitions if the block fails, for any reason. If they cannot be opened either, that is shown, and the
    first failure counts. Without its lease a handler must not act: then the next attempt opens them."""
    try:
        yield
    except (LeaseLost, NoAnswer):
        raise
    except Exception:
        try:
            await open_partitions(op, head)
        except (Temporary, Permanent, CommandFailed, MachineUnreachable) as error:
            await op.say(f"cannot check whether the partitions are open: {error}. Check: scontrol show partition")
        raise


async def node_name(op: Operation, member: Member) -> str:
    """Return the name of the member's node in Slurm. The record is used first: the machine may be unreachable."""
    known = op.now(member).adapter_detail.get("node_name")
    if known:
        return str(known)
    try:
        return (await op.machine(member)).hostname
    except Temporary:
        return member.node_name


async def ready_worker(
    op: Operation, member: Member, controller: Machine, looks: nodes.Looks | None = None, **more: object
) -> None:
    """Report the worker as ready, with what Slurm shows of its node and `more` in its detail."""
    await worker(op, member, controller, "ready", looks, **more)


async def worker(
    op: Operation,
    member: Member,
    controller: Machine,
    status: Literal["ready", "drained"],
    looks: nodes.Looks | None = None,
    **more: object,
) -> None:
    """Report a worker with what Slurm shows of it, and its versions."""
    machine = await op.machine(member)
    looks = looks or nodes.Looks(controller)
    node, warned = await asyncio.gather(looks.node(machine.hostname), warnings.of(machine, "slurmd"))
    package = warned.pop("package_version")
    kept = details.replaced(op.now(member).adapter_detail)
    detail = details.worker_detail(machine.hostname, node, package) | warned | kept | more
    reason = details.version_warning(detail)
    await op.report(member, status=status, reason=reason, detail=detail, version=detail.get("daemon_version"))


async def ready_controller(op: Operation, controller: Member, inputs: config.Inputs) -> None:
    """Report the member of slurmctld as ready. Raise Permanent unless Slurm and its accounting answer."""
    machine = await op.machine(controller)
    ping, clusters, shown, package = await machine.run_all(
        slurm.PING, accounting.CLUSTERS, slurm.CONFIG, packages.version_query("slurmctld"), check=False
    )
    scheduler = state.controller_answers(ping.stdout + ping.stderr)
    database = state.accounting_answers(clusters.stdout, inputs.cluster_name)
    if not (scheduler.ok and database.ok and shown.exit_status == 0):
        reason = f"{scheduler.reason} {database.reason} {shown.stderr}".strip()
        raise Permanent(reason, fix="scontrol ping; sacctmgr -n show cluster")
    version = state.running_version(shown.stdout)
    detail = {
        "cluster_name": inputs.cluster_name,
        "slurmctld": "up",
        "slurmdbd": "up",
        "package_version": packages.parse_version(package),
        "daemon_version": version,
    }
    lasting = (details.USAGE_UNTIL, details.REPLACED)
    detail |= {name: value for name, value in op.now(controller).adapter_detail.items() if name in lasting}
    warning = details.version_warning(detail)
    await op.report(controller, status="ready", reason=warning, detail=detail, version=version)


def people_of(people: Iterable[PosixPerson]) -> tuple[Person, ...]:
    """Return the people of the project as users of Slurm."""
    return tuple(Person(person.login, person.uid, person.gid, person.state == "left") for person in people)


async def sync_people(op: Operation, machine: Machine, inputs: config.Inputs, settings: Settings) -> people.Synced:
    """Give the people of the project what they need to submit jobs. Shows the jobs of those who left."""
    everyone = people_of(await op.people())
    if not everyone:
        return people.Synced(people.Changes(), {})
    ignored = users.shared_logins(everyone, await users.of_cluster(machine, inputs.users, everyone))
    if ignored:
        await op.say(f"people are ignored whose login belongs to a user of the cluster: {', '.join(ignored)}")
    wanted = tuple(person for person in everyone if person.login not in ignored)
    await op.say(f"giving {len(wanted)} people of the project their place in Slurm")
    synced = await people.sync(machine, inputs.cluster_name, wanted, within_s=settings.accounts_s, progress=op.say)
    if synced.waiting:
        await op.say(f"no Unix account on {machine.hostname} yet: {', '.join(synced.waiting)}")
    if synced.jobs:
        await op.say(f"jobs of people who left the project: {people.jobs_text(synced.jobs)}")
    return msgspec.structs.replace(synced, ignored=ignored)


async def removed(
    op: Operation,
    member: Member,
    reason: str = "",
    *,
    status: Literal["removed", "tombstoned"] = "removed",
    **more: object,
) -> None:
    """Report a member as gone. Its detail keeps only what describes the past."""
    kept = {name: value for name, value in op.now(member).adapter_detail.items() if name in details.LASTING}
    await op.report(member, status=status, reason=reason, detail=kept | more)


def evidence(look: nodes.Look, name: str) -> Evidence:
    """Return what a look at the node shows of its work, with the time of the look."""
    check = state.no_work(name, look.node, look.jobs)
    working = bool(look.jobs) or (look.node is not None and bool(look.node.flags & state.WORKING))
    return Evidence(
        state="idle" if check.ok else "busy" if working else "unknown",
        source="scontrol show nodes, squeue",
        observed_at=look.observed_at,
        detail=check.reason or (f"{name} is {look.node.slurm_state} and runs no job" if look.node else _absent(name)),
        running_work=len(look.jobs),
    )


async def publish_access(op: Operation, inputs: config.Inputs | None = None) -> None:
    """Publish the access bundle with the present number of ready workers; with other inputs after a change of them."""
    controller = roles.controller_of(op.members)
    machine = await op.machine(controller)
    ready = [member for member in roles.workers_of(op.members) if member.status == "ready"]
    logins = [member for member in roles.logins_of(op.members) if member.status == "ready"]
    inputs = inputs or config.parse_inputs(op.instance.inputs)
    homes = await home.in_use(machine, inputs.home, machine.address)
    entry = logins[0] if logins else controller
    place = (
        access.Login(entry.allocation_id, entry.node_name, entry.address)
        if logins
        else access.Login(controller.allocation_id, machine.hostname, machine.address)
    )
    await op.publish_access(access.bundle(inputs, op.instance.name, place, machine.address, len(ready), homes))


def _absent(name: str) -> str:
    return f"Slurm has no node {name}, so no job can run there"
