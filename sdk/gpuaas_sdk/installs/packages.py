"""Install the missing Debian packages on a machine, after recording them in the receipt."""

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import apt, receipts
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Command, CommandFailed, Machine, Ran, commands

Choice = Literal["auto", "present", "distribution", "bundle"]
"""What people can choose as the source of packages; `auto`: a bundle if the app version has one."""

READ_S = 60.0

MISSING = r"""
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
for name in "$@"; do
  case $installed in *" installed:$name "*) ;; *) echo "$name" ;; esac
done
"""
# Without a network, the existing lists are used.
UPDATE = rf"""
output=$("$@" 2>&1) && exit 0
case $output in *lists/lock*) echo "$output" >&2; exit {apt.LOCKED_STATUS} ;; esac
"""
# Prevent the packages' scripts from starting their daemons before the configuration is written.
INSTALL = rf"""
made=no
if [ ! -e {apt.POLICY} ]; then
  made=yes
elif grep -qx '{apt.MARK}' {apt.POLICY}; then
  made=yes
fi
if [ $made = yes ]; then
  printf '#!/bin/sh\n{apt.MARK}\nexit 101\n' > {apt.POLICY}
  chmod 755 {apt.POLICY}
  trap 'rm -f {apt.POLICY}' EXIT
fi
"$@"
"""


class Simulation(msgspec.Struct, frozen=True):
    """The result of a simulated installation: the new packages, and the versions of all packages to be unpacked.

    Simulation(new=("kv-server",), versions={"kv-server": "3.5-1"})"""

    new: tuple[str, ...]
    versions: dict[str, str]


