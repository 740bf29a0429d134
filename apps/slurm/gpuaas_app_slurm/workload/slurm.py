"""Install Slurm on machines, start a controller, join workers. Does not use the platform.

Every function can be repeated after an interruption. The handlers in `bring_up` call them as steps."""

import asyncio
from collections.abc import Mapping

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    cluster,
    config,
    facts,
    home,
    keys,
    nodes,
    packages,
    receipts,
    state,
)

POLL_S = 0.2

MAKE_FOLDERS = r"""
owner=$1; shift
for folder in "$@"; do [ -d "$folder" ] || install -d -o "$owner" -g "$owner" -m 0755 "$folder"; done
"""


async def install(
    machine: Machine,
    instance_id: str,
    roles: tuple[str, ...],
    user_ids: Mapping[str, int],
    progress: Show,
    homes: home.Home = home.LOCAL,
) -> None:
    """Install packages, mount the homes and add users; the receipt is written before each change."""
    await progress(f"inspecting {machine.hostname}")
    receipt = await receipts.open_for(machine, instance_id, roles, tuple(user_ids))
    await progress(f"installing packages on {machine.hostname}")
    on_controller = role_names.CONTROLLER in roles
    nfs = home.CLIENT_PACKAGES if homes.kind == "nfs" else ()
    server = home.SERVER_PACKAGES if homes.is_exported and on_controller else ()
    await packages.install(machine, receipt, roles, (*nfs, *server))
    # Slurm's packages rotate /var/log/slurm with logrotate. Packages start nothing while they are installed.
    await machine.run("systemctl", "enable", "-q", "--now", "logrotate.timer", check=False)
    if "munge" in receipt.packages:
        # Slurm's Debian packages depend on munge. A cluster that uses it enables it with the key of the cluster.
        await machine.run("systemctl", "disable", "-q", "munge")
    await home.mount(machine, homes, on_controller=on_controller)
    await accounting.add_unix_users(machine, user_ids)


async def start_controller(
    machine: Machine, wanted: config.Cluster, users: tuple[str, ...], settings: Settings, progress: Show
) -> None:
    """Write the key and the configuration, start accounting, then start slurmctld."""
    await keys.make(machine, wanted.auth)
    await _put_files(machine, config.controller_files(wanted))
    if await machine.get(config.GRES_DEVICES_PATH) is None:
        await machine.put(config.GRES_DEVICES_PATH, config.gres_devices(None))
    await machine.run("systemctl", "daemon-reload")
    await accounting.start(machine, wanted.cluster_name, users, settings, progress)
    await progress("starting slurmctld")
    await machine.run("systemctl", "enable", "-q", "slurmctld")
    await machine.run("systemctl", "restart", "slurmctld", check=False)
    await _wait_for_controller(machine, settings, progress)


async def join(
    worker: Machine,
    controller: Machine,
    cgroup: facts.Cgroup,
    settings: Settings,
    progress: Show,
    auth: keys.Auth = "slurm",
    homes: home.Home = home.LOCAL,
    role: str = role_names.WORKER,
) -> None:
    """Make the machine a node of the cluster, unless it is one already."""
    if await _is_member(worker, controller):
        return
    machine = await facts.read(worker)
    cluster.refuse_other_cgroup(machine, cgroup)
    if role == role_names.LOGIN:
        await _refuse_old_partition(controller)
    await _delete_stale_node(controller, worker.hostname)
    await keys.put(worker, controller, auth)
    files_of = config.login_files if role == role_names.LOGIN else config.worker_files
    await _put_files(worker, files_of(controller.address, machine, homes))
    await worker.run("systemctl", "daemon-reload")
    await progress(f"starting slurmd on {worker.hostname}")
    await worker.run("systemctl", "enable", "-q", "slurmd")
    started = await worker.run("systemctl", "restart", "slurmd", check=False, timeout_s=settings.slurmd_start_s)
    if started.exit_status != 0:
        raise await _did_not_start(worker, "slurmd", started.stderr)
    await _wait_until_idle(worker, controller, settings, progress)


