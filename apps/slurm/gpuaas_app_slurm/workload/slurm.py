"""Install Slurm on machines, start a controller, join workers. Does not use the platform.

Every function can be repeated after an interruption. The handlers in `bring_up` call them as steps."""

import asyncio
from collections.abc import Sequence

import msgspec
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.installs import bundle, packages, receipts, units
from gpuaas_sdk.machine import Command, CommandFailed, File, Machine, commands

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    backup,
    cluster,
    config,
    facts,
    footprint,
    home,
    keys,
    nodes,
    reporter,
    rest,
    state,
    users,
    versions,
)

POLL_S = 0.1
STOPPED = frozenset({"inactive", "failed", "unknown"})
"""What systemd prints for a unit that has no process. `deactivating` is not one of them."""

PING = commands.run("timeout", "10", "scontrol", "ping")
CONFIG = commands.run("scontrol", "show", "config")

MPI = r"""
if ls /usr/lib/*/slurm*/mpi_pmix*.so >/dev/null 2>&1; then echo pmix; else echo pmi2; fi
"""
# Slurm's packages rotate /var/log/slurm with logrotate. Packages start nothing while they are installed.
LOGROTATE = commands.script("systemctl enable -q --no-reload --now logrotate.timer || true")
MAKE_FOLDERS = r"""
for folder in "$@"; do [ -d "$folder" ] || install -d -o slurm -g slurm -m 0755 "$folder"; done
"""


class Common(msgspec.Struct, frozen=True):
    """What all machines of a deployed cluster have in common, as its controller machine has it."""

    key: bytes | None
    key_set: bytes | None
    """The keys of a cluster whose key was replaced."""
    cgroup: facts.Cgroup
    homes: home.Home
    auth: keys.Auth = "slurm"
    has_worker_set: bool = True
    """The partition takes workers only. In a cluster of an earlier release it takes every node."""
    version: str = ""
    """The version of the packages of Slurm; empty if it is not known."""
    app_version: str = ""
    """The app version of the instance."""


async def install(
    machine: Machine,
    instance_id: str,
    roles: tuple[str, ...],
    accounts: Sequence[users.User],
    progress: Show,
    homes: home.Home = home.LOCAL,
    source: packages.Source = packages.DISTRIBUTION,
    controller_address: str = "",
    more: tuple[str, ...] = (),
) -> facts.Facts | None:
    """Install packages, mount the homes and add users; the receipt is written before each change.

    With the address of the controller, a machine with slurmd also gets its files, so that it can join soon. Return its
    facts then: `join` needs them. `more` are packages of options."""
    await progress(f"inspecting {machine.hostname}")
    receipt = await receipts.open_for(
        machine, footprint.SLURM, instance_id, roles, tuple(user.name for user in accounts)
    )
    await progress(f"installing packages on {machine.hostname}")
    # The controller may be on this machine already, if only a worker is added to it.
    on_controller = role_names.CONTROLLER in receipt.roles
    is_beside = on_controller and role_names.CONTROLLER not in roles
    nfs = home.CLIENT_PACKAGES if homes.kind == "nfs" else ()
    server = home.SERVER_PACKAGES if homes.is_exported and on_controller else ()
    more = (*nfs, *server, *more)
    await packages.install(machine, footprint.SLURM, receipt, roles, more, source, versions.refuse_old_slurm)
    node_role = role_names.of_node(roles)
    seen = await facts.read(machine) if controller_address and node_role else None
    more_files = reporter.files(machine.hostname, receipt.roles)
    await machine.run_all(
        LOGROTATE,
        # Slurm's Debian packages depend on munge. A cluster that uses it enables it with the key of the cluster.
        # On the machine of a controller that was deployed before, it is as the cluster needs it.
        *((units.disable("munge"),) if "munge" in receipt.packages and not is_beside else ()),
        *(_node_files(controller_address, seen, homes, node_role, more_files) if seen is not None else ()),
        *home.mount(homes, on_controller=on_controller),
        users.accounts(accounts),
        bundle.remove(footprint.SLURM),
        timeout_s=home.MOUNT_S,
    )
    return seen


async def start_controller(
    machine: Machine,
    wanted: config.Cluster,
    names: tuple[str, ...],
    settings: Settings,
    progress: Show,
    roles: tuple[str, ...] = (role_names.CONTROLLER,),
) -> None:
    """Write the key and the configuration, start accounting, then start slurmctld."""
    wanted = msgspec.structs.replace(wanted, mpi=await mpi(machine))
    await keys.make(machine, wanted.auth)
    await write_controller(machine, wanted, reporter.files(machine.hostname, roles))
    await accounting.start(machine, wanted.cluster_name, names, settings, progress)
    await start_scheduler(machine, settings, progress)


