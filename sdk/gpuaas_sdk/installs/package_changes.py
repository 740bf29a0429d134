"""Change the installed version of an app's software on a machine, up or down. No daemon is started."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs import apt, packages, receipts, units
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Machine

OPTIONS = ("--allow-downgrades", "--no-remove")


class Change(msgspec.Struct, frozen=True):
    """What apt would do on one machine.

    change = await package_changes.plan(machine, KV, ("server",), source)
    change.after  # 3.6-1"""

    before: str
    """The installed version of the software."""
    after: str
    specs: tuple[str, ...] = ()
    """The packages as apt-get takes them; none if they are installed already."""
    simulation: packages.Simulation | None = None


async def plan(
    machine: Machine, footprint: Footprint, roles: tuple[str, ...], source: packages.Source, version: str = ""
) -> Change:
    """Simulate the change to the version of the source, or to this version. Only what an interrupted installation has
    left is installed: apt can do nothing before that, and what is half-installed has no version.

    A package of the roles that is missing is a change too: what was half-installed has been removed.

    change = await package_changes.plan(machine, KV, ("server",), source)"""
    await packages.finish(machine, footprint.packages, source)
    installed = await packages.software_versions(machine, footprint)
    if not installed:
        raise Permanent(f"machine {machine.hostname} has no packages of {footprint.name}", fix="gpuaas member repair")
    version_of = footprint.software.version
    before = version_of(installed)
    missing = missing_of(footprint, roles, installed)
    wanted = source.versions or (dict.fromkeys((*installed, *missing), version) if version else {})
    if wanted and not missing and all(installed[name] == wanted.get(name, installed[name]) for name in installed):
        return Change(before, before)
    named = [name for name in (*installed, *missing) if not wanted or name in wanted or name in missing]
    specs = tuple(f"{name}={wanted[name]}" if name in wanted else name for name in named)
    _, simulated = await packages.simulate_ready(machine, tuple(installed), specs, source, *OPTIONS)
    simulation = packages.simulation_of(machine, footprint, simulated, specs, source)
    return Change(before, version_of(simulation.versions) or before, specs if simulation.versions else (), simulation)


def missing_of(footprint: Footprint, roles: tuple[str, ...], installed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages of the software that the roles need and that are not installed. Pure.

    package_changes.missing_of(KV, ("server",), {"kv-tools": "3.5-1"})  # ("kv-server",)"""
    exact = footprint.software.packages
    return tuple(name for name in footprint.packages_of(roles) if name in exact and name not in installed)


async def install(
    machine: Machine,
    footprint: Footprint,
    instance_id: str,
    roles: tuple[str, ...],
    source: packages.Source,
    version: str = "",
    before: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Install the version of the source, or this one, in one run of apt: packages of one source depend on each other.

    `before` runs immediately before the packages change, and only if they do: it can stop a service.

    await package_changes.install(machine, KV, op.instance.instance_id, ("server",), source)"""
    change = await plan(machine, footprint, roles, source, version)
    if change.simulation is None or not change.specs:
        await machine.run_all(units.RELOAD)  # The plan may have finished an installation that was interrupted.
        return
    receipt = await receipts.read(machine, footprint, instance_id)
    noted = packages.note_new(footprint, receipt, change.simulation) if receipt is not None else ()
    if before is not None:
        await before()
    unpack = packages.unpack(change.specs, source, *OPTIONS)
    await machine.run_all(*noted, unpack, units.RELOAD, timeout_s=apt.INSTALL_TIMEOUT_S)


def refuse_mixed(footprint: Footprint, changes: Mapping[str, Change]) -> None:
    """Refuse machines that would get different versions. `changes` by the name of the node. Pure.

    package_changes.refuse_mixed(KV, {"gpu-1": Change("3.5-1", "3.6-1")})"""
    if len({change.after for change in changes.values()}) > 1:
        listed = ", ".join(f"{name} {change.after}" for name, change in sorted(changes.items()))
        raise Refused(
            f"the machines would get different versions of {footprint.name}: {listed}",
            fix="give all machines the same package sources, or use an app version with a bundle",
        )
