"""The actions `node.*` and `reservation.*`, for people who operate a cluster. Registered by `controller`.

To drain and resume a node there is `gpuaas member drain` and `resume`: the platform records who did it, waits for the
jobs, and never confuses it with a drain that someone made in Slurm."""

from typing import Any

import msgspec
from gpuaas_sdk.controller import Member, Operation, Refused
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import reports, roles
from gpuaas_app_slurm.workload import nodes, reservations, state
from gpuaas_app_slurm.workload.reservations import NewReservation, NodeFacts

REBOOTABLE = ("ready", "degraded", "drained")
"""Statuses of members that are nodes of the cluster and that no operation changes."""


class LabelNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `node.label`."""

    node: str
    labels: tuple[str, ...]


class RebootNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `node.reboot`."""

    nodes: tuple[str, ...]


class RemoveReservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `reservation.remove`."""

    name: str


async def read_nodes(op: Operation) -> dict[str, Any]:
    return {"rows": [_row(item) for item in await reservations.read_nodes(await reports.head(op))]}


async def label(op: Operation) -> dict[str, Any]:
    """Replace the labels of a worker, and return the node as Slurm shows it after it."""
    asked, head = op.inputs_as(LabelNode), await reports.head(op)
    present = {item.node.name: item for item in await reservations.read_nodes(head)}
    if asked.node not in present or not present[asked.node].is_worker:
        names = ", ".join(name for name, item in present.items() if item.is_worker)
        raise Refused(f"the cluster has no worker {asked.node}", fix=f"choose one of {names}")
    await reservations.label(head, asked.node, asked.labels)
    after = {item.node.name: item for item in await reservations.read_nodes(head)}
    return {"rows": [_row(after[asked.node])]}


async def reboot(op: Operation) -> dict[str, Any]:
    """Have Slurm restart the machines of workers when their jobs have ended, and return the nodes as Slurm shows them.

    It does not wait for the restarts: jobs may run for days."""
    names, head = op.inputs_as(RebootNodes).nodes, await reports.head(op)
    present = {node.name: node for node in await nodes.read_all(head)}
    workers = {await reports.node_name(op, member): member for member in roles.workers_of(op.members)}
    for name in names:
        _require_rebootable(op, name, present.get(name), workers.get(name))
    reason = state.drain_reason(op.id, op.reason or "reboot")
    for name in names:
        await op.step(f"ask Slurm to restart {name}", _reboot, head, name, reason)
    after = {item.node.name: item for item in await reservations.read_nodes(head)}
    return {"rows": [_row(after[name]) for name in names if name in after]}


def _require_rebootable(op: Operation, name: str, node: state.Node | None, member: Member | None) -> None:
    """Refuse a node whose restart would end more than Slurm's jobs, or which Slurm cannot restart. Changes nothing."""
    if member is None or node is None:
        raise Refused(f"the cluster has no worker {name}", fix=f"gpuaas action run {op.instance.name} node.read")
    if roles.CONTROLLER in roles.roles_on(op.members, member.allocation_id):
        raise Refused(
            f"slurmctld runs on the machine of {name} too, and cannot restart its own machine",
            fix=f"gpuaas stop {op.instance.name}, restart the machine by hand, then gpuaas start {op.instance.name}",
        )
    if member.status not in REBOOTABLE:
        repair = f"gpuaas member repair {op.instance.name} {name}"
        wait = f"wait until it is ready: gpuaas get members --instance {op.instance.name}"
        raise Refused(f"{name} is {member.status}", fix=repair if member.status == "failed" else wait)
    if node.flags & state.REBOOTING and op.attempt == 1:
        raise Refused(f"{name} reboots already: {node.slurm_state}", fix="no action is needed")
    registered = state.node_registered(name, node)
    if not registered.ok and not node.flags & state.REBOOTING:
        raise Refused(
            f"node {name} is {node.slurm_state}, so Slurm cannot restart its machine",
            fix=f"gpuaas member repair {op.instance.name} {name}",
        )


async def _reboot(head: Machine, name: str, reason: str) -> None:
    """Ask once: an attempt that was interrupted after its question finds the answer in the state of the node."""
    node = await nodes.read(head, name)
    if node is not None and not node.flags & state.REBOOTING:
        await nodes.reboot(head, node, reason)


async def list_reservations(op: Operation) -> dict[str, Any]:
    return {"rows": [msgspec.structs.asdict(item) for item in await reservations.read(await reports.head(op))]}


async def create_reservation(op: Operation) -> dict[str, Any]:
    """Create a reservation. After a crash, the one that this action created before is found by its name."""
    wanted, head = op.inputs_as(NewReservation), await reports.head(op)
    if bool(wanted.nodes) == bool(wanted.node_count):
        raise Refused("a reservation needs either nodes or node_count", fix="give one of the two inputs")
    is_known = op.attempt > 1 and wanted.name in {item.name for item in await reservations.read(head)}
    if not is_known:
        await op.step("create the reservation", reservations.create, head, wanted)
    shown = [item for item in await reservations.read(head) if item.name == wanted.name]
    return {"rows": [msgspec.structs.asdict(item) for item in shown]}


async def remove_reservation(op: Operation) -> dict[str, Any]:
    """Remove a reservation. Jobs that run in it continue."""
    name, head = op.inputs_as(RemoveReservation).name, await reports.head(op)
    known = name in {item.name for item in await reservations.read(head)}
    if not known and op.attempt == 1:
        raise Refused(f"there is no reservation {name}", fix=f"gpuaas action run {op.instance.name} reservation.list")
    if known:
        await reservations.remove(head, name)
    return {"rows": [msgspec.structs.asdict(item) for item in await reservations.read(head)]}


def _row(item: NodeFacts) -> dict[str, Any]:
    node = item.node
    return {
        "node": node.name,
        "state": node.slurm_state,
        "reason": node.reason or None,
        "reason_by": node.reason_by or None,
        "cpus": node.cpus,
        "cpus_used": item.cpus_used,
        "memory_mb": node.memory_mb,
        "gpus": node.gpus,
        "gpus_used": item.gpus_used,
        "labels": ",".join(item.labels) or None,
        "version": node.version or None,
    }
