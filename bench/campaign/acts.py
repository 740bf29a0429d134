"""What people request during a campaign: operations on members and exits of operations, chosen by a drawn number."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpuaas_contract import instances, lifecycles
from gpuaas_contract.errors import ApiError, Conflict, OperationInProgress
from gpuaas_contract.operations import ExitName, Operation
from gpuaas_sdk.outcomes import NoAnswer

from bench.campaign.cluster import Cluster
from bench.campaign.jobs import Forced

Item = TypeVar("Item")
WEIGHTS: dict[ExitName, int] = {"retry": 8, "cancel": 8, "compensate": 6, "force_complete": 1, "tombstone": 1}
PAUSE_S = 1.0
CHANGING = ("stopping", "starting", "upgrading", "rolling_back", "reconfiguring")


@dataclass(frozen=True)
class Request:
    """What a person sends, as chosen from what the platform shows at that moment."""

    what: str
    call: Callable[[], Awaitable[Operation]]
    dry_run: bool = False


Choose = Callable[[], Awaitable[Request | None]]
"""Chooses what to request; None if there is nothing to request. A request that has to wait is chosen again, because the
operation before it changes what is possible."""


@dataclass
class Acts:
    cluster: Cluster
    patience_s: float = 0.0
    """How long a request waits for an operation in progress."""
    requested: list[str] = field(default_factory=list)
    """Ids of accepted operations."""
    forced: list[Forced] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    """Machines of members that were given up: something of Slurm may be left there."""

    async def add(self, role: str, pick: float) -> None:
        async def choose() -> Request | None:
            machine = chosen(self.free(await self.cluster.members()), pick)
            if machine is None:
                return None
            what = f"add {role} {machine}"
            return self._member_request(what, kind="add", component_key=role, allocation_ids=[machine])

        await self.request(choose)

    async def change(self, kind: str, pick: float, *, force: bool = False, dry_run: bool = False) -> None:
        """Drain, resume, remove or repair a member."""

        async def choose() -> Request | None:
            members = [member for member in await self.cluster.members() if _is_candidate(kind, member)]
            member = chosen(members, pick)
            if member is None:
                return None
            what = f"{'force ' if force else ''}{kind} {member.node_name}/{member.component_key} ({member.status})"
            if force:
                self._note_force(member.node_name)
            return self._member_request(
                f"dry run of {what}" if dry_run else what,
                dry_run=dry_run,
                kind=kind,
                component_key=member.component_key,
                member_ids=[member.member_id],
                reason="the campaign",
                force=force,
            )

        await self.request(choose)

    async def replace(self, pick: float, *, machine: str = "", force: bool = False) -> None:
        """Move a worker, the one of this machine if it is named, to a free machine."""

        async def choose() -> Request | None:
            members = await self.cluster.members()
            workers = [item for item in members if item.component_key == "worker"]
            member = chosen([item for item in workers if machine in ("", item.node_name)], pick)
            spare = chosen(self.free(members), pick)
            if member is None or spare is None:
                return None
            if force:
                self._note_force(member.node_name)
            return self._member_request(
                f"{'force ' if force else ''}replace {member.node_name} ({member.status}) with {spare}",
                kind="replace",
                component_key="worker",
                member_ids=[member.member_id],
                allocation_ids=[spare],
                reason="the campaign",
                force=force,
            )

        await self.request(choose)

    def free(self, members: Sequence[instances.Member]) -> list[str]:
        """Return the machines that no member uses."""
        used = {member.node_name for member in members}
        return [name for name in self.cluster.machines if name not in used]

    def _note_force(self, machine: str) -> None:
        self.forced.append(Forced(machine, time.time()))
        self.left.add(machine)

    def _member_request(self, what: str, *, dry_run: bool = False, **body: Any) -> Request:
        return Request(what, lambda: self.cluster.operate(dry_run=dry_run, **body), dry_run)

    async def request(self, choose: Choose) -> bool:
        """Request an operation. One that must wait for another is chosen and requested again, as people do."""
        deadline = time.monotonic() + self.patience_s
        while (request := await choose()) is not None:
            try:
                operation = await request.call()
            except (ApiError, NoAnswer) as error:
                if time.monotonic() >= deadline or not await self._is_changing(error):
                    self.cluster.journal.note("refused", f"{request.what}: {error}")
                    return False
                await asyncio.sleep(PAUSE_S)
                continue
            if not request.dry_run:
                self.requested.append(operation.operation_id)
            kind = "dry run" if request.dry_run else "operation"
            self.cluster.journal.note(kind, f"{request.what}: {operation.operation_id}")
            return True
        return False

    async def _is_changing(self, error: Exception) -> bool:
        """Return whether the request was refused because of an operation in progress."""
        if isinstance(error, OperationInProgress):
            return True
        return isinstance(error, Conflict) and (await self.cluster.instance()).status in CHANGING

    async def exit(self, pick: float, name_pick: float) -> None:
        """Take an exit of an operation that is in progress or failed."""
        listed = [item for item in await self.cluster.all_operations() if item.status not in ("succeeded", "cancelled")]
        own = [item for item in listed if item.kind != "preview"]
        if (item := chosen(own, pick)) is None:
            return
        operation = await self.cluster.project.operation(item.operation_id)
        offered = [exit.name for exit in operation.exits if exit.permitted for _ in range(WEIGHTS[exit.name])]
        if (name := chosen(offered, name_pick)) is None:
            return
        if name in ("tombstone", "force_complete"):
            nodes = {member.member_id: member.node_name for member in await self.cluster.members(live=False)}
            self.left |= {nodes[target.member_id] for target in operation.targets if target.member_id in nodes}
        await self.take(operation, name)

    async def take(self, operation: Operation, name: ExitName) -> bool:
        what = f"{name} {operation.kind} {operation.operation_id} ({operation.status})"
        try:
            after = await self.cluster.take(operation.operation_id, name, "the campaign")
        except (ApiError, NoAnswer) as error:
            self.cluster.journal.note("refused", f"{what}: {error}")
            return False
        self.cluster.journal.note("exit", f"{what} -> {after.status}")
        return True


def chosen(items: Sequence[Item], pick: float) -> Item | None:
    """Return the item at this part of the list. The drawn number does not depend on how many items there are."""
    return items[int(pick * len(items))] if items else None


def _is_candidate(kind: str, member: instances.Member) -> bool:
    if member.component_key == "controller":
        return kind == "repair"
    if member.component_key == "login" and kind not in ("remove", "repair"):
        return False
    wanted = {"drain": ("ready", "degraded", "draining"), "resume": ("drained", "draining")}
    return member.status in wanted.get(kind, tuple(lifecycles.MEMBER))
