"""The package tools of Debian on a machine: wait for their lock, finish what was interrupted, purge exactly what was
installed. `packages` installs."""

import re

from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.machine import Machine, Ran

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

LOCKED_STATUS = 75
"""Exit status of a script here if another process has the lock of dpkg or of the package lists."""
POLICY, MARK = "/usr/sbin/policy-rc.d", "# gpuaas"
"""The file that keeps scripts of packages from starting daemons, and the line that shows that it is ours."""
# An installation or a removal that was interrupted, by a power cut or by the end of its step, is finished first. A
# package that is half-installed counts as installed for apt, but not for dpkg, and dpkg neither configures nor removes
# one that it marked for a new installation: what is left of them is removed.
# The policy that an interrupted installation left applies until then. It is removed, because it would apply to the
# packages of others too. An apt-get that runs now may wait for the lock and need it.
REPAIR = rf"""
half=
for name in "$@"; do
  status=$(dpkg-query -W -f '${{db:Status-Status}} ${{db:Status-Eflag}}' "$name" 2>/dev/null) || continue
  case $status in half-installed* | *reinstreq) half="$half $name" ;; esac
done
finish() {{
  [ -z "$half" ] || dpkg --force-depends --force-remove-reinstreq --remove $half || return 1
  dpkg --configure -a
}}
if output=$(finish 2>&1); then
  if grep -qsx '{MARK}' {POLICY} && ! pgrep -x apt-get >/dev/null 2>&1; then rm -f {POLICY}; fi
  exit 0
fi
echo "$output" >&2
case $output in *lock*) exit {LOCKED_STATUS} ;; *) exit 1 ;; esac
"""


async def purge(machine: Machine, names: tuple[str, ...], daemons: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Purge these packages; return those that were kept because other software depends on them.

    If other software depends on some of them, only the daemons among them are purged, if that is possible.

    kept = await apt.purge(machine, tuple(receipt.packages), KV.packages)"""
    if not names:
        return ()
    # First the repair, which also needs the lock: another installation may still add packages until it has ended.
    # What it cannot finish is purged: packages whose dependencies were not unpacked.
    await when_unlocked(machine, REPAIR, *names)
    present = await _known_to_dpkg(machine, names)
    removable = await _without_dependants(machine, present, daemons)
    if removable:
        await machine.run(*APT, "purge", *removable, timeout_s=INSTALL_TIMEOUT_S)
    return tuple(name for name in present if name not in removable)


async def mark_automatic(machine: Machine, names: tuple[str, ...]) -> None:
    """Let apt remove these packages again when nothing needs them, as before the app installed its own.

    await apt.mark_automatic(machine, tuple(receipt.automatic))"""
    if names:
        await machine.run("apt-mark", "auto", *names, check=False)


def foreign_removals(simulation: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages that a simulated purge would remove beside one's own. Pure.

    foreign_removals("Purg kv-server [3.5]\\nPurg their-portal [1.0]\\n", ("kv-server",))  # ("their-portal",)"""
    removed = re.findall(r"^(?:Remv|Purg) (\S+)", simulation, re.MULTILINE)
    return tuple(name for name in dict.fromkeys(removed) if name not in own)


async def when_unlocked(machine: Machine, script: str, *argv: str) -> str:
    """Run a script that needs a lock of the package tools, and return its error; empty if it succeeded.

    If another process has the lock, raise Temporary.

    unfinished = await apt.when_unlocked(machine, apt.REPAIR, "kv-server")"""
    return unless_locked(machine, await machine.script(script, *argv, check=False, timeout_s=INSTALL_TIMEOUT_S))


def unless_locked(machine: Machine, ran: Ran) -> str:
    """Return the error of such a script; empty if it succeeded. If another process has the lock, raise Temporary.

    unfinished = apt.unless_locked(machine, repaired)"""
    error = ran.stderr.strip()[-500:]
    if ran.exit_status == LOCKED_STATUS:
        raise Temporary(f"another installation of packages runs on {machine.hostname}: {error}", after_s=2.0)
    return error or "no output" if ran.exit_status != 0 else ""


def known_packages(machine: Machine, ran: Ran) -> str:
    """Return what `dpkg-query -W` printed. It ends with 1 if it does not know some of the packages. Any other failure
    means that nothing is known, which is not the same as no packages: raise Temporary.

    ran = await machine.run("dpkg-query", "-W", "kv-server", check=False)
    lines = apt.known_packages(machine, ran).splitlines()"""
    if ran.exit_status not in (0, 1):
        error = ran.stderr.strip()[-500:] or f"exit status {ran.exit_status}"
        raise Temporary(f"cannot read which packages {machine.hostname} has: {error}")
    return ran.stdout


async def _known_to_dpkg(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that dpkg still lists, even if only with configuration files."""
    if not names:
        return ()
    ran = await machine.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names, check=False)
    pairs = [line.split() for line in known_packages(machine, ran).splitlines()]
    return tuple(pair[0] for pair in pairs if len(pair) == 2 and pair[1] != "not-installed")


async def _without_dependants(machine: Machine, names: tuple[str, ...], daemons: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    simulation = (await machine.run(*APT, "purge", "-s", *names)).stdout
    if not foreign_removals(simulation, names):
        return names
    # Other software needs some packages: try to purge only the daemons, and nothing if other software needs those too.
    present = tuple(name for name in names if name in daemons)
    simulation = (await machine.run(*APT, "purge", "-s", *present)).stdout if present else ""
    return () if foreign_removals(simulation, names) else present
