"""Decide from the receipt what to undo on a machine when a role is removed from it. Pure; `uninstall` acts on it."""

from collections.abc import Sequence

import msgspec

from gpuaas_app_slurm import roles
from gpuaas_app_slurm.workload import receipts

UNITS_OF = {roles.WORKER: ("slurmd",), roles.LOGIN: ("slurmd",), roles.CONTROLLER: ("slurmctld", "slurmdbd", "mariadb")}


class Undo(msgspec.Struct, frozen=True):
    """The changes to undo on one machine when one role is removed from it."""

    stop_units: tuple[str, ...]
    paths: tuple[str, ...] = ()
    empty_folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    restore_units: tuple[receipts.UnitBefore, ...] = ()
    restore_contents: dict[str, str] = {}
    drop_database: bool = False
    last: bool = False
    """No other role remains on the machine, so everything on the receipt is undone."""


def undo(receipt: receipts.Receipt, leaving: str) -> Undo:
    """Return what to undo: only the parts of the role if another role stays, otherwise everything on the receipt."""
    if any(role != leaving for role in receipt.roles):
        return _undo_one_role(leaving)
    before = tuple(unit for unit in receipt.units if unit.enabled not in ("absent", "not-found"))
    running = {unit.name.removesuffix(".service") for unit in before if unit.active == "active"}
    # The reporter stops first, because it reports a stopped unit as a problem.
    stopped = (receipts.REPORTER_UNIT, *UNITS_OF[roles.WORKER], *UNITS_OF[roles.CONTROLLER])
    return Undo(
        stop_units=tuple(unit for unit in stopped if unit not in running),
        paths=(*receipt.paths, *(path for path in receipts.REPORTER_PATHS if path not in receipt.paths)),
        empty_folders=tuple(receipt.folders_to_empty),
        packages=tuple(receipt.packages),
        users=tuple(receipt.users),
        groups=tuple(receipt.groups),
        restore_units=before,
        restore_contents=receipt.contents,
        drop_database=leaving == roles.CONTROLLER and "mariadb-server" not in receipt.packages,
        last=True,
    )


def left_behind(instance_id: str, roles_left: Sequence[str]) -> str:
    """Describe what remains on a machine that did not answer."""
    return (
        f"Slurm ({', '.join(roles_left)}) was not removed: services, packages, users; "
        f"the list of what to undo is on the machine in {receipts.path_of(instance_id)}"
    )


def _undo_one_role(leaving: str) -> Undo:
    units = UNITS_OF[leaving]
    drop_ins = tuple(f"/etc/systemd/system/{unit}.service.d/gpuaas.conf" for unit in units)
    folders = ("/var/lib/slurm/slurmd",) if leaving != roles.CONTROLLER else ()
    return Undo(stop_units=units, paths=drop_ins, empty_folders=folders)
