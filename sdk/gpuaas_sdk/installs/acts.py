"""What only the app itself can undo on a machine, at fixed moments of a removal. `uninstall` calls it."""

from collections.abc import Iterable, Sequence

from gpuaas_sdk.installs.undo import Undo
from gpuaas_sdk.machine import Machine


class Acts:
    """The app's own part of a removal. Each act must be safe to repeat; by default there is nothing to do.

    class KvActs(Acts):
        async def before_stop(self, machine: Machine, plan: Undo, role: str) -> None:
            await leave_cluster(machine)

    await uninstall.remove_role(machine, KV, instance_id, "server", op.say, acts=KvActs())"""

    async def before_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        """Act while the services of the role still run."""

    async def after_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        """Act when the services have stopped, before packages are removed."""

    async def before_users(self, machine: Machine, plan: Undo) -> None:
        """Act when no process of the app's users is left, before the users are removed. Only with the last role."""

    async def before_paths(self, machine: Machine, plan: Undo) -> None:
        """Act when users are removed, before files are. Only with the last role."""

    async def after_role(self, machine: Machine, staying: Sequence[str]) -> None:
        """Act when one role has left and others stay, before the receipt no longer lists it. Reload systemd here."""
        await machine.run("systemctl", "daemon-reload")

    def folders(self, plan: Undo) -> tuple[str, ...]:
        """Return more folders to look into after the removal; `left` gets those with content as `("content", PATH)`."""
        return ()

    def removed(self, plan: Undo, role: str) -> Iterable[tuple[str, Sequence[str]]]:
        """Return what the acts removed, for the statement: what it is, and the names.

        return [("databases", ("accounts",))]"""
        return ()

    def left(self, plan: Undo, present: set[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        """Return what stays on purpose, for the statement: what it is, and why. Only with the last role.

        return [("snapshots on /srv", "they are on a shared folder")]"""
        return ()


NONE = Acts()
"""For an app whose footprint lists everything.

assert acts.NONE == Acts()"""
