"""The platform's rules for operations, in memory: claims, leases, epochs, steps, members, ends, exits.

`platform` serves them; `rows` makes the first version of each row; `rules` decides."""

import datetime
import itertools
from collections.abc import Callable
from typing import Any

from gpuaas_contract.errors import ExitUnavailable, LeaseLost, NotFound, ValidationFailed
from gpuaas_contract.holds import Hold, HoldKind
from gpuaas_contract.instances import AccessBundle, Condition, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER, SERVING_MEMBER
from gpuaas_contract.operations import (
    ASKING_KINDS,
    INSTANCE_KINDS,
    ExitName,
    ExitTaken,
    Lease,
    Operation,
    OperationKind,
    Progress,
    Step,
)
from gpuaas_contract.runtime import (
    Claim,
    ClaimOperation,
    CompleteOperation,
    FailOperation,
    Heartbeat,
    PublishAccess,
    ReportMember,
    ReportStep,
)
from msgspec.structs import replace

from gpuaas_sdk.testing import rows, rules

Clock = Callable[[], datetime.datetime]

_UNFINISHED = frozenset({"requested", "provisioning", "joining", "removing"})
"""Nobody goes on with a member in these states once its operation has ended."""


class Records:
    def __init__(self, project_id: str, clock: Clock) -> None:
        self.project_id = project_id
        self.clock = clock
        self.instances: dict[str, Instance] = {}
        self.members: dict[str, Member] = {}
        self.operations: dict[str, Operation] = {}
        self.holds: dict[str, Hold] = {}
        self.access_bundles: dict[str, AccessBundle] = {}
        self._numbers = itertools.count(1)

    def add_instance(self, app_slug: str, name: str, topology: str, inputs: dict[str, Any]) -> Instance:
        instance = rows.instance(
            self.new_id("inst"),
            project_id=self.project_id,
            app_slug=app_slug,
            name=name,
            topology=topology,
            inputs=inputs,
            now=self.clock(),
        )
        self.instances[instance.instance_id] = instance
        return instance

    def add_member(self, instance: Instance, component_key: str, node_name: str) -> Member:
        member = rows.member(self.new_id("mem"), instance, component_key, node_name, now=self.clock())
        self.members[member.member_id] = member
        return member

    def add_hold(self, member: Member, kind: HoldKind, reason: str, ttl_s: float) -> Hold:
        hold = rows.hold(self.new_id("hold"), member, kind, reason, ttl_s, now=self.clock())
        self.holds[hold.hold_id] = hold
        return hold

    def make_ready(self, instance: Instance) -> Instance:
        for member in self.live_members(instance.instance_id):
            self.members[member.member_id] = replace(member, status="ready", was_ready=True)
        self.settle(replace(instance, baseline="up"))
        return self.instances[instance.instance_id]

    def add_operation(self, instance: Instance, kind: OperationKind, asked: rows.Asked) -> Operation:
        operation = rows.operation(self.new_id("op"), instance, kind, asked, now=self.clock())
        self.operations[operation.operation_id] = operation
        self.settle(self.instances[instance.instance_id])
        return operation

    def instance(self, instance_id: str) -> Instance:
        if instance_id not in self.instances:
            raise NotFound()
        return self.instances[instance_id]

    def operation(self, operation_id: str) -> Operation:
        if operation_id not in self.operations:
            raise NotFound()
        return self.operations[operation_id]

    def live_members(self, instance_id: str) -> list[Member]:
        found = [member for member in self.members.values() if member.instance_id == instance_id]
        return [member for member in found if member.status not in GONE_MEMBER]

    def open_operations(self, instance_id: str) -> list[Operation]:
        found = [operation for operation in self.operations.values() if operation.instance_id == instance_id]
        return [operation for operation in found if operation.status not in ENDED_OPERATION]

    def claim(self, request: ClaimOperation) -> Claim:
        """The operation this claim id holds already, else the oldest one nobody holds."""
        self._end_expired()
        mine = [found for found in self.operations.values() if self._held_by(found) == request.claim_id]
        free = [found for found in self.operations.values() if self._is_free(found, request.app_slug)]
        if not mine and not free:
            return Claim()
        operation = mine[0] if mine else self._lease_out(free[0], request)
        return Claim(
            operation=operation,
            instance=self.instances[operation.instance_id],
            members=self.live_members(operation.instance_id),
            holds=self._standing_holds(operation.instance_id),
            epoch=operation.epoch,
        )

    def heartbeat(self, operation_id: str, request: Heartbeat) -> Lease:
        operation = self.held(operation_id, request.epoch)
        expires_at = self.clock() + datetime.timedelta(seconds=request.lease_s)
        assert operation.lease is not None
        lease = replace(operation.lease, expires_at=expires_at)
        # Not a change anybody watches for, so the revision stays.
        self.operations[operation_id] = replace(operation, lease=lease)
        return lease

    def expire_lease(self, operation_id: str) -> None:
        operation = self.operation(operation_id)
        if operation.lease is not None:
            self._change(operation, lease=replace(operation.lease, expires_at=self.clock()))

    def step(self, operation_id: str, report: ReportStep) -> Operation:
        operation = self.held(operation_id, report.epoch)
        now, steps = self.clock(), {(step.name, step.member_id): step for step in operation.steps}
        old = steps.get((report.name, report.member_id))
        if old is not None and old.state == "succeeded":
            return operation
        again = old is not None and old.state == "failed" and report.state == "running"
        steps[report.name, report.member_id] = Step(
            name=report.name,
            state=report.state,
            started_at=old.started_at if old else now,
            member_id=report.member_id,
            message=report.message,
            attempt=(old.attempt if old else 1) + (1 if again else 0),
            ended_at=None if report.state == "running" else now,
            transcript=report.transcript,
        )
        return self._change(operation, steps=list(steps.values()))

    def report_member(self, operation_id: str, member_id: str, report: ReportMember) -> Member:
        operation = self.held(operation_id, report.epoch)
        member = self.members.get(member_id)
        if member is None or member.instance_id != operation.instance_id:
            raise NotFound()
        rules.check_member_report(operation, member, report, self.clock())
        rules.check_holds(operation, member, report.status, self._standing_holds(member.instance_id))
        if operation.kind == "replace" and (member.status, report.status) == ("removing", "provisioning"):
            operation, member = self._move_over(operation, member)
        given: dict[str, Any] = {"adapter_detail": report.adapter_detail, "observed_version": report.observed_version}
        changed = self.change_member(
            member,
            status=report.status,
            status_reason=report.status_reason,
            was_ready=member.was_ready or report.status in SERVING_MEMBER,
            last_operation_id=operation_id,
            **{name: value for name, value in given.items() if value is not None},
        )
        self._skip_rest(self._change(operation, targets=rules.noted(operation, changed, report.evidence)))
        self.settle(self.instances[operation.instance_id])
        return changed

    def publish_access(self, operation_id: str, request: PublishAccess) -> AccessBundle:
        operation = self.held(operation_id, request.epoch)
        bundle = AccessBundle(
            endpoints=request.endpoints, paths=request.paths, commands=request.commands, notes=request.notes
        )
        self.access_bundles[operation.instance_id] = bundle
        return bundle

    def complete(self, operation_id: str, request: CompleteOperation) -> Operation:
        operation = self.operation(operation_id)
        if operation.status in ENDED_OPERATION and operation.epoch == request.epoch:
            return operation
        operation = self.held(operation_id, request.epoch)
        if operation.kind == "preview" and request.preview is None and operation.status != "cancelling":
            raise ValidationFailed("A preview ends with what was seen.", details={"field": "preview"})
        said = replace(operation, result=request.result, preview=request.preview)
        found = rules.ending(said, self.members, undone=request.undone)
        return self._end(rules.with_late_cancel(said, found.status), found)

    def fail(self, operation_id: str, request: FailOperation) -> Operation:
        operation = self.operation(operation_id)
        if operation.status == "failed" and operation.epoch == request.epoch:
            return operation
        operation = self.held(operation_id, request.epoch)
        error = rules.failure(request.code, request.message, request.failure_class, request.fix)
        return self._end(operation, rules.Ending("failed", operation.targets, error))

    def cancel(self, operation_id: str, reason: str) -> Operation:
        """What nobody has begun ends at once; otherwise its controller is asked."""
        operation = self._leaving(operation_id, "cancel", reason, ("accepted", "running"))
        if operation.attempts == 0:
            fenced = replace(operation, epoch=operation.epoch + 1)
            return self._end(fenced, rules.Ending("cancelled", operation.targets))
        lease = replace(operation.lease, cancel_requested=True) if operation.lease else None
        return self._change(operation, status="cancelling", lease=lease)

    def reopen(self, operation_id: str, name: ExitName, reason: str, deadline_s: float) -> Operation:
        operation = self._leaving(operation_id, name, reason, ("failed",))
        reopened = self._change(
            operation,
            status="accepted",
            compensating=name == "compensate",
            targets=rules.reopened(operation, self.members, compensating=name == "compensate"),
            deadline_at=self.clock() + datetime.timedelta(seconds=deadline_s),
            error=None,
            ended_at=None,
        )
        self.settle(self.instances[operation.instance_id])
        return reopened

    def held(self, operation_id: str, epoch: int) -> Operation:
        """The operation, if whoever calls with this epoch may still speak for it."""
        self._end_expired()
        operation = self.operation(operation_id)
        if operation.status in ENDED_OPERATION:
            raise LeaseLost(f"The operation has {operation.status}.")
        if operation.lease is None or epoch != operation.epoch:
            raise LeaseLost(f"The operation is at epoch {operation.epoch}; the report carries {epoch}.")
        return operation

    def check_machine(self, operation: Operation, allocation_id: str) -> None:
        """Whether the allocation belongs to the operation's instance."""
        members = self.live_members(operation.instance_id)
        used = {member.allocation_id for member in members} | {target.allocation_id for target in operation.targets}
        if allocation_id not in used:
            raise NotFound(f"There is no allocation {allocation_id} in this project.")

    def change_member(self, member: Member, **changes: Any) -> Member:
        changed = replace(member, revision=member.revision + 1, updated_at=self.clock(), **changes)
        self.members[member.member_id] = changed
        return changed

    def settle(self, instance: Instance, conditions: list[Condition] | None = None) -> Instance:
        """Derive the status anew; nothing changes when nothing is new."""
        present = self.instances[instance.instance_id]
        settled = replace(instance, conditions=rules.merged(instance.conditions, conditions or []))
        on_all = [found for found in self.open_operations(instance.instance_id) if found.kind in INSTANCE_KINDS]
        active = [found for found in on_all if found.kind != "deploy" or found.status != "accepted"]
        members = self.live_members(instance.instance_id)
        status = rules.instance_status(settled, active[0] if active else None, members)
        settled = replace(settled, status=status)
        if settled != present:
            settled = replace(settled, revision=present.revision + 1, updated_at=self.clock())
            self.instances[instance.instance_id] = settled
        return settled

    def new_id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers):04d}"

    def _held_by(self, operation: Operation) -> str:
        if operation.lease is None or operation.lease.expires_at <= self.clock():
            return ""
        return operation.lease.claim_id

    def _is_free(self, operation: Operation, app_slug: str) -> bool:
        ended = operation.status in ENDED_OPERATION
        return operation.app_slug == app_slug and not ended and not self._held_by(operation)

    def _lease_out(self, operation: Operation, request: ClaimOperation) -> Operation:
        now, epoch = self.clock(), operation.epoch + 1
        lease = Lease(
            holder=request.holder,
            claim_id=request.claim_id,
            epoch=epoch,
            expires_at=now + datetime.timedelta(seconds=request.lease_s),
            cancel_requested=operation.status == "cancelling",
        )
        taken = self._change(
            operation,
            status="running" if operation.status == "accepted" else operation.status,
            epoch=epoch,
            lease=lease,
            attempts=operation.attempts + 1,
            started_at=operation.started_at or now,
        )
        self.settle(self.instances[operation.instance_id])
        return taken

    def _move_over(self, operation: Operation, member: Member) -> tuple[Operation, Member]:
        """`replace`: the member keeps its identity and sits on its new machine from here on."""
        target = rules.target_of(operation, member.member_id)
        assert target is not None
        came_from = replace(target, previous_allocation_id=target.previous_allocation_id or member.allocation_id)
        targets = [came_from if found is target else found for found in operation.targets]
        moved = replace(member, was_ready=False, **rows.place(target.allocation_id))
        return replace(operation, targets=targets), moved

    def _skip_rest(self, operation: Operation) -> None:
        skipped = rules.to_skip(operation, self.members)
        why = f"{operation.stop_after_failures} members failed before its turn"
        for member_id in skipped if operation.kind == "add" else ():
            self.change_member(self.members[member_id], status="removed", status_reason=why)
        if skipped:
            targets = [
                replace(target, outcome="skipped", error=why) if target.member_id in skipped else target
                for target in operation.targets
            ]
            self._change(operation, targets=targets)

    def _leaving(self, operation_id: str, name: ExitName, reason: str, legal: tuple[str, ...]) -> Operation:
        operation = self.operation(operation_id)
        if operation.status not in legal or (name == "cancel" and operation.compensating):
            raise ExitUnavailable(f"{operation.kind} is {operation.status}; there is no {name} from here.")
        taken = ExitTaken(name=name, taken_by="test", reason=reason, taken_at=self.clock())
        return self._change(operation, exits_taken=[*operation.exits_taken, taken])

    def _standing_holds(self, instance_id: str) -> list[Hold]:
        now = self.clock()
        return [hold for hold in self.holds.values() if hold.instance_id == instance_id and hold.expires_at > now]

    def _end_expired(self) -> None:
        for operation in list(self.operations.values()):
            if operation.status not in ENDED_OPERATION and operation.deadline_at <= self.clock():
                error = rules.failure("deadline_passed", "The operation did not end before its deadline.", "expired")
                # The epoch grows, so that the holder's next word is refused.
                fenced = replace(operation, epoch=operation.epoch + 1)
                self._end(fenced, rules.Ending("failed", operation.targets, error))

    def _end(self, operation: Operation, found: rules.Ending) -> Operation:
        left_over = "cancelled" if found.status == "cancelled" else "failed"
        why = found.error.message if found.error else ""
        targets = [
            replace(target, outcome=left_over, error=target.error or why) if target.outcome == "pending" else target
            for target in found.targets
        ]
        ended = self._change(
            operation, status=found.status, error=found.error, lease=None, ended_at=self.clock(), targets=targets
        )
        if ended.kind not in ASKING_KINDS:
            self._leave_members(ended)
            self._leave_instance(ended)
        return ended

    def _leave_members(self, ended: Operation) -> None:
        for target in ended.targets:
            member = self.members[target.member_id]
            if target.outcome == "failed" and member.status in _UNFINISHED:
                self.change_member(member, status="failed", status_reason=target.error)
            elif target.outcome == "cancelled" and member.status == "requested":
                self.change_member(member, status="removed", status_reason=f"the {ended.kind} was cancelled")

    def _leave_instance(self, ended: Operation) -> None:
        instance = replace(self.instances[ended.instance_id], last_operation_id=ended.operation_id)
        if ended.kind not in INSTANCE_KINDS:
            self.settle(instance)
            return
        left = replace(instance, baseline=rules.baseline_after(instance.baseline, ended))
        if ended.status == "succeeded" and ended.to_version:
            previous = ended.from_version if ended.kind == "upgrade" else ""
            left = replace(left, app_version=ended.to_version, previous_version=previous)
        self.settle(left, [self._last_operation(ended, instance)])

    def _last_operation(self, ended: Operation, instance: Instance) -> Condition:
        failed = ended.error is not None or (ended.status == "cancelled" and ended.kind == "deploy")
        return Condition(
            type=rules.LAST_OPERATION,
            status="false" if failed else "true",
            reason=ended.error.code if ended.error else ended.status,
            message=ended.error.message if ended.error else f"{ended.kind} {ended.status}",
            observed_revision=instance.revision,
            changed_at=self.clock(),
        )

    def _change(self, operation: Operation, **changes: Any) -> Operation:
        changed = replace(operation, revision=operation.revision + 1, **changes)
        done = sum(target.outcome != "pending" for target in changed.targets)
        changed = replace(changed, progress=Progress(done=done, total=len(changed.targets)))
        self.operations[operation.operation_id] = changed
        return changed
