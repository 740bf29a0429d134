"""Decisions of the Slurm app, all pure: which machines play which roles, what the cluster is made of, what a
teardown undoes.  The handlers in `controller` and `take_down` act on them."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from gpuaas_sdk.failures import Permanent

from gpuaas_app_slurm import config, facts, receipt, state

CONTROLLER = "controller"
WORKER = "worker"

REACH_S = 60.0
"""How long a machine may stay unreachable during deploy and add before its member fails."""
REACH_LEAVING_S = 20.0
"""The same during decommission, where the machine may be gone for good."""
SLURMD_START_S = 60.0
CONTROLLER_START_S = 60.0
JOIN_S = 90.0
CANARY_S = 60.0
CANCEL_JOBS_S = 120.0
DRAIN_WAIT_S = 86400.0
DRAIN_EVERY_S = 2.0

MEMORY_PER_CPU_MIN_MB = 64

UNITS_OF = {WORKER: ("slurmd",), CONTROLLER: ("slurmctld", "slurmdbd", "mariadb")}


class MachineAway(Permanent):
    """The machine stayed unreachable for as long as the operation could wait."""

    def __init__(self, name: str, address: str, waited_s: float, error: str) -> None:
        super().__init__(
            f"machine {name} ({address}) did not answer for {waited_s:.0f} s: {error}",
            fix=f"ping {address}; ssh {address} true",
        )


class Member(Protocol):
    """What the app reads of a platform member."""

    @property
    def component_key(self) -> str: ...
    @property
    def allocation_id(self) -> str: ...


AnyMember = TypeVar("AnyMember", bound=Member)


class Undo(msgspec.Struct, frozen=True):
    """What one role's departure undoes on one machine."""

    stop_units: tuple[str, ...]
    paths: tuple[str, ...] = ()
    empty_folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    restore_units: tuple[receipt.UnitBefore, ...] = ()
    restore_contents: dict[str, str] = {}
    drop_database: bool = False
    last: bool = False


def controller_of(members: Iterable[AnyMember]) -> AnyMember:
    found = next((member for member in members if member.component_key == CONTROLLER), None)
    if found is None:
        raise Permanent("the instance has no controller member left", fix="decommission the instance")
    return found


def workers_of(members: Iterable[AnyMember]) -> tuple[AnyMember, ...]:
    return tuple(member for member in members if member.component_key == WORKER)


def roles_on(members: Iterable[Member], allocation_id: str) -> tuple[str, ...]:
    """Roles that share one machine, the controller first."""
    keys = {member.component_key for member in members if member.allocation_id == allocation_id}
    return tuple(role for role in (CONTROLLER, WORKER) if role in keys)


def refuse_same_names(machines: Sequence[facts.Facts]) -> None:
    names = [machine.hostname for machine in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Permanent(
            f"two machines call themselves {', '.join(twice)}; Slurm knows a node by its host name",
            fix="hostnamectl set-hostname NAME",
        )


def cluster_of(
    instance_id: str, inputs: config.Inputs, controller: facts.Facts, address: str, workers: Sequence[facts.Facts]
) -> config.Cluster:
    return config.Cluster(
        instance_id=instance_id,
        cluster_name=inputs.cluster_name,
        partition=inputs.partition,
        controller_hostname=controller.hostname,
        controller_address=address,
        cgroup=cgroup_for(workers or (controller,)),
        memory_per_cpu_mb=memory_per_cpu_mb(workers or (controller,)),
    )


def cgroup_for(workers: Sequence[facts.Facts]) -> facts.Cgroup:
    """One answer for all nodes: a single host without a pure cgroup v2 tree would not start slurmd otherwise."""
    return "v2" if all(machine.cgroup == "v2" for machine in workers) else "disabled"


def memory_per_cpu_mb(workers: Sequence[facts.Facts]) -> int:
    """So that a job which asks for every core of the leanest node gets all of its memory, and no job waits for ever."""
    shares = [facts.schedulable_memory_mb(machine.memory_mb) // machine.cpus for machine in workers]
    return max(MEMORY_PER_CPU_MIN_MB, min(shares))


def refuse_other_cgroup(machine: facts.Facts, used: facts.Cgroup) -> None:
    if used == "v2" and machine.cgroup != "v2":
        raise Permanent(
            f"machine {machine.hostname} has no pure cgroup v2 tree, which this cluster confines its jobs with",
            fix="boot it with systemd.unified_cgroup_hierarchy=1",
        )


def version_warning(detail: dict[str, Any]) -> str:
    """Empty while the running daemon is the installed one; an upgrade without a restart shows here."""
    package, daemon = str(detail.get("package_version", "")), str(detail.get("daemon_version", ""))
    if not package or not daemon or package.split(":", 1)[-1].startswith(daemon):
        return ""
    return f"package {package} is installed, but {daemon} still runs: restart the daemon"


def drain_reason(operation_id: str, reason: str) -> str:
    return f"{state.OUR_DRAIN}{operation_id}: {reason or 'no reason given'}"


def undo(note: receipt.Receipt, leaving: str) -> Undo:
    """What remains recorded for a role that stays is kept; the last role to leave takes everything along."""
    staying = [role for role in note.roles if role != leaving]
    if staying:
        return _undo_one_role(leaving)
    before = tuple(unit for unit in note.units if unit.enabled not in ("absent", "not-found"))
    running = {unit.name.removesuffix(".service") for unit in before if unit.active == "active"}
    return Undo(
        stop_units=tuple(unit for unit in (*UNITS_OF[WORKER], *UNITS_OF[CONTROLLER]) if unit not in running),
        paths=tuple(note.paths),
        empty_folders=tuple(note.folders_to_empty),
        packages=tuple(note.packages),
        users=tuple(note.users),
        groups=tuple(note.groups),
        restore_units=before,
        restore_contents=note.contents,
        drop_database=leaving == CONTROLLER and "mariadb-server" not in note.packages,
        last=True,
    )


def left_behind(instance_id: str, roles: Sequence[str]) -> str:
    return (
        f"Slurm ({', '.join(roles)}) as it was: services, packages, users; "
        f"what to undo is written on the machine in {receipt.path_of(instance_id)}"
    )


def worker_detail(name: str, node: state.Node | None, package_version: str) -> dict[str, Any]:
    if node is None:
        return {"node_name": name, "slurm_state": "absent", "reason": "Slurm does not know this node"}
    return {
        "node_name": node.name,
        "slurm_state": node.slurm_state,
        "reason": node.reason,
        "cpus": node.cpus,
        "memory_mb": node.memory_mb,
        "gpus": node.gpus,
        "package_version": package_version,
        "daemon_version": node.version,
    }


def _undo_one_role(leaving: str) -> Undo:
    units = UNITS_OF[leaving]
    drop_ins = tuple(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf" for unit in units)
    folders = ("/var/lib/slurm/slurmd",) if leaving == WORKER else ()
    return Undo(stop_units=units, paths=drop_ins, empty_folders=folders)
