"""The platform's rules for operations, in memory: claims, leases, epochs, steps, members, ends.

`platform` serves them; `rows` makes the first version of each row."""

import datetime
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
from gpuaas_contract.errors import LeaseLost, NotFound
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER, InstanceStatus
from gpuaas_contract.operations import Lease, Operation, OperationError, OperationKind, Step
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

from gpuaas_sdk.testing import rows, rules

Clock = Callable[[], datetime.datetime]


class Records:
    def __init__(self, project_id: str, clock: Clock) -> None:
        self.project_id = project_id
        self.instances: dict[str, Instance] = {}
        self.members: dict[str, Member] = {}
        self.operations: dict[str, Operation] = {}
        self.access_bundles: dict[str, AccessBundle] = {}
        self._clock = clock
        self._numbers = itertools.count(1)

    def add_instance(self, app_slug: str, name: str, topology: str, inputs: dict[str, Any]) -> Instance:
        instance = rows.instance(
            self._new_id("inst"),
            project_id=self.project_id,
            app_slug=app_slug,
            name=name,
            topology=topology,
            inputs=inputs,
            now=self._clock(),
        )
        self.instances[instance.instance_id] = instance
        return instance

    def add_member(self, instance: Instance, component_key: str, node_name: str) -> Member:
        member = rows.member(self._new_id("mem"), instance, component_key, node_name, now=self._clock())
        self.members[member.member_id] = member
        return member

    def make_ready(self, instance: Instance) -> Instance:
        for member in self.live_members(instance.instance_id):
            self.members[member.member_id] = msgspec.structs.replace(member, status="ready", was_ready=True)
        self.instances[instance.instance_id] = msgspec.structs.replace(instance, status="running")
        return self.instances[instance.instance_id]

    def add_operation(self, instance: Instance, kind: OperationKind, asked: rows.Asked) -> Operation:
        operation = rows.operation(self._new_id("op"), instance, kind, asked, now=self._clock())
        self.operations[operation.operation_id] = operation
        return operation

    def operation(self, operation_id: str) -> Operation:
        if operation_id not in self.operations:
            raise NotFound()
        return self.operations[operation_id]

    def live_members(self, instance_id: str) -> list[Member]:
        found = [member for member in self.members.values() if member.instance_id == instance_id]
        return [member for member in found if member.status not in GONE_MEMBER]

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
            epoch=operation.epoch,
        )

    def heartbeat(self, operation_id: str, request: Heartbeat) -> Lease:
        operation = self._held(operation_id, request.epoch)
        expires_at = self._clock() + datetime.timedelta(seconds=request.lease_s)
        assert operation.lease is not None
        lease = msgspec.structs.replace(operation.lease, expires_at=expires_at)
        # Not a change anybody watches for, so the revision stays.
        self.operations[operation_id] = msgspec.structs.replace(operation, lease=lease)
        return lease

    def expire_lease(self, operation_id: str) -> None:
        operation = self.operation(operation_id)
        if operation.lease is not None:
            lease = msgspec.structs.replace(operation.lease, expires_at=self._clock())
            self._change(operation, lease=lease)

    def step(self, operation_id: str, report: ReportStep) -> Operation:
        operation = self._held(operation_id, report.epoch)
        now, steps = self._clock(), {(step.name, step.member_id): step for step in operation.steps}
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
        )
        return self._change(operation, steps=list(steps.values()))

    def report_member(self, operation_id: str, member_id: str, report: ReportMember) -> Member:
        operation = self._held(operation_id, report.epoch)
        member = self.members.get(member_id)
        if member is None or member.instance_id != operation.instance_id:
            raise NotFound()
        rules.check_member_report(operation, member, report, self._clock())
        given: dict[str, Any] = {"adapter_detail": report.adapter_detail, "observed_version": report.observed_version}
        self.members[member_id] = msgspec.structs.replace(
            member,
            status=report.status,
            status_reason=report.status_reason,
            was_ready=member.was_ready or report.status == "ready",
            last_operation_id=operation_id,
            revision=member.revision + 1,
            updated_at=self._clock(),
            **{name: value for name, value in given.items() if value is not None},
        )
        self._note_outcome(operation, member_id, report)
        return self.members[member_id]

    def publish_access(self, operation_id: str, request: PublishAccess) -> AccessBundle:
        operation = self._held(operation_id, request.epoch)
        bundle = AccessBundle(
            endpoints=request.endpoints, paths=request.paths, commands=request.commands, notes=request.notes
        )
        self.access_bundles[operation.instance_id] = bundle
        return bundle

    def complete(self, operation_id: str, request: CompleteOperation) -> Operation:
        operation = self.operation(operation_id)
        if operation.status == "succeeded" and operation.epoch == request.epoch:
            return operation
        operation = self._held(operation_id, request.epoch)
        rules.check_complete(operation, [self.members[target.member_id] for target in operation.targets])
        return self._end(operation, None)

    def fail(self, operation_id: str, request: FailOperation) -> Operation:
        operation = self.operation(operation_id)
        if operation.status == "failed" and operation.epoch == request.epoch:
            return operation
        operation = self._held(operation_id, request.epoch)
        error = OperationError(
            code=request.code,
            message=request.message,
            failure_class=request.failure_class,
            retryable=request.failure_class in ("retryable", "expired"),
            fix=request.fix,
        )
        return self._end(operation, error)

    def _held(self, operation_id: str, epoch: int) -> Operation:
        self._end_expired()
        operation = self.operation(operation_id)
        if operation.status in ENDED_OPERATION:
            raise LeaseLost(f"The operation has {operation.status}.")
        if operation.lease is None or epoch != operation.epoch:
            raise LeaseLost(f"The operation is at epoch {operation.epoch}; the report carries {epoch}.")
        return operation

    def _held_by(self, operation: Operation) -> str:
        if operation.lease is None or operation.lease.expires_at <= self._clock():
            return ""
        return operation.lease.claim_id

    def _is_free(self, operation: Operation, app_slug: str) -> bool:
        ended = operation.status in ENDED_OPERATION
        return operation.app_slug == app_slug and not ended and not self._held_by(operation)

    def _lease_out(self, operation: Operation, request: ClaimOperation) -> Operation:
        now, epoch = self._clock(), operation.epoch + 1
        lease = Lease(
            holder=request.holder,
            claim_id=request.claim_id,
            epoch=epoch,
            expires_at=now + datetime.timedelta(seconds=request.lease_s),
        )
        instance = self.instances[operation.instance_id]
        if operation.kind == "deploy" and instance.status == "requested":
            self._move_instance(instance, "deploying", operation)
        return self._change(
            operation,
            status="running",
            epoch=epoch,
            lease=lease,
            attempts=operation.attempts + 1,
            started_at=operation.started_at or now,
        )

    def _note_outcome(self, operation: Operation, member_id: str, report: ReportMember) -> None:
        targets = [
            msgspec.structs.replace(
                target,
                outcome=rules.outcome(operation, report.status, target),
                error=report.status_reason if report.status == "failed" else target.error,
                evidence=report.evidence or target.evidence,
            )
            if target.member_id == member_id
            else target
            for target in operation.targets
        ]
        self._change(operation, targets=targets)

    def _end_expired(self) -> None:
        for operation in list(self.operations.values()):
            if operation.status not in ENDED_OPERATION and operation.deadline_at <= self._clock():
                error = OperationError(
                    code="deadline_passed",
                    message="The operation did not end before its deadline.",
                    failure_class="expired",
                    retryable=True,
                )
                # The epoch grows, so that the holder's next word is refused.
                self._end(msgspec.structs.replace(operation, epoch=operation.epoch + 1), error)

    def _end(self, operation: Operation, error: OperationError | None) -> Operation:
        targets = [
            msgspec.structs.replace(target, outcome="failed", error=error.message)
            if error and target.outcome == "pending"
            else target
            for target in operation.targets
        ]
        instance = self.instances[operation.instance_id]
        members = self.live_members(instance.instance_id)
        status = rules.instance_status(instance.status, operation, members, succeeded=error is None)
        self._move_instance(instance, status, operation)
        return self._change(
            operation,
            status="failed" if error else "succeeded",
            error=error,
            lease=None,
            ended_at=self._clock(),
            targets=targets,
        )

    def _move_instance(self, instance: Instance, status: InstanceStatus, operation: Operation) -> None:
        self.instances[instance.instance_id] = msgspec.structs.replace(
            instance, status=status, last_operation_id=operation.operation_id, revision=instance.revision + 1
        )

    def _change(self, operation: Operation, **changes: Any) -> Operation:
        changed = msgspec.structs.replace(operation, revision=operation.revision + 1, **changes)
        self.operations[operation.operation_id] = changed
        return changed

    def _new_id(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers):04d}"
