"""Install the missing Debian packages on a machine, after recording them, and purge exactly those later. Used by
`slurm` and `uninstall`."""

import re

import msgspec
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.machine import CommandFailed, Machine

from gpuaas_app_slurm.workload import receipts

CONTROLLER = (
    "slurmctld",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-mysql-plugin",
    "mariadb-server",
    "mariadb-client",
    "libpmix2t64",
    "logrotate",
)
WORKER = ("slurmd", "slurm-client", "libpmix2t64", "logrotate")
LOGIN = WORKER
"""Debian 13 has no package of sackd, so slurmd gives a login machine its configuration and its socket."""
BY_ROLE = {"controller": CONTROLLER, "worker": WORKER, "login": LOGIN}

VERSION_MIN = (23, 11)
"""The first version of Slurm that can authenticate with its own key (auth/slurm)."""

INSTALL_TIMEOUT_S = 900.0

APT = (
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "LC_ALL=C",
    "apt-get",
    "-q",
    "-y",
    "-o",
    "DPkg::Lock::Timeout=60",
    "-o",
    "Dpkg::Options::=--force-confold",
)

MISSING = r"""
for name in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
done
"""
LOCKED_STATUS = 75
"""Exit status of a script here if another process has the lock of dpkg or of the package lists."""
# A machine that lost its power during an installation or a removal has half-configured packages: finish them first.
REPAIR = rf"""
output=$(dpkg --configure -a 2>&1) && exit 0
echo "$output" >&2
case $output in *lock*) exit {LOCKED_STATUS} ;; *) exit 1 ;; esac
"""
# Without a network, the existing lists are used.
UPDATE = rf"""
output=$("$@" 2>&1) && exit 0
case $output in *lists/lock*) echo "$output" >&2; exit {LOCKED_STATUS} ;; esac
"""
# Prevent the packages' scripts from starting their daemons before the configuration is written.
INSTALL = r"""
made=no
if [ ! -e /usr/sbin/policy-rc.d ]; then
  made=yes
elif grep -qx '# gpuaas' /usr/sbin/policy-rc.d; then
  made=yes
fi
if [ $made = yes ]; then
  printf '#!/bin/sh\n# gpuaas\nexit 101\n' > /usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
"$@"
"""


class Simulation(msgspec.Struct, frozen=True):
    """The result of a simulated installation: the new packages, and the versions of all packages to be unpacked."""

    new: tuple[str, ...]
    versions: dict[str, str]


async def install(
    machine: Machine, receipt: receipts.Receipt, roles: tuple[str, ...], more: tuple[str, ...] = ()
) -> None:
    """Install the packages of the roles, and more, with one run of apt-get; do nothing if all are installed."""
    wanted = (*wanted_for(roles), *more)
    missing = (await machine.script(MISSING, *wanted)).stdout.split()
    if not missing:
        return
    await _when_unlocked(machine, REPAIR)
    await _when_unlocked(machine, UPDATE, *APT, "-o", "Acquire::http::Timeout=20", "update")
    simulation = await _simulate(machine, wanted)
    refuse_old_slurm(machine.hostname, simulation)
    new = [name for name in simulation.new if name not in receipt.packages]
    if new:
        receipt.packages.extend(new)
        await receipts.write(machine, receipt)
    command = (*APT, "-o", "Dpkg::Options::=--force-unsafe-io", "install", "--no-install-recommends", *wanted)
    await machine.script(INSTALL, *command, timeout_s=INSTALL_TIMEOUT_S)


def wanted_for(roles: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for role in roles for name in BY_ROLE[role]))


def parse_simulation(text: str) -> Simulation:
    """Parse apt's simulation: `Inst name (version …)` is new, `Inst name [old] (version …)` is an upgrade."""
    actions = re.findall(r"^Inst (\S+) (\[\S+\] )?\((\S+)", text, re.MULTILINE)
    return Simulation(
        new=tuple(name for name, old, _ in actions if not old),
        versions={name: version for name, _, version in actions},
    )


def refuse_old_slurm(hostname: str, simulation: Simulation) -> None:
    for name in ("slurmctld", "slurmd"):
        version = simulation.versions.get(name)
        if version is not None and _major_minor(version) < VERSION_MIN:
            wanted = ".".join(map(str, VERSION_MIN))
            raise Permanent(
                f"the package sources of machine {hostname} have Slurm {version}; this app needs {wanted} or newer",
                fix=f"apt-cache policy {name}",
            )


async def installed_version(machine: Machine, name: str) -> str:
    ran = await machine.run("dpkg-query", "-W", "-f", "${Version}", name, check=False)
    return ran.stdout.strip() if ran.exit_status == 0 else ""


async def purge(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    """Purge these packages; return those that were kept because other software depends on them."""
    if not names:
        return ()
    # First the repair, which also needs the lock: another installation may still add packages until it has ended.
    await _when_unlocked(machine, REPAIR)
    present = await _known_to_dpkg(machine, names)
    removable = await _without_dependants(machine, present)
    if removable:
        await machine.run(*APT, "purge", *removable, timeout_s=INSTALL_TIMEOUT_S)
    return tuple(name for name in present if name not in removable)


def foreign_removals(simulation: str, own: tuple[str, ...]) -> tuple[str, ...]:
    removed = re.findall(r"^(?:Remv|Purg) (\S+)", simulation, re.MULTILINE)
    return tuple(name for name in dict.fromkeys(removed) if name not in own)


async def _when_unlocked(machine: Machine, script: str, *argv: str) -> None:
    """Run a script that needs a lock of the package tools. If another process has the lock, raise Temporary."""
    ran = await machine.script(script, *argv, check=False, timeout_s=INSTALL_TIMEOUT_S)
    error = ran.stderr.strip()[-500:]
    if ran.exit_status == LOCKED_STATUS:
        raise Temporary(f"another installation of packages runs on {machine.hostname}: {error}", after_s=2.0)
    if ran.exit_status != 0:
        raise Permanent(
            f"dpkg on {machine.hostname} was interrupted before and cannot be repaired: {error}",
            fix=f"ssh {machine.address} dpkg --configure -a",
        )


async def _simulate(machine: Machine, wanted: tuple[str, ...]) -> Simulation:
    try:
        ran = await machine.run(*APT, "install", "-s", "--no-install-recommends", *wanted)
    except CommandFailed as error:
        raise Permanent(
            f"machine {machine.hostname} cannot install Slurm from its package sources: {error}",
            fix="apt-get update && apt-cache policy slurmd slurmctld mariadb-server",
        ) from error
    return parse_simulation(ran.stdout)


async def _known_to_dpkg(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that dpkg still lists, even if only with configuration files."""
    if not names:
        return ()
    ran = await machine.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names, check=False)
    pairs = [line.split() for line in ran.stdout.splitlines()]
    return tuple(pair[0] for pair in pairs if len(pair) == 2 and pair[1] != "not-installed")


async def _without_dependants(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    simulation = (await machine.run(*APT, "purge", "-s", *names)).stdout
    if not foreign_removals(simulation, names):
        return names
    # Other software needs some packages: try to purge only the daemons, and nothing if other software needs those too.
    daemons = tuple(name for name in names if name in wanted_for(tuple(BY_ROLE)))
    simulation = (await machine.run(*APT, "purge", "-s", *daemons)).stdout if daemons else ""
    return () if foreign_removals(simulation, names) else daemons


def _major_minor(version: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", version.split(":", 1)[-1])
    return int(numbers[0]), int(numbers[1])
