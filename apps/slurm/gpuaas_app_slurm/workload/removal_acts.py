"""What only this app undoes on a machine: its database, running job steps, the mount of homes, the key of munge.

The kit calls it at fixed moments of a removal (`gpuaas_sdk.installs.acts`)."""

from collections.abc import Iterable, Sequence

from gpuaas_sdk.installs import Undo
from gpuaas_sdk.installs.acts import Acts
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles
from gpuaas_app_slurm.workload import accounting, footprint, home, keys, reporter, rest


class SlurmActs(Acts):
    """`homes` is where homes are: `local`, or the folder that is mounted; empty if the statement does not need it."""

    def __init__(self, homes: str = "") -> None:
        self._homes = homes

    async def before_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        if role == roles.CONTROLLER:
            await rest.stop(machine)
        if drops_database(plan, role):
            await _drop_database(machine)

    async def after_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        if "slurmd" in plan.stop_units:
            await machine.script(footprint.END_STEPS)

    async def before_users(self, machine: Machine, plan: Undo) -> None:
        await home.unmount(machine)

    async def before_paths(self, machine: Machine, plan: Undo) -> None:
        await keys.restore(machine)
        await machine.script(home.LEAVE_PEOPLE, home.PEOPLE)

    async def after_role(self, machine: Machine, staying: Sequence[str]) -> None:
        await reporter.start(machine, staying)  # It reloads systemd too.

    def folders(self, plan: Undo) -> tuple[str, ...]:
        return (home.PEOPLE,) if plan.last else ()

    def removed(self, plan: Undo, role: str) -> Iterable[tuple[str, Sequence[str]]]:
        return [("databases", (accounting.DATABASE,) if drops_database(plan, role) else ())]

    def left(self, plan: Undo, present: set[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        if self._homes not in ("", "local"):
            yield f"home folders on {self._homes}", "the folder is shared and belongs to the people, not to the cluster"
        if ("content", home.PEOPLE) in present:
            yield f"home folders in {home.PEOPLE}", "they belong to accounts of people, which the platform keeps"


def drops_database(plan: Undo, role: str) -> bool:
    """Return whether only the database is dropped: its server was installed before the app, and stays."""
    return plan.last and role == roles.CONTROLLER and "mariadb-server" not in plan.packages


async def _drop_database(machine: Machine) -> None:
    """Drop only the database and the database user of the app, because MariaDB was installed before and stays."""
    await machine.script("systemctl stop slurmctld.service slurmdbd.service 2>/dev/null || true")
    started = await machine.run("systemctl", "start", "mariadb", check=False)
    if started.exit_status == 0:
        await machine.run("mariadb", input=accounting.DROP_DATABASE)