async def write_controller(machine: Machine, wanted: config.Cluster, more: Sequence[File] = ()) -> None:
    """Write the configuration of the machine of slurmctld, and more files."""
    if wanted.rest_api:
        await rest.make_key(machine)
    is_node = await machine.get(config.GRES_DEVICES_PATH) is not None
    no_gpus = () if is_node else (File(config.GRES_DEVICES_PATH, config.gres_devices(None)),)
    await machine.run_all(*_put_files((*config.controller_files(wanted), *no_gpus, *more)), units.RELOAD)


async def start_scheduler(machine: Machine, settings: Settings, progress: Show) -> None:
    """Start slurmctld, now and after each start of the machine, and wait until it answers."""
    await progress("starting slurmctld")
    enabled, _ = await machine.run_all(units.enable("slurmctld"), units.restart("slurmctld"), check=False)
    if enabled.exit_status != 0:
        raise Permanent(
            f"slurmctld would not start with the machine {machine.hostname}: {enabled.stderr.strip()}",
            fix=f"ssh {machine.address} systemctl enable slurmctld",
        )
    await wait_for_controller(machine, settings, progress)
    await rest.start(machine, settings, progress)


async def read_common(controller: Machine, inputs: config.Inputs, app_version: str) -> Common:
    """Read what a machine needs to join the cluster of an instance with this app version."""
    key, cgroup, conf = keys.PATHS[inputs.auth], f"{config.SLURM_FOLDER}/cgroup.conf", config.SLURM_CONF
    contents, installed = await asyncio.gather(
        controller.get_all(key, keys.KEY_SET, cgroup, conf, home.UNIT_PATH),
        packages.software_versions(controller, footprint.SLURM),
    )
    return Common(
        key=contents[key],
        key_set=contents[keys.KEY_SET],
        cgroup="v2" if b"cgroup/v2" in (contents[cgroup] or b"") else "disabled",
        homes=home.of_unit(inputs.home, controller.address, contents[home.UNIT_PATH]),
        auth=inputs.auth,
        has_worker_set=b"NodeSet=" in (contents[conf] or b""),
        version=footprint.SLURM.software.version(installed),
        app_version=app_version,
    )


async def join(
    worker: Machine,
    controller: Machine,
    common: Common,
    settings: Settings,
    progress: Show,
    role: str = role_names.WORKER,
    prepared: facts.Facts | None = None,
    looks: nodes.Looks | None = None,
) -> None:
    """Make the machine a node of the cluster, unless it is one already. `prepared`: `install` returned it just now."""
    looks = looks or nodes.Looks(controller)
    node = await looks.node(worker.hostname)
    if _is_fit(node, role) and await _is_active(worker):
        return
    version = footprint.SLURM.software.version(await packages.software_versions(worker, footprint.SLURM))
    if not versions.is_same_release(version, common.version):
        before = None if await backup.is_returned(controller) else await backup.read(controller)
        after = await backup.read(controller, backup.AFTER)
        is_between = backup.is_between(before, common.app_version, common.version, after)
        raise versions.other_release(worker.hostname, version, common.version, is_between=is_between)
    seen = prepared or await facts.read(worker)
    cluster.refuse_other_cgroup(seen, common.cgroup)
    if role == role_names.LOGIN and not common.has_worker_set:
        raise Permanent(
            "the partition of this cluster takes every machine for jobs, because an earlier release deployed it",
            fix="deploy the instance again to use login machines",
        )
    await delete_stale_node(controller, node, role)
    key = _key(worker, controller, common)
    await progress(f"starting slurmd on {worker.hostname}")
    if prepared is None:
        await worker.run_all(*key, *_node_files(controller.address, seen, common.homes, role), units.RELOAD)
        key = ()
    await _start_slurmd(worker, key, settings)
    await _wait_until_idle(worker, looks, settings, progress)


async def _start_slurmd(worker: Machine, before: tuple[Command, ...], settings: Settings) -> None:
    """Run these commands and start slurmd, with one round trip. slurmd does not start if one of them fails."""
    restart = units.restart("slurmd")
    try:
        await worker.run_all(*before, restart, timeout_s=settings.slurmd_start_s)
    except CommandFailed as error:
        if error.command.summary != restart.summary:
            raise
        raise await did_not_start(worker, "slurmd", error.output) from error


async def mpi(machine: Machine) -> str:
    """Return the interface for MPI programs that the installed Slurm has: pmix, or pmi2 where it was built without."""
    return (await machine.script(MPI, timeout_s=60)).stdout.strip() or "pmix"


async def controller_answers(controller: Machine, as_user: str | None = None) -> Check:
    ran = await controller.run("timeout", "10", "scontrol", "ping", check=False, as_user=as_user)
    return state.controller_answers(ran.stdout + ran.stderr)


async def running_version(machine: Machine) -> str:
    """Return the version of the running slurmctld; the installed program may be newer."""
    ran = await machine.run("scontrol", "show", "config")
    return state.running_version(ran.stdout)


def _put_files(files: Sequence[File]) -> tuple[Command, ...]:
    state_folders = ("/var/lib/slurm", *footprint.STATE_FOLDERS, "/var/log/slurm")
    return commands.put_all(files), commands.script(MAKE_FOLDERS, *state_folders)


