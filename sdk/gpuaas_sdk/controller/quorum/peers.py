"""What an app describes about members that agree by majority. `moves` calls it at the right moments."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuaas_contract.instances import AccessBundle, Member

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.installs import Footprint
from gpuaas_sdk.installs.acts import NONE, Acts
from gpuaas_sdk.machine import Machine


@dataclass(frozen=True)
class Settings:
    """Time limits. Tests shorten them.

    KvPeers(KV, "server", quorum.Settings(start_s=5, answer_s=5, safe_s=5))"""

    start_s: float = 120.0
    """How long a member may take to serve after its start."""
    answer_s: float = 2.0
    """How long the machine of another member may be silent before the next one is asked."""
    safe_s: float = 30.0
    """How long a removal waits until the others serve, before it is refused. An election takes seconds."""


class Peers:
    """The members of the app. Each method brings something into a state, so it is safe to repeat.

    class KvPeers(Peers):
        async def healthy(self, machine: Machine) -> Check:
            ran = await machine.run("kv", "ping", check=False)
            return Check(ran.exit_status == 0, ran.stderr)

    quorum.register(app, KvPeers(KV, "server"))"""

    acts: Acts = NONE
    """What only the app can undo on a machine."""

    def __init__(self, footprint: Footprint, role: str, settings: Settings | None = None) -> None:
        self.footprint, self.role, self.settings = footprint, role, settings or Settings()

    async def found(self, op: Operation, member: Member, machine: Machine) -> None:
        """Start the member as one of `op.members`, which are all of a new cluster. Do not wait for the others."""
        raise NotImplementedError

    async def enter(self, op: Operation, member: Member, machine: Machine, serving: Member) -> None:
        """Start the member as a new one of a cluster that serves; `serving` is a member that does. One whose data was
        lost is a new one too. It must not count for the quorum before it has the data."""
        raise NotImplementedError

    async def admit(self, op: Operation, member: Member, serving: Member) -> None:
        """Let the member that has entered count for the quorum. Raise `Temporary` while it is not up to date."""

    async def retire(self, op: Operation, member: Member, serving: Member) -> None:
        """End the membership of this member, if the cluster lists it. Its machine may be silent."""
        raise NotImplementedError

    async def start(self, op: Operation, member: Member, machine: Machine) -> None:
        """Start a member that was stopped. All members of a stopped instance start at the same time."""
        raise NotImplementedError

    async def stop(self, machine: Machine) -> None:
        """Stop the member; its data stays."""
        raise NotImplementedError

    async def restart(self, machine: Machine, cause: str) -> None:
        """Restart the member with the version that is installed, once for each cause: use `units.restart_once`."""
        raise NotImplementedError

    async def healthy(self, machine: Machine) -> Check:
        """Return whether the member serves. Health checks ask this as a user without rights."""
        raise NotImplementedError

    async def version(self, machine: Machine) -> str:
        """Return the version that runs."""
        raise NotImplementedError

    def refusal(self, before: str, after: str) -> str:
        """Return why packages cannot change from one version to the other; empty if they can. Pure."""
        return ""

    def conditions(self, unwell: Mapping[str, str]) -> dict[str, Check]:
        """Return more health conditions than `HasQuorum` and `AllMembersHealthy`. Pure."""
        return {}

    def access(self, op: Operation) -> AccessBundle:
        """Return how people use the app. Pure."""
        return AccessBundle()
