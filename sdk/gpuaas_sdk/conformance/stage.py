"""The stage of one check: a fake platform, simulated machines, an instance of the app, and its controllers."""

import asyncio
import contextlib
import hashlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import INSTANCE_KINDS, Operation, Step
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_contract.runtime import STEP_REPORT

from gpuaas_sdk.conformance import controllers, installs, plan
from gpuaas_sdk.conformance.controllers import Controller, Subject
from gpuaas_sdk.conformance.machines import OBSERVER, SimulatedMachine, SimulatedMachines
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.verdicts import Failed
from gpuaas_sdk.testing import FakePlatform, serving
from gpuaas_sdk.testing.platform import rows
from gpuaas_sdk.testing.platform.edge import Fate, Received

States = dict[str, dict[str, str]]
"""What the app has on each machine."""
OnStep = Callable[[Operation, Any], Awaitable[Fate]]
NODES_MAX = 12
KEEPS_S = 4.0
"""How long an operation that waits for work is watched. An app may not give up the wait in this time."""
SHOWN_CHARS = 60
SHOWN_BEFORE = 20
"""How much of two values a difference shows: from a little before the place where they differ."""


class Stage:
    """Everything that one check plays with. `opened` makes it."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        manifest = subject.manifest
        self.subject, self.driver, self.manifest = subject, subject.driver, manifest
        self.machines = SimulatedMachines(installs.responder(self.driver), self._is_current, self.driver.prints)
        self.platform = FakePlatform(
            manifest.slug,
            secret_purposes=manifest.secret_purposes,
            permissions=manifest.controller.permissions or CONTROLLER_KEYS,
            steward=manifest.steward,
            locate=self.machines.locate,
        )
        self.platform.records.people.append(plan.PERSON)
        self.platform.secrets.new_value = lambda name: hashlib.sha256(name.encode()).hexdigest()
        self.controllers: dict[str, Controller] = {}
        self.received: list[Received] = []
        self.on_step: OnStep | None = None
        """Decides about the report of a step before the platform stores it."""
        self.on_call: Callable[[Received], Awaitable[Fate]] | None = None
        self.server = ""
        self._folder = folder
        self._instance_id = ""
        self._starts = 0
        self._is_closed = False
        self.platform.on_call(self._decide)
        for version in {plan.previous_version(manifest), manifest.version}:
            self.platform.add_version(msgspec.structs.replace(manifest, version=version))

    @property
    def instance(self) -> Instance:
        """The instance of the app."""
        return self.platform.instance(self._instance_id)

    @property
    def members(self) -> list[Member]:
        """The live members of the instance."""
        return self.platform.members(self.instance)

    def machine(self, member: Member) -> SimulatedMachine:
        """Return the machine of a member."""
        return self.machines.machine(member.node_name)

    def states(self) -> States:
        """Return what the app has on each machine."""
        return {name: self.driver.state(machine) for name, machine in sorted(self.machines.by_name.items())}

    async def start(self, count: int = 1) -> None:
        """Start controllers of the app."""
        for _ in range(0 if self._is_closed else count):
            self._starts += 1
            name = f"{self.manifest.slug}@{self._starts}"
            key = (self.platform.key_id, self.platform.client_secret)
            self.controllers[name] = await controllers.start(
                self.subject, name, server=self.server, project=self.platform.project_id, key=key, at=self._folder
            )
            if self._is_closed:
                await self.controllers[name].kill()

    async def close(self) -> None:
        """Kill all controllers. A fault that happens at the same time starts no other."""
        self._is_closed = True
        await asyncio.gather(*(controller.kill() for controller in self.controllers.values()))

    async def kill(self, name: str) -> None:
        """Kill a controller; the platform notices at once that its leases have expired."""
        await self.controllers.pop(name).kill()
        self.expire_leases(name)

    def expire_leases(self, holder: str) -> None:
        """Let every lease of this controller expire, as if it had sent no heartbeats."""
        now = self.platform.records.clock()
        for operation in list(self.platform.records.operations.values()):
            if operation.lease is not None and operation.lease.holder == holder and operation.lease.expires_at > now:
                self.platform.expire_lease(operation.operation_id)
        for steward in [entry for entry in self.platform.stewards.by_instance.values() if entry.holder == holder]:
            expired = msgspec.structs.replace(steward, expires_at=self.platform.records.clock())
            self.platform.stewards.by_instance[self._instance_id] = expired

    @contextlib.asynccontextmanager
    async def without_leases(self, holders: Collection[str]) -> AsyncIterator[None]:
        """Let these controllers hold no lease. The claim of a paused one may wait at the platform and get it again."""

        async def expire() -> None:
            while True:
                await self.platform.changed()
                for holder in holders:
                    self.expire_leases(holder)

        expiring = asyncio.create_task(expire())
        try:
            yield
        finally:
            expiring.cancel()
            await asyncio.wait({expiring})

    def expire(self, operation_id: str) -> None:
        """Let the deadline of the operation pass now."""
        operation = self.platform.operation(operation_id)
        self.platform.records.change_operation(operation, deadline_at=self.platform.records.clock())

    def request(self, move: Move, *, count: int = 1, **options: Any) -> Operation:
        """Request the operation of a move. `count` members are added by an add."""
        if version := plan.version_of(self.manifest, move.kind):
            for machine in self.machines.by_name.values():
                self.driver.offer(machine, version)
        if move.kind == "deploy":
            self._create()
        if move.kind in INSTANCE_KINDS:
            return self._request_for_instance(move, options)
        if move.kind == "action":
            inputs = dict(self.driver.actions.get(move.action, {}))
            return self.platform.invoke(self.instance, move.action, inputs, requested_by=plan.PERSON.user_id)
        if move.kind == "add":
            self.platform.breakers.check(self._instance_id, move.role)  # a refused add leaves no member
            nodes = self.free_nodes()[:count]
            targets = [self.platform.records.add_member(self.instance, move.role, node) for node in nodes]
        else:
            targets = [self.of_role(move.role)[-1]]
        if move.kind == "replace":
            options["replacements"] = self.free_nodes()[:1]
        return self.platform.request(self.instance, move.kind, targets, component_key=move.role, **options)

    def of_role(self, role: str) -> list[Member]:
        """Return the live members of a role, oldest first."""
        return [member for member in self.members if member.component_key == role]

    def free_nodes(self) -> list[str]:
        """Return the machines that have no member."""
        used = {member.node_name for member in self.members}
        return [name for name in self.machines.by_name if name not in used]

    async def ended(self, operation: Operation) -> Operation:
        """Wait until the operation has ended."""
        return await self.until(operation, lambda now: now.status in ENDED_OPERATION, "did not end")

    async def waits(self, operation: Operation) -> Operation:
        """Wait until the operation has ended, or shows in one of its steps what it waits for."""
        return await self.until(
            operation,
            lambda now: (
                now.status in ENDED_OPERATION or any(step.state == "running" and step.message for step in now.steps)
            ),
            "neither ended nor showed what it waits for",
            self.driver.silent_s,
        )

    async def keeps(self, operation: Operation) -> Operation:
        """Return the operation as it is some time after it began to wait. An app that waits only for a while and then
        continues shows the same at first."""
        with contextlib.suppress(TimeoutError):
            return await self.platform.until(
                operation.operation_id, lambda now: now.status in ENDED_OPERATION, timeout_s=KEEPS_S
            )
        return self.platform.operation(operation.operation_id)

    async def until(
        self, operation: Operation, condition: Callable[[Operation], bool], problem: str, within_s: float = 0
    ) -> Operation:
        """Wait until the condition is true for the operation; after the driver's patience the check fails."""
        within_s = within_s or self.driver.patience_s
        try:
            return await self.platform.until(operation.operation_id, condition, timeout_s=within_s)
        except TimeoutError:
            present = self.platform.operation(operation.operation_id)
            raise late(self.controllers.values(), present, problem, within_s) from None

    async def unreported(self, types: set[str]) -> set[str]:
        """Return the condition types that the app has not reported after the time in which it must give a sign."""
        missing = types
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.driver.silent_s):
                while missing := types - {condition.type for condition in self.instance.conditions}:
                    await self.platform.changed()
        return missing

    async def perform(self, move: Move, **options: Any) -> Operation:
        """Request the operation of a move and wait for its success."""
        operation = await self.ended(self.request(move, **options))
        if operation.status != "succeeded":
            raise Failed(f"{move} {describe(operation)}", "Make the operation succeed without faults first.")
        return operation

    async def perform_until(self, moves: Sequence[Move], last: Move) -> None:
        """Perform the moves of the tour before `last`."""
        for move in moves[: moves.index(last)]:
            await self.perform(move)

    def _create(self) -> None:
        free, members = [f"n{number}" for number in range(1, NODES_MAX + 1)], {}
        for role, count in plan.counts(self.manifest, self.driver).items():
            members[role], free = free[:count], free[count:]
        topology = plan.topology(self.manifest, self.driver)
        allocation_ids = {role: [rows.allocation_id(name) for name in names] for role, names in members.items()}
        inputs = plan.inputs(self.manifest, self.driver, allocation_ids)
        instance = self.platform.add_instance(members, topology=topology, inputs=inputs)
        version = plan.version_of(self.manifest, "deploy")
        self.platform.records.instances[instance.instance_id] = msgspec.structs.replace(instance, app_version=version)
        for name in self.manifest.artifacts:
            self.platform.add_artifact(instance, name, self.driver.artifacts.get(name, b"conformance"))
        self._instance_id = instance.instance_id

    def _request_for_instance(self, move: Move, options: dict[str, Any]) -> Operation:
        if move.kind == "reconfigure":
            return self.platform.reconfigure(self.instance, dict(self.driver.changed_inputs))
        if move.kind in ("upgrade", "rollback"):
            options["to_version"] = plan.version_of(self.manifest, move.kind)
        return self.platform.request(self.instance, move.kind, **options)

    def _is_current(self, user: str) -> bool:
        """Return whether access is still valid: the platform and the node end it with the lease."""
        if user == OBSERVER:
            return True
        operation_id, _, epoch = user.rpartition(".")
        operation = self.platform.records.operations.get(operation_id)
        if operation is None or str(operation.epoch) != epoch:
            return False
        return operation.status not in ENDED_OPERATION

    async def _decide(self, received: Received) -> Fate:
        self.received.append(received)
        if received.name == STEP_REPORT.name and self.on_step is not None:
            return await self.on_step(self.platform.operation(received.path["operation_id"]), received.body)
        return await self.on_call(received) if self.on_call is not None else "serve"