class Source(msgspec.Struct, frozen=True):
    """Where the packages of a machine come from.

    Source("bundle", unpacked.apt_options, unpacked.index.versions)"""

    kind: Literal["present", "distribution", "bundle"] = "distribution"
    apt_options: tuple[str, ...] = ()
    """Options with which apt uses this source only; none: the machine's own sources."""
    versions: dict[str, str] = {}
    """Package -> the version that must be installed; empty: the newest of the source."""

    def specs(self, footprint: Footprint, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the packages as apt-get takes them: those of the software with their version.

        source.specs(KV, ("kv-server", "logrotate"))  # ("kv-server=3.5-1", "logrotate")"""
        exact = footprint.software.packages
        chosen = {name: self.versions[name] for name in names if name in exact and name in self.versions}
        return tuple(f"{name}={chosen[name]}" if name in chosen else name for name in names)


DISTRIBUTION = Source()
"""The package sources of the machine.

await packages.finish(machine, KV.packages, packages.DISTRIBUTION)"""
PRESENT = Source("present")
"""Nothing is installed: the image of the machine has all packages.

source = packages.PRESENT if is_in_image else packages.DISTRIBUTION"""

Accept = Callable[[str, Simulation], None]
"""Takes the host name and what would be installed."""


async def install(
    machine: Machine,
    footprint: Footprint,
    receipt: receipts.Receipt,
    roles: tuple[str, ...],
    more: tuple[str, ...] = (),
    source: Source = DISTRIBUTION,
    accept: Accept | None = None,
) -> None:
    """Install the packages of the roles, and more, with one run of apt-get; do nothing if all are installed.

    `accept` raises if the app cannot work with the versions that would be installed. Nothing was changed then.

    await packages.install(machine, KV, receipt, ("server",))"""
    wanted = (*footprint.packages_of(roles), *more)
    missing = (await machine.script(MISSING, *wanted, timeout_s=READ_S)).stdout.split()
    if not missing and not await _other_versions(machine, footprint, wanted, source):
        return
    if source.kind == "present":
        raise Permanent(
            f"machine {machine.hostname} lacks packages that `packages: present` expects: {', '.join(missing)}",
            fix="install them in the image of the machine, or deploy with packages=distribution or packages=bundle",
        )
    specs = source.specs(footprint, wanted)
    unfinished, simulated = await simulate_ready(machine, (*receipt.packages, *wanted), specs, source)
    if unfinished:
        await _add_missing(machine, unfinished, source)
        simulated = (await machine.run_all(_simulation(specs, source), check=False))[0]
    simulation = simulation_of(machine, footprint, simulated, specs, source)
    if accept is not None:
        accept(machine.hostname, simulation)
    kept = [name for name in wanted if name not in (*simulation.new, *receipt.packages)]
    automatic = await _automatic(machine, kept)
    receipt.automatic.extend(name for name in automatic if name not in receipt.automatic)
    noted = note_new(footprint, receipt, simulation) or ((receipts.put(footprint, receipt),) if automatic else ())
    # The receipt is written before the installation begins, in the same round trip.
    await machine.run_all(*noted, unpack(specs, source), timeout_s=apt.INSTALL_TIMEOUT_S)


async def simulate_ready(
    machine: Machine, names: tuple[str, ...], specs: tuple[str, ...], source: Source, *options: str
) -> tuple[str, Ran]:
    """Finish what was interrupted, read the lists of the source, and simulate the installation. Return what could not
    be finished, and the simulation.

    unfinished, simulated = await packages.simulate_ready(machine, ("kv-server",), ("kv-server=3.5-1",), source)"""
    update = (*apt.APT, *source.apt_options, "-o", "Acquire::http::Timeout=20", "update")
    repaired, updated, simulated = await machine.run_all(
        commands.script(apt.REPAIR, *names),
        commands.script(UPDATE, *update),
        _simulation(specs, source, *options),
        check=False,
        timeout_s=apt.INSTALL_TIMEOUT_S,
    )
    unfinished = apt.unless_locked(machine, repaired)
    apt.unless_locked(machine, updated)
    return unfinished, simulated


async def finish(machine: Machine, names: tuple[str, ...], source: Source) -> None:
    """Finish an installation that was interrupted, for example by a power cut, with the packages of the source.

    await packages.finish(machine, KV.packages, packages.DISTRIBUTION)"""
    if not await apt.when_unlocked(machine, apt.REPAIR, *names):
        return
    unfinished, _ = await simulate_ready(machine, names, (), source)
    if unfinished:
        await _add_missing(machine, unfinished, source)


def note_new(footprint: Footprint, receipt: receipts.Receipt, simulation: Simulation) -> tuple[Command, ...]:
    """Add to the receipt which packages an installation adds. Return the command that writes it, if it changed.

    await machine.run_all(*packages.note_new(KV, receipt, simulation), packages.unpack(specs, source))"""
    new = [name for name in simulation.new if name not in receipt.packages]
    receipt.packages.extend(new)
    return (receipts.put(footprint, receipt),) if new else ()


def unpack(specs: tuple[str, ...], source: Source, *options: str) -> Command:
    """Return the command that installs the packages without starting their daemons.

    await machine.run_all(packages.unpack(("kv-server=3.5-1",), packages.DISTRIBUTION))"""
    settings = (*source.apt_options, "-o", "Dpkg::Options::=--force-unsafe-io")
    command = (*apt.APT, *settings, "install", *options, "--no-install-recommends", *specs)
    return commands.script(INSTALL, *command, timeout_s=apt.INSTALL_TIMEOUT_S)


def parse_simulation(text: str) -> Simulation:
    """Parse apt's simulation: `Inst name (version …)` is new, `Inst name [old] (version …)` is an upgrade. Pure.

    parse_simulation("Inst kv-server (3.5-1 Debian)\\n").new  # ("kv-server",)"""
    actions = re.findall(r"^Inst (\S+) (\[\S+\] )?\((\S+)", text, re.MULTILINE)
    return Simulation(
        new=tuple(name for name, old, _ in actions if not old),
        versions={name: version for name, _, version in actions},
    )


async def software_versions(machine: Machine, footprint: Footprint) -> dict[str, str]:
    """Return the installed packages that are built from the source of the software, with their versions.

    await packages.software_versions(machine, KV)  # {"kv-server": "3.5-1", "libkv": "3.5-1"}"""
    software = footprint.software
    shown = "${Package} ${Version} ${db:Status-Status} ${source:Package}\n"
    ran = await machine.run("dpkg-query", "-W", "-f", shown, *software.patterns, check=False)
    rows = [line.split() for line in apt.known_packages(machine, ran).splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 4 and row[2:] == ["installed", software.source]}


async def installed_version(machine: Machine, name: str) -> str:
    """Return the installed version of a package; empty if it is not installed.

    await packages.installed_version(machine, "kv-server")  # 3.5-1"""
    return parse_version((await machine.run_all(version_query(name), check=False))[0])


def version_query(name: str) -> Command:
    """Return the command that prints the installed version of a package.

    ran, *_ = await machine.run_all(packages.version_query("kv-server"), check=False)"""
    return commands.run("dpkg-query", "-W", "-f", "${Version}", name)


def parse_version(ran: Ran) -> str:
    """Return the version that `version_query` printed; empty if the package is not installed. Pure.

    packages.parse_version(Ran(0, "3.5-1", ""))  # 3.5-1"""
    return ran.stdout.strip() if ran.exit_status == 0 else ""


async def _other_versions(machine: Machine, footprint: Footprint, wanted: tuple[str, ...], source: Source) -> bool:
    """Return whether a package of the software has another version than the source states."""
    if not source.versions:
        return False
    installed = await software_versions(machine, footprint)
    exact = footprint.software.packages
    return any(installed.get(name) != source.versions.get(name) for name in wanted if name in exact)


async def _add_missing(machine: Machine, unfinished: str, source: Source) -> None:
    """Install the dependencies that an interrupted installation had not unpacked. No package is removed."""
    command = (*apt.APT, *source.apt_options, "--no-remove", "--fix-broken", "install", "--no-install-recommends")
    try:
        await machine.script(INSTALL, *command, timeout_s=apt.INSTALL_TIMEOUT_S)
    except CommandFailed as error:
        raise Permanent(
            f"dpkg on {machine.hostname} was interrupted before and cannot be repaired: {unfinished}",
            fix=f"ssh {machine.address} apt-get --fix-broken install",
        ) from error


def _simulation(specs: tuple[str, ...], source: Source, *options: str) -> Command:
    return commands.run(*apt.APT, *source.apt_options, "install", "-s", *options, "--no-install-recommends", *specs)


def simulation_of(
    machine: Machine, footprint: Footprint, ran: Ran, specs: tuple[str, ...], source: Source
) -> Simulation:
    """Return what an installation would do, from what the simulation printed. Raise Permanent if it failed.

    simulation = packages.simulation_of(machine, KV, simulated, ("kv-server=3.5-1",), source)"""
    if ran.exit_status != 0:
        shown = "the package bundle of the app version" if source.kind == "bundle" else "its package sources"
        error = ran.stderr.strip()[-2000:] or ran.stdout.strip()[-2000:]
        raise Permanent(
            f"machine {machine.hostname} cannot install {footprint.name} from {shown}: {error}",
            fix=f"apt-get update && apt-cache policy {' '.join(spec.partition('=')[0] for spec in specs)}",
        )
    return parse_simulation(ran.stdout)


async def _automatic(machine: Machine, installed: list[str]) -> list[str]:
    """Return the packages that only others need. `apt-get install` marks them as wanted for themselves."""
    return (await machine.run("apt-mark", "showauto", *installed)).stdout.split() if installed else []
