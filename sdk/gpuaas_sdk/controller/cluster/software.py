"""What an app describes about its software on one machine. `moves` calls it at the right moments."""

from collections.abc import Mapping, Sequence

from gpuaas_contract.instances import AccessBundle, Member

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.installs import Footprint
from gpuaas_sdk.installs.acts import NONE, Acts
from gpuaas_sdk.machine import Machine

ENDING = ("stop", "restart", "upgrade", "rollback", "decommission")
"""Operations during which no member works, also the head."""


class Software:
    """The software of one app. Each method brings a machine into a state, so it is safe to repeat. During a replace,
    `member` is a copy with the address of the new machine.

    class Kv(Software):
        footprint, head = KV, "primary"
        async def start(self, member: Member, machine: Machine) -> None:
            await machine.run_all(units.enable("kv"), units.restart("kv"))"""

    footprint: Footprint
    head: str
    """The role whose member joins before all others and leaves after them."""
    health: Mapping[str, str] = {}
    """Role -> the condition that is true while all its members serve. The manifest lists these conditions."""
    source: str = "the processes on the machine"
    """Where `work` looks, as people read it in a preview and in evidence."""
    ends: str = ""
    """What ends for users while the whole app is stopped or changed. Previews of such operations show it."""
    acts: Acts = NONE

    async def install(self, op: Operation, member: Member, machine: Machine) -> None:
        """Install the version that the operation leads to. Software that runs keeps running."""
        raise NotImplementedError

    async def start(self, member: Member, machine: Machine) -> None:
        """Let the member take work. One that already does is not disturbed."""
        raise NotImplementedError

    async def close(self, member: Member, machine: Machine) -> None:
        """Take no new work; present work continues. By default the member cannot be closed."""

    async def stop(self, member: Member, machine: Machine) -> None:
        """End the software on the machine."""
        raise NotImplementedError

    async def serves(self, member: Member, machine: Machine) -> Check:
        """Does the member take work? Also asked between operations, as a user without any rights."""
        raise NotImplementedError

    async def idle(self, member: Member, machine: Machine) -> Check:
        """Has all work of a closed member ended?"""
        work = await self.work(member, machine)
        return Check(not work, f"{len(work)} pieces of work run on {machine.hostname}: {', '.join(work[:5])}")

    async def work(self, member: Member, machine: Machine) -> Sequence[str]:
        """Return the work that runs on the machine now. If that cannot be seen, raise `Temporary`."""
        raise NotImplementedError

    async def version(self, member: Member, machine: Machine) -> str:
        """Return the version that is installed on the machine."""
        raise NotImplementedError

    def access(self, op: Operation) -> AccessBundle:
        """Return how users reach the app, from `op.members`."""
        raise NotImplementedError

    def notes(self, op: Operation) -> Sequence[str]:
        """Return what a preview of this operation should mention beside the work that runs; see `op.preview_of`."""
        return [self.ends] if self.ends and op.preview_of in ENDING else []
