"""Make the fields of a member's `adapter_detail` from the output of Slurm. Pure."""

from collections.abc import Mapping
from typing import Any

from gpuaas_app_slurm.workload import state, versions

LASTING = frozenset({"cluster_name", "node_name", "package_version", "packages_kept"})
"""Fields that stay true after the member was removed. The others describe daemons that no longer exist."""

USAGE_UNTIL = "usage_until"
"""Field of the controller member with the time until which the usage of every ended job was reported."""

NEW_MACHINE = "new_machine"
"""Field with the node that takes the place of the member's node in a replace that has not ended."""

REPLACED = "replaced"
"""Field with what a replace left: the node before, what is still on its machine, which jobs were interrupted."""


def replaced(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field with what a replace left, if there is one: a new detail of the member keeps it."""
    return {name: value for name, value in detail.items() if name == REPLACED}


def worker_detail(name: str, node: state.Node | None, package_version: str) -> dict[str, Any]:
    if node is None:
        return {"node_name": name, "slurm_state": "absent", "reason": "Slurm has no node with this name"}
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


def version_warning(detail: dict[str, Any]) -> str:
    """Return a warning if the daemon runs another version than the installed package, as after an upgrade."""
    package, daemon = str(detail.get("package_version", "")), str(detail.get("daemon_version", ""))
    if not package or not daemon or versions.is_of_package(daemon, package):
        return ""
    return f"package {package} is installed, but the daemon still runs {daemon}: restart the daemon"