async def used_cgroup(controller: Machine) -> facts.Cgroup:
    """Return whether the cluster confines jobs with cgroups. This is the same on all its nodes."""
    text = (await controller.get(f"{config.SLURM_FOLDER}/cgroup.conf") or b"").decode()
    return "v2" if "cgroup/v2" in text else "disabled"


async def controller_answers(controller: Machine, as_user: str | None = None) -> Check:
    ran = await controller.run("timeout", "10", "scontrol", "ping", check=False, as_user=as_user)
    return state.controller_answers(ran.stdout + ran.stderr)


async def running_version(machine: Machine) -> str:
    """Return the version of the running slurmctld; the installed program may be newer."""
    ran = await machine.run("scontrol", "show", "config")
    return state.running_version(ran.stdout)


async def _put_files(machine: Machine, files: tuple[config.File, ...]) -> None:
    folders = sorted({file.path.rsplit("/", 1)[0] for file in files})
    await machine.script(MAKE_FOLDERS, "root", *folders)
    await machine.script(MAKE_FOLDERS, "slurm", "/var/lib/slurm", *receipts.STATE_FOLDERS, "/var/log/slurm")
    await asyncio.gather(*(machine.put(file.path, file.content, mode=file.mode, owner=file.owner) for file in files))


async def _refuse_old_partition(controller: Machine) -> None:
    """Refuse a login machine in a cluster of an earlier release, whose partition takes every node for jobs."""
    text = (await controller.get(f"{config.SLURM_FOLDER}/slurm.conf") or b"").decode()
    if "NodeSet=" not in text:
        raise Permanent(
            "the partition of this cluster takes every machine for jobs, because an earlier release deployed it",
            fix="deploy the instance again to use login machines",
        )


async def _wait_for_controller(machine: Machine, settings: Settings, progress: Show) -> None:
    async def answers() -> Check:
        return await controller_answers(machine)

    # slurmctld may exit after its unit has become active, if it cannot register with slurmdbd. So ping it.
    check = await checks.until(answers, within_s=settings.controller_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise await _did_not_start(machine, "slurmctld", check.reason)


async def _is_member(worker: Machine, controller: Machine) -> bool:
    active = await worker.run("systemctl", "is-active", "-q", "slurmd", check=False)
    if active.exit_status != 0:
        return False
    node = await nodes.read(controller, worker.hostname)
    return node is not None and not node.flags & {"DOWN", "NOT_RESPONDING", "INVALID_REG", "UNKNOWN"}


async def _delete_stale_node(controller: Machine, name: str) -> None:
    """Delete the record of a node that is down before it joins again: the record has the old hardware counts."""
    node = await nodes.read(controller, name)
    if node is None or not node.flags & {"DOWN", "INVALID_REG"} or state.drained_by_others(node):
        return
    if not await nodes.jobs_on(controller, name):
        await nodes.delete(controller, name)


async def _wait_until_idle(worker: Machine, controller: Machine, settings: Settings, progress: Show) -> None:
    async def idle() -> Check:
        return state.node_idle(worker.hostname, await nodes.read(controller, worker.hostname))

    check = await checks.until(idle, within_s=settings.join_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise await _did_not_start(worker, "slurmd", check.reason)


async def _did_not_start(machine: Machine, unit: str, reason: str) -> Permanent:
    log = await machine.run("tail", "-n", "5", f"/var/log/slurm/{unit}.log", check=False)
    tail = f"; the end of its log: {log.stdout.strip()[-800:]}" if log.stdout.strip() else ""
    return Permanent(
        f"{unit} on {machine.hostname} did not start: {reason.strip()}{tail}",
        fix=f"ssh {machine.address} journalctl -u {unit} --no-pager -n 50",
    )
