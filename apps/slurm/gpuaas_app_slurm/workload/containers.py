"""Containers of people: crun on the workers, and the check that a machine can run it for a normal user.

`config` writes oci.conf on the controller machine. slurmctld gives it to every slurmd, as its other configuration."""

from collections.abc import Sequence
from typing import Literal

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.workload import footprint

Containers = Literal["none", "oci"]

CRUN = "crun --rootless=true --cgroup-manager=disabled"
RUN_OPTIONS = "--no-new-keyring"
"""Machines that are containers themselves may not make keyrings. The container of a job has the keyring of its user."""
WORKS = "a container runs"
CHECK_S = 60
# A container of the machine's own programs, made and run by the user as a job would do it.
CHECK = rf"""
set -eu
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
cd "$folder"
mkdir -p rootfs/usr rootfs/proc rootfs/dev
for name in bin lib lib64; do ln -s "usr/$name" "rootfs/$name"; done
cat > config.json <<END
{{"ociVersion": "1.0.0",
 "process": {{"user": {{"uid": 0, "gid": 0}}, "cwd": "/", "env": ["PATH=/usr/bin"], "args": ["echo", "$1"]}},
 "root": {{"path": "rootfs"}},
 "mounts": [{{"destination": "/proc", "type": "proc", "source": "proc"}},
            {{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}},
            {{"destination": "/usr", "type": "none", "source": "/usr", "options": ["rbind", "ro"]}}],
 "linux": {{"namespaces": [{{"type": "user"}}, {{"type": "mount"}}, {{"type": "pid"}}, {{"type": "ipc"}}],
           "uidMappings": [{{"containerID": 0, "hostID": $(id -u), "size": 1}}],
           "gidMappings": [{{"containerID": 0, "hostID": $(id -g), "size": 1}}]}}}}
END
{CRUN} --root="$folder/state" run {RUN_OPTIONS} --bundle "$folder" gpuaas-check
"""


def packages(chosen: Containers, roles: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of containers for a machine with these roles. Pure."""
    return footprint.CONTAINER_PACKAGES if chosen == "oci" and role_names.WORKER in roles else ()


async def require(machine: Machine, chosen: Containers, roles: Sequence[str], user: str) -> None:
    """Run a container as this user on a machine that has the packages. Refuse a worker that does not allow it."""
    if not packages(chosen, roles):
        return
    ran = await machine.run("sh", "-c", CHECK, "check", WORKS, as_user=user, check=False, timeout_s=CHECK_S)
    if ran.exit_status == 0 and ran.stdout.strip() == WORKS:
        return
    error = (ran.stderr.strip() or ran.stdout.strip())[-500:] or f"exit status {ran.exit_status}"
    raise Permanent(
        f"{machine.hostname} does not run containers of normal users, which containers=oci needs on every worker: "
        f"{error}",
        fix="allow user namespaces on the machine and retry, or deploy with containers=none. If this shows 0, they are "
        f"off: gpuaas ssh {machine.hostname} -- cat /proc/sys/user/max_user_namespaces",
    )
