"""Set up accounting on the controller machine: MariaDB, slurmdbd, the cluster, its account and its users.

Called by `slurm` before the first start of slurmctld, because accounting cannot easily be added to a cluster later."""

from collections.abc import Collection

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine, commands

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import associations, state

DATABASE = "slurm_acct_db"
POLL_S = 0.1
CONVERSION_POLL_S = 1.0
NO_PROCESS = "0"
"""What systemd shows as the process of a unit that has none."""

CREATE_DATABASE = f"""
CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON {DATABASE}.* TO 'slurm'@'localhost';
"""
DROP_DATABASE = f"DROP DATABASE IF EXISTS {DATABASE}; DROP USER IF EXISTS 'slurm'@'localhost';"

# Add only what is missing: sacctmgr fails if there is nothing to add.
CLUSTER_AND_ACCOUNT = r"""
cluster=$1 account=$2
have() { [ -n "$(sacctmgr -nP "$@")" ]; }
have show cluster "$cluster" format=Cluster || sacctmgr -i -Q add cluster "$cluster" >/dev/null
have show account "$account" cluster="$cluster" withassoc format=Account ||
  sacctmgr -i -Q add account "$account" cluster="$cluster" Description=default Organization=default >/dev/null
"""

# A slurmdbd of the installed package is left alone: it may convert the database, and must not be interrupted. Linux
# shows the program of a process as deleted after its package was replaced.
START = r"""
pid=$(systemctl show -p MainPID --value slurmdbd)
case $(readlink "/proc/$pid/exe" || true) in */slurmdbd) exit 0 ;; esac
systemctl reset-failed slurmdbd || true
systemctl restart slurmdbd
"""
PROCESS = "systemctl show -p MainPID --value slurmdbd"


async def start(
    controller: Machine, cluster_name: str, users: tuple[str, ...], settings: Settings, progress: Show
) -> None:
    await progress("starting MariaDB and slurmdbd")
    await controller.run_all(
        units.enable("mariadb", "slurmdbd"),
        commands.run("systemctl", "start", "mariadb"),
        commands.run("mariadb", input=CREATE_DATABASE),
        units.restart("slurmdbd"),
        timeout_s=settings.accounting_start_s,
    )
    await wait_for_slurmdbd(controller, settings, progress)
    await controller.script(CLUSTER_AND_ACCOUNT, cluster_name, associations.ACCOUNT)
    await give_places(controller, cluster_name, users)


async def give_places(controller: Machine, cluster_name: str, users: Collection[str]) -> None:
    """Add these users to Slurm. Those that Slurm has stay as they are: one may have been removed a moment ago."""
    present = await associations.read(controller, cluster_name)
    if missing := [user for user in users if user not in present]:
        await associations.add(controller, cluster_name, missing)
        present = await associations.read(controller, cluster_name)
    associations.refuse_missing(controller, users, present, "did not add:")


async def restore_places(controller: Machine, cluster_name: str, users: Collection[str]) -> None:
    """Let these users submit jobs, also those that were removed before."""
    await give_places(controller, cluster_name, users)
    present = await associations.read(controller, cluster_name)
    blocked = [user for user in users if not present[user].can_submit]
    await associations.change(controller, cluster_name, blocked, associations.UNBLOCK)
    after = await associations.read(controller, cluster_name)
    can = {user: association for user, association in after.items() if association.can_submit}
    associations.refuse_missing(controller, users, can, "did not let submit jobs:")


CLUSTERS = commands.run("timeout", "5", "sacctmgr", "-nP", "show", "cluster", "format=Cluster")


async def ready(controller: Machine, cluster_name: str) -> Check:
    ran = (await controller.run_all(CLUSTERS, check=False))[0]
    return state.accounting_answers(ran.stdout or ran.stderr, cluster_name)


async def wait_for_slurmdbd(controller: Machine, settings: Settings, progress: Show) -> None:
    async def answers() -> Check:
        return await _slurmdbd_answers(controller)

    check = await checks.until(answers, within_s=settings.accounting_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise _no_answer(controller, settings.accounting_start_s)


async def start_converted(controller: Machine, settings: Settings, progress: Show) -> None:
    """Start the installed slurmdbd unless it runs. A newer one converts the database before it answers, which can take
    long if the database is large. Wait while its process lives."""
    await controller.script(START, check=False)
    try:
        await wait_for_slurmdbd(controller, settings, progress)
    except Permanent:
        process = await _process(controller)
        if process == NO_PROCESS:
            raise
        await _until_converted(controller, process, settings, progress)


async def _until_converted(controller: Machine, process: str, settings: Settings, progress: Show) -> None:
    async def answers_or_ended() -> Check:
        answers = await _slurmdbd_answers(controller)
        if answers.ok or await _process(controller) == process:
            return Check(answers.ok, f"slurmdbd on {controller.hostname} converts the database")
        raise _no_answer(controller, settings.accounting_start_s)

    limit_s = settings.conversion_s
    check = await checks.until(answers_or_ended, within_s=limit_s, every_s=CONVERSION_POLL_S, show=progress)
    if not check.ok:
        raise _no_answer(controller, limit_s)


async def _slurmdbd_answers(controller: Machine) -> Check:
    ran = await controller.run("timeout", "5", "sacctmgr", "-nP", "show", "cluster", check=False)
    return Check(ran.exit_status == 0, "waiting for slurmdbd to answer")


async def _process(controller: Machine) -> str:
    return (await controller.script(PROCESS)).stdout.strip()


def _no_answer(controller: Machine, within_s: float) -> Permanent:
    return Permanent(
        f"slurmdbd on {controller.hostname} did not answer within {within_s:.0f} s",
        fix=f"ssh {controller.address} journalctl -u slurmdbd -u mariadb --no-pager -n 50",
    )
