"""Labels of nodes and reservations: what people who operate a cluster plan in Slurm. Used by `node_actions`.

A label is a feature of a node, which jobs ask for with --constraint. The feature `worker` is the app's own: it puts a
node into the partitions, so it stays in front of the labels."""

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec
from gpuaas_sdk.failures import Refused, Temporary
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import facts, nodes, state


class NodeFacts(msgspec.Struct, frozen=True):
    """A node as Slurm shows it, with what jobs use of it."""

    node: state.Node
    cpus_used: int
    gpus_used: int
    features: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(feature for feature in self.features if feature != facts.WORKER_FEATURE)

    @property
    def is_worker(self) -> bool:
        return facts.WORKER_FEATURE in self.features


class Reservation(msgspec.Struct, frozen=True):
    name: str
    nodes: str
    node_count: int
    logins: str
    starts_at: str | None
    """None for a time after the last year of the calendar."""
    ends_at: str | None
    flags: str | None


class NewReservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of `reservation.create`."""

    name: str
    minutes: int
    users: tuple[str, ...]
    starts_at: datetime.datetime | None = None
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    ignore_jobs: bool = False


def parse_nodes(text: str) -> tuple[NodeFacts, ...]:
    """Return the nodes that `scontrol show nodes --json` printed. Pure."""
    raw = msgspec.json.decode(text)["nodes"]
    return tuple(_facts(node, item) for node, item in zip(state.parse_nodes(text), raw, strict=True))


def parse(text: str) -> tuple[Reservation, ...]:
    """Return the reservations that `scontrol show reservations --json` printed. Pure."""
    return tuple(_reservation(raw) for raw in msgspec.json.decode(text)["reservations"])


def settings(wanted: NewReservation) -> tuple[str, ...]:
    """Return what `scontrol create reservation` sets. Pure."""
    start = f"uts{int(wanted.starts_at.timestamp())}" if wanted.starts_at else "now"
    where = f"nodes={','.join(wanted.nodes)}" if wanted.nodes else f"nodecnt={wanted.node_count}"
    flags = ("flags=ignore_jobs",) if wanted.ignore_jobs else ()
    times = (f"starttime={start}", f"duration={wanted.minutes}")
    return (f"reservationname={wanted.name}", *times, f"users={','.join(wanted.users)}", where, *flags)


async def read_nodes(controller: Machine) -> tuple[NodeFacts, ...]:
    return parse_nodes(await nodes.show(controller, "nodes", "--json"))


async def label(controller: Machine, name: str, labels: Sequence[str]) -> None:
    """Replace the labels of a worker."""
    features = ",".join((facts.WORKER_FEATURE, *labels))
    words = (f"nodename={name}", f"availablefeatures={features}", f"activefeatures={features}")
    await _change(controller, "update", *words)


async def read(controller: Machine) -> tuple[Reservation, ...]:
    return parse(await nodes.show(controller, "reservations", "--json"))


async def create(controller: Machine, wanted: NewReservation) -> None:
    await _change(controller, "create", "reservation", *settings(wanted))


async def remove(controller: Machine, name: str) -> None:
    await _change(controller, "delete", f"reservationname={name}")


async def _change(controller: Machine, *argv: str) -> None:
    ran = await controller.run("scontrol", *argv, check=False)
    if ran.exit_status == 0:
        return
    error = (ran.stderr.strip() or ran.stdout.strip())[-500:]
    if "contact" in error.lower():
        raise Temporary(f"`scontrol {' '.join(argv)}` failed: {error}", after_s=2.0)
    raise Refused(f"Slurm refused `scontrol {' '.join(argv)}`: {error}", fix="correct the inputs of the action")


def _facts(node: state.Node, raw: dict[str, Any]) -> NodeFacts:
    used = state.gpu_count(raw.get("gres_used", ""))
    return NodeFacts(node, raw.get("alloc_cpus", 0), used, tuple(raw.get("active_features", ())))


def _reservation(raw: dict[str, Any]) -> Reservation:
    return Reservation(
        raw["name"],
        raw.get("node_list", ""),
        raw.get("node_count", 0),
        raw.get("users", ""),
        _shown(raw["start_time"]),
        _shown(raw["end_time"]),
        ",".join(raw.get("flags", ())) or None,
    )


def _shown(value: dict[str, Any]) -> str | None:
    moment = state.moment(value)
    return moment.isoformat() if moment else None
