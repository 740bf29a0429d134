"""Make the fields of a member's `adapter_detail` from the output of Slurm. Pure."""

from typing import Any

from gpuaas_app_slurm.workload import state

LASTING = frozenset({"cluster_name", "node_name", "package_version", "packages_kept"})
"""Fields that stay true after the member was removed. The others describe daemons that no longer exist."""


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
    if not package or not daemon or package.split(":", 1)[-1].startswith(daemon):
        return ""
    return f"package {package} is installed, but the daemon still runs {daemon}: restart the daemon"
