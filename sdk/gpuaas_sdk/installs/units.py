"""Commands that enable, disable, stop and restart units of systemd, for `Machine.run_all`. Pure."""

from gpuaas_sdk.machine import Command, commands, shell

# Debian's packages also have scripts for SysV, which systemctl would enable or disable too. systemd ignores them beside
# a unit, and this takes a second.
_SYSTEMCTL = ("env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl")
# With --root systemctl changes the links itself. Otherwise systemd would read all its files again, or warn from then on
# for every unit of the machine that its file changed on disk.
_OPTIONS = ("-q", "--no-reload", "--root=/")

_RESTARTS = "/run/gpuaas-restarts"

RELOAD = commands.run("systemctl", "daemon-reload")
"""Makes systemd read the files of all units again."""


def enable(*units: str) -> Command:
    """Return the command that lets the units start with the machine from now on.

    await machine.run_all(units.enable("kv"), units.RELOAD, units.restart("kv"))"""
    return commands.run(*_SYSTEMCTL, "enable", *_OPTIONS, *units)


def disable(*units: str) -> Command:
    """Return the command that keeps the units from starting with the machine.

    await machine.run_all(units.disable("kv"))"""
    return commands.run(*_SYSTEMCTL, "disable", *_OPTIONS, *units)


def stop(*units: str, timeout_s: float = 60) -> Command:
    """Return the command that stops the units for good: they do not start with the machine either.

    await machine.run_all(units.stop("kv"))"""
    return commands.run("systemctl", "disable", "-q", "--now", *units, timeout_s=timeout_s)


def restart(unit: str, timeout_s: float = 60) -> Command:
    """Return the command that restarts the unit, or starts it.

    await machine.run_all(units.restart("kv"))"""
    return commands.run("systemctl", "restart", unit, timeout_s=timeout_s)


def restart_once(unit: str, cause: str, timeout_s: float = 60) -> Command:
    """Return the command that restarts the unit, or starts it, but only once for each cause: a step that is repeated
    after a crash of the controller does not interrupt the unit a second time.

    await machine.run_all(units.RELOAD, units.restart_once("kv", f"{op.id} {member.member_id}"))"""
    argv = ("sh", "-c", shell.RESTART_ONCE, "restart", _RESTARTS, unit, cause)
    return Command(argv, summary=("systemctl", "restart", unit), timeout_s=timeout_s)
