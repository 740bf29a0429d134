"""What may surprise people on a machine, for the member's detail: homes that are not shared, a clock that may drift."""

from typing import Any

from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.installs import packages
from gpuaas_sdk.machine import Machine, commands

from gpuaas_app_slurm.workload import facts, home


async def of(machine: Machine, package: str) -> dict[str, Any]:
    """Return the detail fields `package_version`, `home` and `warnings` of a machine that has joined."""
    ran = await machine.run_all(
        commands.get_all(home.UNIT_PATH),
        commands.script(facts.TIME_SERVICE),
        packages.version_query(package),
        check=False,
    )
    unit, service, version = ran
    if unit.exit_status != 0:
        raise Temporary(f"cannot read {home.UNIT_PATH} on {machine.hostname}: {unit.stderr.strip() or 'no output'}")
    content = commands.contents((home.UNIT_PATH,), unit.stdout)[home.UNIT_PATH]
    homes = home.parse_unit(content.decode()) if content else home.LOCAL
    warned = list(listed(facts.time_service(service.stdout), homes))
    return {"package_version": packages.parse_version(version), "home": homes.shown, "warnings": warned}


def listed(time_service: str, homes: home.Home) -> tuple[str, ...]:
    result = [home.LOCAL_WARNING] if homes.kind == "local" else []
    if not time_service:
        result.append("no service keeps the clock right: install chrony or systemd-timesyncd")
    return tuple(result)
