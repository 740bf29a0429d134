"""Decide from the receipt what to undo on a machine when a role is removed from it. Pure; `uninstall` acts on it."""

from collections.abc import Sequence

import msgspec

from gpuaas_sdk.installs import receipts
from gpuaas_sdk.installs.footprint import Footprint


class Undo(msgspec.Struct, frozen=True):
    """The changes to undo on one machine when one role is removed from it.

    plan = undo.undo(KV, receipt, "server")
    plan.last  # True: no other role remains, so everything on the receipt is undone"""

    stop_units: tuple[str, ...]
    """Services that must not run afterwards. With the last role these are the services of all roles, so that nothing of
    the app can be left; `services` has those that the machine had."""
    paths: tuple[str, ...] = ()
    empty_folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    automatic: tuple[str, ...] = ()
    """Packages that stay, and that apt may remove when nothing needs them."""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    restore_units: tuple[receipts.UnitBefore, ...] = ()
    restore_contents: dict[str, str] = {}
    last: bool = False
    """No other role remains on the machine, so everything on the receipt is undone."""
    roles_staying: tuple[str, ...] = ()


def undo(footprint: Footprint, receipt: receipts.Receipt, leaving: str) -> Undo:
    """Return what to undo: only the parts of the role if another role stays, otherwise everything on the receipt.

    undo(KV, receipt, "server").stop_units  # ("kv",)"""
    staying = tuple(role for role in receipt.roles if role != leaving)
    if staying:
        return _undo_one_role(footprint, leaving, staying)
    before = tuple(unit for unit in receipt.units if unit.enabled not in ("absent", "not-found"))
    running = {unit.name.removesuffix(".service") for unit in before if unit.active == "active"}
    services = dict.fromkeys(unit for role in footprint.roles.values() for unit in role.units)
    return Undo(
        stop_units=tuple(unit for unit in (*footprint.helpers, *services) if unit not in running),
        paths=(*receipt.paths, *(path for path in footprint.own_paths if path not in receipt.paths)),
        empty_folders=tuple(receipt.folders_to_empty),
        packages=tuple(receipt.packages),
        automatic=tuple(receipt.automatic),
        users=tuple(receipt.users),
        groups=tuple(receipt.groups),
        restore_units=before,
        restore_contents=receipt.contents,
        last=True,
    )


def services(footprint: Footprint, plan: Undo, leaving: str) -> tuple[str, ...]:
    """Return the services that the machine had for the role. `stop_units` also has those of roles that it never had.

    services(KV, plan, "server")  # ("kv",)"""
    own = (*footprint.helpers, *footprint.roles[leaving].units)
    return tuple(unit for unit in plan.stop_units if unit in own)


def left_behind(footprint: Footprint, instance_id: str, roles_left: Sequence[str]) -> str:
    """Describe what remains on a machine that did not answer.

    left_behind(KV, "inst_1", ["server"])  # KV (server) was not removed: services, packages, users; …"""
    return (
        f"{footprint.name} ({', '.join(roles_left)}) was not removed: services, packages, users; "
        f"the list of what to undo is on the machine in {receipts.path_of(footprint, instance_id)}"
    )


def _undo_one_role(footprint: Footprint, leaving: str, staying: tuple[str, ...]) -> Undo:
    role = footprint.roles[leaving]
    return Undo(stop_units=role.units, paths=role.paths, empty_folders=role.folders, roles_staying=staying)
