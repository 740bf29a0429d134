"""The actions `node.*` and `reservation.*`, for people who operate a cluster. Registered by `controller`.

To drain and resume a node there is `gpuaas member drain` and `resume`: the platform records who did it, waits for the
jobs, and never confuses it with a drain that someone made in Slurm."""

from typing import Any

import msgspec
from gpuaas_sdk.controller import Operation, Refused

from gpuaas_app_slurm import reports
from gpuaas_app_slurm.workload import reservations
from gpuaas_app_slurm.workload.reservations import NewReservation, NodeFacts


class LabelNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `node.label`."""

    node: str
    labels: tuple[str, ...]


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
