"""Steps that an app declares once, each with its undo beside it. `App.step` makes them; handlers call them.

Because the undo belongs to the name of the step, a controller that did not run the step can undo it: after a crash, or
when a person compensates a failed operation a day later."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVarTuple

from gpuaas_contract import lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import UNDONE, Evidence

from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.failures import Permanent

About = TypeVarTuple("About")
"""What a step is about beside the operation: a member, or nothing."""
Look = Callable[[Operation, Member], Awaitable[Evidence]]
"""Returns evidence that a member does no work."""
_NEW = frozenset({"deploy", "add"})
"""Kinds whose members did not exist before."""


class DeclaredStep(Generic[*About]):
    """A step with a name, limits and an undo. `await start(op, member)` runs it, unless it already succeeded."""

    def __init__(
        self,
        name: str,
        function: Callable[[Operation, *About], Awaitable[None]],
        *,
        attempts: int | None = None,
        within_s: float | None = None,
    ) -> None:
        if len(inspect.signature(function).parameters) > 2:
            raise ValueError(f"step {name!r} takes the operation and at most a member: its undo gets only these")
        self.name = name
        self.undone_by: Callable[..., Awaitable[None]] | None = None
        self._function = function
        self._attempts, self._within_s = attempts, within_s

    async def __call__(self, op: Operation, *about: *About) -> None:
        member = next((item for item in about if isinstance(item, Member)), None)
        attempts, within_s = self._attempts, self._within_s
        await op.step(self.name, self._function, op, *about, member=member, attempts=attempts, within_s=within_s)

    def undo(
        self, function: Callable[[Operation, *About], Awaitable[None]]
    ) -> Callable[[Operation, *About], Awaitable[None]]:
        """Declare how the step is undone. It is called with what the step was called with, also for a step that did not
        end. So it must accept work that is half done, or already undone.

            @start.undo
            async def stop(op: Operation, member: Member) -> None: ..."""
        if self.undone_by is not None:
            raise ValueError(f"step {self.name!r} already has an undo")
        self.undone_by = function
        return function


async def undo_by_steps(op: Operation, evidence: Look | None) -> None:
    """Undo the steps of the operation, then report each member with the status that it had before the operation."""
    await op.undo_steps()

    async def report(member: Member) -> None:
        await (_take_back if op.kind in _NEW else _return)(op, member, evidence)

    await op.each(op.to_do, report)


async def _take_back(op: Operation, member: Member, evidence: Look | None) -> None:
    """Report a member as removed that did not exist before the operation."""
    now = op.now(member)
    if now.was_ready and evidence is None:
        raise Permanent(
            f"{member.node_name} was ready, and the app gives no evidence that it does no work",
            fix=f"Remove it with evidence: gpuaas member remove {op.instance.name} {member.node_name}",
        )
    if now.status not in ("requested", "removing"):
        seen = await evidence(op, member) if evidence and now.was_ready else None
        await op.report(member, status="removing", reason=op.reason, evidence=seen)
    await op.report(member, status="removed", reason=f"{op.kind} was undone")


async def _return(op: Operation, member: Member, _: Look | None) -> None:
    """Report a member with its status before the operation, unless the operation has gone too far."""
    now, before = op.now(member), op.status_before(member)
    moved = op.kind == "replace" and now.allocation_id == op.replacement(member)
    if before is None or moved or not lifecycles.may_move(lifecycles.MEMBER, now.status, before):
        raise Permanent(
            f"{member.node_name} is {now.status}, and {op.kind} cannot be undone any more",
            fix=f"gpuaas op retry {op.id} --reason 'finish it'",
        )
    if now.status != before or before in UNDONE[op.kind]:
        await op.report(member, status=before, reason=f"{op.kind} was undone")