@contextlib.asynccontextmanager
async def opened(subject: Subject, controllers: int = 1) -> AsyncIterator[Stage]:
    """Set up a stage with this many controllers, and clear it away."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-conformance-") as folder:
        stage = Stage(subject, Path(folder))
        nodes = [f"n{number}" for number in range(1, NODES_MAX + 1)]
        async with stage.machines.serving(nodes), serving(stage.platform.app) as stage.server:
            try:
                await stage.start(controllers)
                yield stage
            finally:
                await stage.close()


def late(controllers: Collection[Controller], operation: Operation, problem: str, within_s: float) -> Failed:
    """Return why the operation is not where it should be by now."""
    last_lines = [controller.last_lines() for controller in controllers if not controller.is_running]
    if last_lines and len(last_lines) == len(controllers):
        return Failed(
            f"the controller ended by itself during {operation.kind}: {last_lines[0]}",
            "Start the controller by hand and read its log.",
            "environment problem",
        )
    shown = "; ".join(f"{step.name}: {step.message}" for step in operation.steps if _waits(step))
    return Failed(
        f"{operation.kind} {problem} within {within_s:g} s{shown and f'; it shows: {shown}'}",
        "Bound every wait: op.on(…, patience_s=…), op.until(…), Temporary or Permanent errors. If it waits for work "
        "that an action began, leave this action out of `actions` of the driver. On a busy host, raise `patience_s`.",
    )


def _waits(step: Step) -> bool:
    return step.state == "running" and bool(step.message)


def describe(operation: Operation) -> str:
    """Return how the operation ended, in words."""
    if operation.error is None:
        return f"ended as {operation.status}"
    return f"ended as {operation.status}: {operation.error.message}"


def difference(wanted: States, present: States) -> str:
    """Return the first difference between the states of machines; empty if there is none."""
    for node in sorted(wanted.keys() | present.keys()):
        before, after = wanted.get(node, {}), present.get(node, {})
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                same = itertools.takewhile(_are_equal, zip(before.get(name, ""), after.get(name, ""), strict=False))
                start = max(0, sum(1 for _ in same) - SHOWN_BEFORE)
                return f"{node} has {_shown(name, after, start)} instead of {_shown(name, before, start)}"
    return ""


def _are_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _shown(name: str, state: dict[str, str], start: int) -> str:
    """Return the part of a value from `start` on, where two states differ."""
    if name not in state:
        return f"no {name}"
    end = start + SHOWN_CHARS
    text = ("…" if start else "") + state[name][start:end] + ("…" if len(state[name]) > end else "")
    return f"{name} = {text!r}"
