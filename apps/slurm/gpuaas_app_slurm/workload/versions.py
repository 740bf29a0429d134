"""Versions of Slurm: which the app can install, from which to which it can go, and which a daemon runs. Pure."""

import re

from gpuaas_sdk.checks import Check
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs.package_changes import Change
from gpuaas_sdk.installs.packages import Simulation

from gpuaas_app_slurm.workload import state

VERSION_MIN = (23, 11)
"""The first version of Slurm that can authenticate with its own key (auth/slurm)."""
RELEASES_MAX = 3
"""slurmctld and slurmdbd read the state of this many releases before their own."""


def refuse_old_slurm(hostname: str, simulation: Simulation) -> None:
    for name in ("slurmctld", "slurmd"):
        version = simulation.versions.get(name)
        if version is not None and major_minor(version) < VERSION_MIN:
            wanted = ".".join(map(str, VERSION_MIN))
            raise Permanent(
                f"the package sources of machine {hostname} have Slurm {version}; this app needs {wanted} or newer",
                fix=f"apt-cache policy {name}",
            )


def is_same_release(version: str, of_cluster: str) -> bool:
    """Return whether a machine has the release of Slurm that the cluster has. Unknown versions count as the same."""
    return not version or not of_cluster or _release(version) == _release(of_cluster)


def other_release(name: str, version: str, of_cluster: str, *, is_between: bool) -> Permanent:
    """Return why a machine with another release of Slurm cannot join.

    `is_between`: an upgrade or a rollback did not end, so the packages of the app version are not those of the cluster.
    Otherwise the package source of the machine has moved to another release."""
    error = f"machine {name} has Slurm {version}, and the cluster runs {of_cluster}"
    if is_between:
        return Permanent(error, fix="finish the upgrade or the rollback of the instance first, then request it again")
    return Permanent(
        error,
        fix=f"give the machine a package source with Slurm {of_cluster}, or move the cluster to {version} if that is "
        f"newer: gpuaas upgrade INSTANCE --version VERSION. The sources of the machine: gpuaas ssh {name} -- "
        "apt-cache policy slurmd",
    )


def refuse_jump(change: Change) -> None:
    """Refuse an older Slurm, and one that cannot read the state of the present one."""
    distance = _release(change.after) - _release(change.before)
    if distance < 0:
        raise Refused(
            f"Slurm {change.after} is older than {change.before}, which is installed",
            fix="to return to the version before the last upgrade: gpuaas rollback INSTANCE",
        )
    if distance > RELEASES_MAX:
        newer = f"it is more than {RELEASES_MAX} releases newer"
        raise Refused(
            f"Slurm {change.after} cannot read the state of {change.before}: {newer}",
            fix="upgrade to an app version with a Slurm in between first",
        )


def is_of_package(daemon: str, package: str) -> bool:
    """Return whether a daemon with this version is the one of the package: `24.11.1` is of `24.11.1-2`, and not of
    `24.11.10-2`. An unknown version is of no package."""
    upstream = package.split(":", 1)[-1]
    return bool(daemon) and re.match(rf"{re.escape(daemon)}(?!\.?\d)", upstream) is not None


def node_registered(name: str, node: state.Node | None, package: str) -> Check:
    """Pass if the node has registered with the version of its package. A drained node passes too."""
    registered = state.node_registered(name, node)
    if node is None or not registered.ok or is_of_package(node.version, package):
        return registered
    return Check(False, f"node {name} runs Slurm {node.version or 'of unknown version'}, not {package} yet")


def major_minor(version: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", version.split(":", 1)[-1])
    return int(numbers[0]), int(numbers[1])


def _release(version: str) -> int:
    """Return the number of a release of Slurm: there are two in a year, 25.05 and 25.11."""
    year, month = major_minor(version)
    return year * 2 + (month > 5)
