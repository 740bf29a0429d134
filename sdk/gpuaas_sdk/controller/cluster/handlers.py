"""Register the handlers of an app with a head and workers. Only those that its manifest lists."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, get_args

from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.operations import PREVIEWED_KINDS, UNDONE, OperationKind, Preview, Work
from gpuaas_contract.runtime import ReportedCondition

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import members, rules
from gpuaas_sdk.controller.app import App
from gpuaas_sdk.controller.cluster import moves
from gpuaas_sdk.controller.cluster.software import Software
from gpuaas_sdk.controller.handlers import Handler
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.reconciliation import Reconciliation
from gpuaas_sdk.failures import Refused, Temporary
from gpuaas_sdk.machine import MachineUnreachable

PREVIEW_S = 5.0
"""How long a preview waits for a silent machine."""
_NEEDS_NO_WORK = frozenset({"decommission", "stop", "restart", "upgrade", "rollback"})
"""Operations that are refused while the head has work."""


def register(app: App, software: Software, *, health_every_s: float = 10.0) -> None:
    """Add a handler for each operation that the manifest lists, its undo and its preview, and the health handler.

    cluster.register(app, Kv())"""
    handlers = _Cluster(software)
    roles = {kind for role in app.manifest.roles for kind in role.operations}
    listed = {"deploy", "decommission", *app.manifest.instance_operations, *roles}
    chosen: list[OperationKind] = [kind for kind in get_args(OperationKind) if kind in listed]
    for kind in chosen:
        if kind in handlers.by_kind:
            app.operation(kind, replace_order="old_first" if kind == "replace" else None)(handlers.by_kind[kind])
        if kind in UNDONE and kind in handlers.undos:
            app.undo(kind)(handlers.undos[kind])
        if kind in PREVIEWED_KINDS:
            app.preview(kind)(handlers.preview)
    if software.health:
        app.health(health_every_s)(handlers.look)


def in_order(head: str, members: Iterable[Member]) -> list[Sequence[Member]]:
    """Return the head, then all others: the order in which they join. Pure.

    in_order("primary", op.to_do)"""
    chosen = list(members)
    first = [member for member in chosen if member.component_key == head]
    rest = [member for member in chosen if member.component_key != head]
    return [group for group in (first, rest) if group]


class _Cluster:
    """The handlers of one app."""

    def __init__(self, software: Software) -> None:
        self.software = software
        self.by_kind: dict[OperationKind, Handler] = {
            "deploy": self.bring_up,
            "add": self.bring_up,
            "remove": self.take_away,
            "decommission": self.take_away,
            "drain": self.drain,
            "resume": self.open,
            "replace": self.replace,
            "repair": self.repair,
            "stop": self.stop,
            "start": self.open,
            "restart": self.change,
            "upgrade": self.change,
            "rollback": self.change,
        }
        self.undos: dict[OperationKind, Handler] = {
            "deploy": self.take_away,
            "add": self.take_away,
            "remove": self.give_back,
            "drain": self.give_back,
            "resume": self.drain,
            "replace": self.keep,
            "stop": self.open,
            "start": self.stop,
            "restart": self.change,
            "upgrade": self.change,
            "rollback": self.change,
        }

    async def bring_up(self, op: Operation) -> None:
        await self._forwards(op, lambda member: moves.join(op, self.software, member))
        await op.publish_access(self.software.access(op))

    async def take_away(self, op: Operation) -> None:
        if op.kind == "decommission":
            await self._require_no_work(op)
        name = "take back" if op.backs_out else "remove"
        await self._backwards(op, lambda member: moves.leave(op, self.software, member, name))

    async def drain(self, op: Operation) -> None:
        await self._backwards(op, lambda member: moves.drain(op, self.software, member, _named(op, "drain")))

    async def stop(self, op: Operation) -> None:
        if not op.backs_out:
            await self._require_no_work(op)
        await self._backwards(op, lambda member: moves.drain(op, self.software, member, _named(op, "stop")))

    async def open(self, op: Operation) -> None:
        await self._forwards(op, lambda member: moves.open(op, self.software, member, _named(op, "start")))

    async def give_back(self, op: Operation) -> None:
        await op.each(op.to_do, lambda member: moves.give_back(op, self.software, member))

    async def replace(self, op: Operation) -> None:
        await op.each(op.to_do, lambda member: moves.replace(op, self.software, member), at_once=1)

    async def keep(self, op: Operation) -> None:
        await op.each(op.to_do, lambda member: moves.keep(op, self.software, member))

    async def repair(self, op: Operation) -> None:
        async def one(member: Member) -> None:
            await moves.step(op, member, "install", moves.installing(op, self.software))
            await moves.change(op, self.software, member, "start")

        await op.each(op.to_do, one)

    async def change(self, op: Operation) -> None:
        """Stop all members, install what the version has, and start them: all members always have one version."""
        if not op.backs_out:
            await self._require_no_work(op)

        async def close(member: Member) -> None:
            await moves.drain(op, self.software, member, _named(op, "stop"), report=False)

        async def install(member: Member) -> None:
            await moves.step(op, member, _named(op, "install"), moves.installing(op, self.software))

        await self._backwards(op, close)
        await self._forwards(op, install)
        await self._forwards(op, lambda member: moves.change(op, self.software, member, _named(op, "start")))
        await asyncio.gather(*(members.drop_left(op, member) for member in op.members))
        await op.publish_access(self.software.access(op))

    async def preview(self, op: Operation) -> Preview:
        running = [
            Work(work_id=work_id, member_ids=[member.member_id])
            for member in op.targets
            for work_id in await moves.look(op, member, self.software.work, patience_s=PREVIEW_S)
        ]
        refuses = op.preview_of in _NEEDS_NO_WORK
        return Preview(
            answered=True,
            source=self.software.source,
            observed_at=datetime.datetime.now(datetime.UTC),
            running_work=running,
            notes=list(self.software.notes(op)),
            refusal=await members.refusal(self._refuse_work(op, PREVIEW_S)) if refuses else "",
        )

    async def look(self, now: Reconciliation) -> None:
        """Report for each role whether its members serve. A machine that does not answer counts as not serving."""
        asked = [member for member in now.members if member.status in SERVING_MEMBER]
        seen = await asyncio.gather(*(self._serves(now, member) for member in asked))
        conditions = []
        for role, kind in self.software.health.items():
            down = [check.reason for member, check in zip(asked, seen, strict=True) if _is_down(role, member, check)]
            status: Literal["true", "false"] = "false" if down else "true"
            conditions.append(ReportedCondition(type=kind, status=status, message=rules.clipped("; ".join(down))))
        await now.report(conditions)

    async def _serves(self, now: Reconciliation, member: Member) -> Check:
        try:
            return await self.software.serves(member, await now.machine(member))
        except (Temporary, MachineUnreachable) as error:
            return Check(False, f"{member.node_name}: {error}")

    async def _require_no_work(self, op: Operation) -> None:
        """Refuse to interrupt the whole app while the head has work: it could not end, because it needs the workers.

        It is a step, so that it is not repeated after a crash: a refusal states that nothing was changed."""
        await op.step("check for work", self._refuse_work, op)

    async def _refuse_work(self, op: Operation, patience_s: float = moves.LEAVING_S) -> None:
        head = moves.head(op, self.software.head)
        if op.force or head.status not in SERVING_MEMBER or not await op.answers(head, patience_s=patience_s):
            return
        if work := await moves.look(op, head, self.software.work):
            raise Refused(
                f"{len(work)} pieces of work would end: {', '.join(work[:5])}", fix="wait until they end, or use force"
            )

    async def _forwards(self, op: Operation, move: Callable[[Member], Awaitable[None]]) -> None:
        for group in in_order(self.software.head, op.to_do):
            await op.each(group, move)

    async def _backwards(self, op: Operation, move: Callable[[Member], Awaitable[None]]) -> None:
        for group in reversed(in_order(self.software.head, op.to_do)):
            await op.each(group, move)


def _is_down(role: str, member: Member, check: Check) -> bool:
    return member.component_key == role and not check.ok


def _named(op: Operation, name: str) -> str:
    """Return the name of a step; a step of an undo has another name than one of the handler. Pure."""
    return f"again: {name}" if op.backs_out else name
