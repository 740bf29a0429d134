"""Register the handlers of an app whose members agree by majority. Only those that its manifest lists."""

import asyncio
import datetime
from collections.abc import Mapping
from typing import get_args

from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.operations import PREVIEWED_KINDS, UNDONE, OperationKind, Preview
from gpuaas_contract.runtime import ReportedCondition

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import members
from gpuaas_sdk.controller.app import App
from gpuaas_sdk.controller.handlers import Handler
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.quorum import moves, rules
from gpuaas_sdk.controller.quorum.peers import Peers
from gpuaas_sdk.controller.reconciliation import Reconciliation
from gpuaas_sdk.failures import Permanent, Refused, Temporary


def register(app: App, peers: Peers, *, health_every_s: float = 10.0) -> None:
    """Add a handler for each operation that the manifest lists, its undo and its preview, and the health handler.

    quorum.register(app, KvPeers(KV, "server"))"""
    handlers = _Quorum(peers)
    role = next(spec for spec in app.manifest.roles if spec.component_key == peers.role)
    listed = {"deploy", "decommission", *app.manifest.instance_operations, *role.operations}
    chosen: list[OperationKind] = [kind for kind in get_args(OperationKind) if kind in listed]
    for kind in chosen:
        app.operation(kind, replace_order="new_first" if kind == "replace" else None)(handlers.operations[kind])
        if kind in UNDONE and kind in handlers.undos:
            app.undo(kind)(handlers.undos[kind])
        if kind in PREVIEWED_KINDS:
            app.preview(kind)(handlers.preview)
    app.health(every_s=health_every_s)(handlers.look)


class _Quorum:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.operations: dict[str, Handler] = {
            "deploy": self._deploy,
            "decommission": self._leave,
            "add": self._join,
            "repair": self._join,
            "remove": self._leave,
            "replace": self._replace,
            "stop": self._stop,
            "start": self._start,
            "restart": self._change,
            "upgrade": self._change,
            "rollback": self._change,
        }
        self.undos: dict[str, Handler] = {
            "deploy": self._leave,
            "add": self._leave,
            "remove": self._stay,
            "replace": self._return,
            "stop": self._start,
            "start": self._stop,
            "restart": self._change,
            "upgrade": self._change,
            "rollback": self._change,
        }

    async def _deploy(self, op: Operation) -> None:
        if len(op.members) % 2 == 0:
            fewer = len(op.members) - 1
            raise Refused(f"{len(op.members)} members survive no more losses than {fewer}", fix=f"deploy {fewer}")
        begun = await op.each(op.to_do, lambda member: moves.found(op, self._peers, member), raises=False)
        await op.each(begun.ok, lambda member: moves.ready(op, self._peers, member), raises=False)
        await op.publish_access(self._peers.access(op))

    async def _join(self, op: Operation) -> None:
        async def one(member: Member) -> None:
            await op.advance(member, "provisioning")
            await moves.join(op, self._peers, member, member)
            await op.advance(member, "joining")
            await moves.ready(op, self._peers, member)

        await op.each(op.to_do, one, at_once=1, raises=False)
        await op.publish_access(self._peers.access(op))

    async def _leave(self, op: Operation) -> None:
        whole = op.kind in ("deploy", "decommission")
        at_once = 0 if whole else 1
        await op.each(op.to_do, lambda member: moves.leave(op, self._peers, member, whole=whole), at_once=at_once)
        if op.kind == "remove":
            await op.publish_access(self._peers.access(op))

    async def _stay(self, op: Operation) -> None:
        async def one(member: Member) -> None:
            if op.now(member).status == "removing":  # it may have left the cluster: too late to return
                await moves.leave(op, self._peers, member, whole=False, prefix="finish: ")
            else:
                await moves.ready(op, self._peers, member)

        await op.each(op.to_do, one)

    async def _replace(self, op: Operation) -> None:
        await op.each(op.to_do, lambda member: moves.replace(op, self._peers, member), at_once=1)
        await op.publish_access(self._peers.access(op))

    async def _return(self, op: Operation) -> None:
        await op.each(op.to_do, lambda member: moves.return_to_old(op, self._peers, member), at_once=1)

    async def _stop(self, op: Operation) -> None:
        async def one(member: Member) -> None:
            if op.now(member).status in SERVING_MEMBER:
                await op.report(member, status="draining")
            await moves.step(op, member, "stop again" if op.backs_out else "stop", self._peers.stop)
            await op.report(member, status="drained")

        await op.each(op.to_do, one)

    async def _start(self, op: Operation) -> None:
        name = "start again" if op.backs_out else "start"

        async def one(member: Member) -> None:
            await moves.step(op, member, name, lambda machine: self._peers.start(op, member, machine))

        begun = await op.each(op.to_do, one, raises=False)
        await op.each(begun.ok, lambda member: moves.ready(op, self._peers, member), raises=False)

    async def _change(self, op: Operation) -> None:
        """Change one member after the other. The first that fails stops the others: never two members are away."""
        again = "again: " if op.backs_out else ""
        if op.kind != "restart":
            await op.step(f"{again}compare versions", lambda: moves.compare_versions(op, self._peers))

        async def one(member: Member) -> None:
            if op.kind != "restart":
                await moves.change_packages(op, self._peers, member, f"{again}install")
            await moves.restart(op, self._peers, member, f"{again}restart")
            await moves.ready(op, self._peers, member)

        for member in op.to_do:
            await op.each([member], one)
        await asyncio.gather(*(members.drop_left(op, member) for member in op.members))

    async def preview(self, op: Operation) -> Preview:
        """Show which of the members that stay do not serve, whether that refuses the operation, and what is lost."""
        unwell = await moves.unwell(op, self._peers, op.members)
        leaving = {member.node_name for member in op.targets}
        staying = {name: reason for name, reason in unwell.items() if name not in leaving}
        ends = op.preview_of == "decommission"
        return Preview(
            answered=True,
            source="the health of every other member",
            observed_at=datetime.datetime.now(datetime.UTC),
            irreversible=["All data on the machines of the instance is deleted."] if ends else [],
            notes=[f"Members that do not serve now: {rules.listed(staying)}"] if staying else [],
            refusal=await members.refusal(self._refuse_leaving(op, unwell)),
        )

    async def _refuse_leaving(self, op: Operation, unwell: Mapping[str, str]) -> None:
        if op.preview_of in ("remove", "replace") and not op.force:
            moves.refuse_leaving(op, unwell)

    async def look(self, now: Reconciliation) -> None:
        """Report what each member answers now. Members that were stopped are not asked."""

        async def ask(member: Member) -> str:
            try:
                check = await self._peers.healthy(await now.machine(member))
            except (Temporary, Permanent) as error:
                return str(error)
            return "" if check.ok else check.reason

        serving = [member for member in now.members if member.status in SERVING_MEMBER]
        answers = await asyncio.gather(*map(ask, serving))
        unwell = {member.node_name: answer for member, answer in zip(serving, answers, strict=True) if answer}
        checks = rules.conditions(unwell, len(serving)) | self._peers.conditions(unwell) if serving else {}
        observed = [
            now.seen(member, "degraded" if answer else "ready", reason=answer)
            for member, answer in zip(serving, answers, strict=True)
        ]
        await now.report([_condition(name, check) for name, check in checks.items()], observed)


def _condition(name: str, check: Check) -> ReportedCondition:
    return ReportedCondition(
        type=name, status="true" if check.ok else "false", message="" if check.ok else check.reason
    )
