"""The action `auth.rotate`: replace the key with which the machines of a cluster accept each other, while jobs run.

A machine that does not answer, and that Slurm does not use, is left out. It gets the new key by the repair that the
health check requests when it returns."""

import asyncio
from dataclasses import dataclass
from typing import Any

from gpuaas_sdk.controller import MachineAway, Member, Operation, Refused, Temporary, members
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import plan, reports, roles
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, key_rotation, keys, nodes, reporter, slurm

NEW = "has the new key only"
LATER = "does not answer; gets the new key when it returns"


async def rotate(op: Operation, settings: Settings) -> dict[str, Any]:
    inputs = config.parse_inputs(op.instance.inputs)
    if inputs.auth != "slurm":
        raise Refused(
            "munge has one key, so machines with the old and the new one refuse each other and jobs would be lost",
            fix="deploy with auth=slurm, or stop the cluster, replace /etc/munge/munge.key and restart munge on the "
            "controller machine, and start the cluster again: the start gives the key to the other machines",
        )
    rotation = _Rotation(op, await reports.head(op), inputs, settings)
    await op.step("check the machines", rotation.check)
    await op.step("make the new key", key_rotation.begin, rotation.head)
    await op.step("accept both keys", rotation.accept)
    await op.step("sign with the new key", rotation.switch)
    await op.step("wait until messages with the old key are not valid any more", rotation.wait)
    await op.step("forget the old key", rotation.finish)
    return {"rows": await rotation.rows()}


@dataclass(frozen=True)
class _Rotation:
    """What every step of a rotation needs."""

    op: Operation
    head: Machine
    inputs: config.Inputs
    settings: Settings

    @property
    def others(self) -> tuple[Member, ...]:
        """One member of each machine that may be a node, without the controller machine."""
        head = roles.controller_of(self.op.members)
        machines = members.one_per_machine(roles.nodes_of(self.op.members))
        return tuple(each for each in machines if each.allocation_id != head.allocation_id and plan.is_judged(each))

    async def check(self) -> None:
        """Refuse what would fail later. Nothing was changed yet."""
        version = await slurm.running_version(self.head)
        if not key_rotation.reads_key_sets(version):
            raise Refused(f"Slurm {version} cannot have two keys", fix="upgrade to Slurm 24.05 or newer")
        await self._refuse_edits(self.head)
        try:
            await self._everywhere(self._refuse_edits)
        except Temporary as error:
            fix = "start the machine or restore its network; if it is lost, wait until Slurm shows it as down: sinfo -N"
            raise Refused(str(error), fix=fix) from error

    async def accept(self) -> None:
        """Have all daemons accept both keys. They sign with the old one until `switch`."""
        await self._everywhere(self._follow)
        await self._restart_head()

    async def switch(self) -> None:
        await key_rotation.switch(self.head)
        await self._everywhere(self._follow)
        await self._restart_head()

    async def wait(self) -> None:
        await self.op.say(f"waiting {self.settings.old_key_s:g} s; jobs start and run as usual")
        await asyncio.sleep(self.settings.old_key_s)

    async def finish(self) -> None:
        """Forget the old key, on the controller machine last: until then, a later attempt continues here."""
        await self._everywhere(self._finish)
        await key_rotation.finish(self.head, self.head, self.settings, self.op.say)
        await self._restart_head()

    async def rows(self) -> list[dict[str, Any]]:
        """Return what each machine has now."""
        key = await keys.read(self.head, "slurm")
        states = await asyncio.gather(*(self._state(member, key) for member in self.others))
        shown = (roles.controller_of(self.op.members), *self.others)
        return [
            {"machine": member.node_name, "role": member.component_key, "state": state}
            for member, state in zip(shown, (NEW, *states), strict=True)
        ]

    async def _state(self, member: Member, key: bytes) -> str:
        try:
            is_right = await self.op.on(
                member, lambda machine: key_rotation.has_only(machine, key), patience_s=self.settings.reach_repair_s
            )
        except MachineAway:
            return LATER
        return NEW if is_right else "returned during the rotation; the app repairs it"

    async def _everywhere(self, work: members.Work) -> None:
        """Do the work on all machines at the same time. A failure is raised when all have ended."""
        done = await asyncio.gather(*(self._on(member, work) for member in self.others), return_exceptions=True)
        for error in done:
            if error is not None:
                raise error

    async def _on(self, member: Member, work: members.Work) -> None:
        try:
            await self.op.on(member, work, patience_s=self.settings.reach_repair_s)
        except MachineAway as error:
            name = await reports.node_name(self.op, member)
            check = key_rotation.may_miss(name, await nodes.read(self.head, name))
            if not check.ok:
                raise Temporary(check.reason) from error
            await self.op.say(f"{name} does not answer; it gets the new key when it returns")

    async def _follow(self, machine: Machine) -> None:
        await key_rotation.follow(machine, self.head, self.settings, self.op.say)

    async def _finish(self, machine: Machine) -> None:
        await key_rotation.finish(machine, self.head, self.settings, self.op.say)

    async def _restart_head(self) -> None:
        await key_rotation.restart_head(self.head, self.inputs.cluster_name, self.settings, self.op.say)

    async def _refuse_edits(self, machine: Machine) -> None:
        """Refuse edits of the app's files: with the new key they would be remembered as right."""
        edited = [path for path in await reporter.changed(machine) if path != keys.SLURM_KEY]
        if edited:
            raise Refused(
                f"files on {machine.hostname} were changed after the app wrote them: {', '.join(edited)}",
                fix="gpuaas member repair puts them back; then request it again",
            )