def _key(worker: Machine, controller: Machine, common: Common) -> tuple[Command, ...]:
    """Return the commands that give the key of the cluster to a machine. The controller machine has it."""
    if worker.address == controller.address:
        return ()
    return keys.copy(keys.present(controller, common.auth, common.key), common.key_set, common.auth)


def _node_files(
    address: str, seen: facts.Facts, homes: home.Home, role: str, more: Sequence[File] = ()
) -> tuple[Command, ...]:
    """Return the commands that write the files of a machine with slurmd, and more files. systemd must read its files
    after them."""
    files_of = config.login_files if role == role_names.LOGIN else config.worker_files
    return *_put_files((*files_of(address, seen, homes), *more)), units.enable("slurmd")


async def wait_for_controller(machine: Machine, settings: Settings, progress: Show) -> None:
    async def answers() -> Check:
        return await controller_answers(machine)

    # slurmctld may exit after its unit has become active, if it cannot register with slurmdbd. So ping it.
    check = await checks.until(answers, within_s=settings.controller_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise await did_not_start(machine, "slurmctld", check.reason)


async def _is_active(worker: Machine) -> bool:
    return (await worker.run("systemctl", "is-active", "-q", "slurmd", check=False)).exit_status == 0


def _is_fit(node: state.Node | None, role: str) -> bool:
    unfit = {"DOWN", "NOT_RESPONDING", "INVALID_REG", "UNKNOWN"}
    return node is not None and not node.flags & unfit and not state.is_given_up(node) and state.has_role(node, role)


async def leave(machine: Machine, controller: Machine, name: str, reason: str) -> None:
    """Stop slurmd, then delete the node: a slurmd that runs registers again, and Slurm would have the node once more.

    No job can start there from the drain on, so none loses its slurmd. Raise Temporary while one runs."""
    if await nodes.read(controller, name) is not None:
        await nodes.drain(controller, name, reason)
        look = await nodes.look(controller, name)
        if look.jobs:
            raise Temporary(state.no_work(name, look.node, look.jobs).reason, after_s=2.0)
    await _stop_slurmd(machine)
    await nodes.delete(controller, name)


async def leave_by_force(machine: Machine, controller: Machine, name: str) -> None:
    """The same with jobs that run there: Slurm ends them. Their steps would continue without slurmd and keep the GPUs,
    so they are ended before Slurm reports the jobs as ended."""
    await _stop_slurmd(machine)
    await machine.script(footprint.END_STEPS)
    await nodes.delete_by_force(controller, name)


async def _stop_slurmd(machine: Machine) -> None:
    """Stop slurmd, and raise Temporary while it still runs. The stop itself fails if an interrupted removal has already
    taken slurmd off the machine, so the state of the unit decides."""
    await machine.run("systemctl", "stop", "slurmd", check=False)
    shown = await machine.run("systemctl", "is-active", "slurmd", check=False)
    if (unit := shown.stdout.strip()) not in STOPPED:
        error = shown.stderr.strip()[-200:] or "no output"
        raise Temporary(f"slurmd on {machine.hostname} was stopped, but its unit is {unit or error}", after_s=2.0)


async def delete_stale_node(controller: Machine, node: state.Node | None, role: str) -> None:
    """Delete the record of a node before it joins again if it is down, was given up or had another role: the record has
    the old hardware counts and partitions."""
    if node is None:
        return
    has_role = state.has_role(node, role)
    if has_role and state.drained_by_others(node):
        return
    if has_role and not (node.flags & {"DOWN", "INVALID_REG"} or state.is_given_up(node)):
        return
    if not (jobs := await nodes.jobs_on(controller, node.name)):
        await nodes.delete(controller, node.name)
    elif not has_role:
        raise Permanent(
            f"{'1 job still runs' if len(jobs) == 1 else f'{len(jobs)} jobs still run'} on {node.name}, whose node in "
            f"Slurm has the features {', '.join(node.features)} and not {role}",
            fix=f"wait until they end (squeue -w {node.name}), then retry",
        )


async def _wait_until_idle(worker: Machine, looks: nodes.Looks, settings: Settings, progress: Show) -> None:
    async def idle() -> Check:
        return state.node_idle(worker.hostname, await looks.node(worker.hostname))

    check = await checks.until(idle, within_s=settings.join_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise await did_not_start(worker, "slurmd", check.reason)


async def did_not_start(machine: Machine, unit: str, reason: str) -> Permanent:
    log = await machine.run("tail", "-n", "5", f"/var/log/slurm/{unit}.log", check=False)
    tail = f"; the end of its log: {log.stdout.strip()[-800:]}" if log.stdout.strip() else ""
    return Permanent(
        f"{unit} on {machine.hostname} did not start: {reason.strip()}{tail}",
        fix=f"ssh {machine.address} journalctl -u {unit} --no-pager -n 50",
    )
