"""What may surprise people on a machine, for the member's detail: homes that are not shared, a clock that may drift."""

from typing import Any

from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import facts, home


async def of(machine: Machine) -> dict[str, Any]:
    """Return the detail fields `home` and `warnings` of a machine that has joined."""
    content = await machine.get(home.UNIT_PATH)
    homes = home.parse_unit(content.decode()) if content else home.LOCAL
    return {"home": homes.shown, "warnings": list(listed(await facts.time_service(machine), homes))}


def listed(time_service: str, homes: home.Home) -> tuple[str, ...]:
    result = [home.LOCAL_WARNING] if homes.kind == "local" else []
    if not time_service:
        result.append("no service keeps the clock right: install chrony or systemd-timesyncd")
    return tuple(result)
