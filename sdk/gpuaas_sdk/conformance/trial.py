"""What the checks share: the app under test, the tour through its operations, and an undisturbed run to compare
with."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import SERVING_MEMBER
from gpuaas_contract.operations import Operation, OperationKind

from gpuaas_sdk.conformance import plan, stage
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.stage import Stage, States
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable
from gpuaas_sdk.testing.platform.edge import Received


@dataclass
class Reference:
    """An undisturbed run of the tour: what each operation left on the machines.

    reference = await Trial(Subject.of(manifest, ("gpuaas-hello",), DRIVER)).reference()
    card = await conformance.run(Subject.of(manifest, ("gpuaas-hello",), DRIVER), reference=reference)"""

    empty: States
    after: dict[Move, States] = field(default_factory=dict)
    operations: dict[Move, Operation] = field(default_factory=dict)
    members: dict[Move, list[Member]] = field(default_factory=dict)
    versions: dict[Move, dict[str, str | None]] = field(default_factory=dict)
    """The version that runs on the machine of each member, by member id."""
    commands: dict[Move, dict[str, int]] = field(default_factory=dict)
    """How many commands each machine got."""
    arguments: set[tuple[str, ...]] = field(default_factory=set)
    """Every command that ran on a machine, with the text of a script."""
    received: list[Received] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)


class Trial:
    """One run of the conformance kit.

    trial = Trial(Subject.of(manifest, ("gpuaas-hello",), DRIVER), kinds=["deploy", "add"])
    reference = await trial.reference()"""

    def __init__(self, subject: Subject, kinds: Collection[str] = (), reference: Reference | None = None) -> None:
        self.subject, self.driver, self.manifest = subject, subject.driver, subject.manifest
        self.kinds, self.moves = kinds, plan.tour(subject.manifest, subject.driver, kinds)
        self._reference = reference
        self._failure: Failed | None = None
        self._lock = asyncio.Lock()

    def stage(self, controllers: int = 1) -> AbstractAsyncContextManager[Stage]:
        """Set up a new stage with this many controllers."""
        return stage.opened(self.subject, controllers)

    async def reference(self) -> Reference:
        """Return the undisturbed run. If it failed, the other checks have nothing to compare with."""
        async with self._lock:
            if self._reference is None and self._failure is None:
                try:
                    self._reference = await self._undisturbed()
                except Failed as failure:
                    self._failure = failure
        if self._reference is None:
            raise NotApplicable("the check `operations` failed, so there is nothing to compare with")
        return self._reference

    async def check_undisturbed(self) -> None:
        """Raise why the undisturbed run failed."""
        try:
            await self.reference()
        except NotApplicable:
            if self._failure is not None:
                raise self._failure from None
            raise

    def move(self, *kinds: OperationKind) -> Move:
        """Return the first move of the tour that is one of these kinds."""
        for kind in kinds:
            for move in self.moves:
                if move.kind == kind:
                    return move
        raise NotApplicable(f"the manifest lists no {' and no '.join(kinds)}, or it was not selected")

    async def tour(self, on: Stage, before: Callable[[Move], Awaitable[None]] | None = None) -> None:
        """Perform every move, and compare the machines with the undisturbed run after each."""
        reference = await self.reference()
        for move in self.moves:
            if before is not None:
                await before(move)
            operation = await on.ended(on.request(move))
            if operation.status != "succeeded":
                raise Failed(f"{move} {stage.describe(operation)}", REPEAT)
            if different := stage.difference(reference.after[move], on.states()):
                raise Failed(f"after {move} {different}", REPEAT)

    async def _undisturbed(self) -> Reference:
        async with self.stage() as on:
            reference = Reference(empty=on.states())
            for move in self.moves:
                started = {name: machine.commands for name, machine in on.machines.by_name.items()}
                operation = await on.perform(move)
                self.check_serving(on, move)
                reference.operations[move], reference.after[move] = operation, on.states()
                reference.members[move] = on.members
                reference.versions[move] = {
                    member.member_id: self.driver.version(on.machine(member)) for member in on.members
                }
                reference.commands[move] = {
                    name: machine.commands - started[name] for name, machine in on.machines.by_name.items()
                }
            machines = on.machines.by_name.values()
            reference.arguments = {(*order.argv, order.script) for machine in machines for order in machine.ordered}
            reference.received, reference.refusals = list(on.received), list(on.platform.refusals)
            return reference

    def check_serving(self, on: Stage, move: Move) -> None:
        """Raise `Failed` if the platform shows a member as ready while the app does not work on its machine."""
        for member in on.members:
            if member.status in SERVING_MEMBER and self.driver.serves(on.machine(member)) is False:
                raise Failed(
                    f"after {move} the member on {member.node_name} is {member.status}, "
                    "but the app does not work there",
                    "Report `ready` and complete only after a check on the machine has passed.",
                )


REPEAT = "Make every step safe to repeat: bring the machine into a state, do not add to it."
