"""The runtime API of the fake platform: claims, leases, reports, ends, exits. Its rules are those of the real platform,
from `gpuaas_contract.protocol`."""

import datetime
from typing import Any

from gpuaas_contract.errors import ValidationFailed
from gpuaas_contract.instances import AccessBundle, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import (
    ASKING_KINDS,
    INSTANCE_KINDS,
    JOINING,
    ExitName,
    ExitTaken,
    Lease,
    Operation,
    Receipt,
    Target,
)
from gpuaas_contract.protocol import end, exits, report, request, result, status, steps
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

from gpuaas_sdk.testing.platform import rows
from gpuaas_sdk.testing.platform.breakers import BEGUN, Breakers
from gpuaas_sdk.testing.platform.edge import Account
from gpuaas_sdk.testing.platform.records import Records


class Runtime:
    """The changes of operations: by controllers, and by users through exits."""

    def __init__(self, records: Records, account: Account, breakers: Breakers) -> None:
        self._records = records
        self._account = account
        self._breakers = breakers

    def claim(self, claim: ClaimOperation) -> Claim:
        """Return the operation that this claim id has claimed already; otherwise claim the oldest free one."""
        request.check_app(claim.app_slug, self._account)
        self._end_expired()
        operations = list(self._records.operations.values())
        own = [operation for operation in operations if self._claim_id(operation) == claim.claim_id]
        free = [operation for operation in operations if self._is_free(operation, claim.app_slug)]
        if not own and not free:
            return Claim()
        operation = own[0] if own else self._lease_out(free[0], claim)
        return Claim(
            operation=operation,
            instance=self._records.instances[operation.instance_id],
            members=self._records.live_members(operation.instance_id),
            holds=self._records.active_holds(operation.instance_id),
            epoch=operation.epoch,
        )

    def heartbeat(self, operation_id: str, heartbeat: Heartbeat) -> Receipt:
        """Extend the lease. The revision stays the same, so that heartbeats are not reported to watchers."""
        operation = self.claimed(operation_id, heartbeat.epoch)
        assert operation.lease is not None
        renewed = replace(operation, lease=replace(operation.lease, expires_at=self._after(heartbeat.lease_s)))
        self._records.operations[operation_id] = renewed
        self._records.add_log(renewed, heartbeat.log)
        return _receipt(renewed)

    def expire_lease(self, operation_id: str) -> None:
        """Let the lease expire now, as if its controller had sent no heartbeats."""
        operation = self._records.operation(operation_id)
        if operation.lease is not None:
            expired = replace(operation.lease, expires_at=self._records.clock())
            self._records.change_operation(operation, lease=expired)

    def end_leases(self) -> None:
        """End every lease. The operations can be claimed again at once."""
        for operation in list(self._records.operations.values()):
            if operation.lease is not None and operation.status not in ENDED_OPERATION:
                self._records.change_operation(operation, lease=None)

    def report_step(self, operation_id: str, body: ReportStep) -> Receipt:
        """Store the step. A step that counts as done does not change any more."""
        operation = self.claimed(operation_id, body.epoch)
        by_key = {(step.name, step.member_id): step for step in operation.steps}
        present = by_key.get((body.name, body.member_id))
        if steps.changes(present, body, operation.exits_taken):
            by_key[body.name, body.member_id] = steps.reported(present, body, self._records.clock())
            operation = self._records.change_operation(operation, steps=list(by_key.values()), steps_total=len(by_key))
        return _receipt(operation)

    def report_member(self, operation_id: str, member_id: str, body: ReportMember) -> Receipt:
        """Store the member's status and the outcome of its target in the operation."""
        operation = self.claimed(operation_id, body.epoch)
        member = self._records.member(operation.instance_id, member_id)
        wanted = member.status if body.refused else body.status
        report.check_member_report(operation, member, wanted, body.evidence, self._records.clock())
        if report.meets_holds(operation, member, wanted):
            standing = self._records.active_holds(member.instance_id)
            request.check_holds(report.hold_kind(operation), [member_id], standing)
        target = next(target for target in operation.targets if target.member_id == member_id)
        refusal = body.status_reason if body.refused else None
        if refusal is not None:
            body = replace(body, status=report.status_after_refusal(target, member), status_reason="")
        if operation.kind == "replace" and (member.status, body.status) == ("removing", "provisioning"):
            target, member = _moved(target, member)
        changed = self._records.change_member(member, **_reported_fields(body))
        self._store_outcome(operation, target, changed, body, refusal)
        if target.outcome != "failed":
            self._breakers.count(operation, changed)
        self._records.update_status(self._records.instances[operation.instance_id])
        return _receipt(self._records.operation(operation_id))

    def publish_access(self, operation_id: str, body: PublishAccess) -> AccessBundle:
        """Replace the access bundle of the instance."""
        operation = self.claimed(operation_id, body.epoch)
        bundle = AccessBundle(endpoints=body.endpoints, paths=body.paths, commands=body.commands, notes=body.notes)
        self._records.access_bundles[operation.instance_id] = bundle
        return bundle

    def complete(self, operation_id: str, body: CompleteOperation) -> Operation:
        """End the operation with the result that follows from its members. A repeated call returns the same result."""
        operation = self._operated(operation_id)
        if operation.status in ENDED_OPERATION and operation.epoch == body.epoch:
            return operation
        operation = self.claimed(operation_id, body.epoch)
        if operation.kind == "preview" and body.preview is None and operation.status != "cancelling":
            raise ValidationFailed(
                "A preview must be completed with `preview`: the work that was observed.", details={"field": "preview"}
            )
        if operation.kind == "action" and body.result is not None:
            self._check_result(operation, body.result)
        self._records.add_log(operation, body.log)
        answered = replace(operation, result=body.result, preview=body.preview)
        ending = end.ending(answered, self._records.members, undone=body.undone)
        return self._end(end.with_late_cancel(answered, ending.status), ending)

    def _check_result(self, operation: Operation, answer: dict[str, Any]) -> None:
        """Refuse a result that does not fit its columns, if the test has added the manifest of the version."""
        manifest = self._records.manifests.get(self._records.instances[operation.instance_id].app_version)
        if manifest is not None:
            result.check(manifest, operation.action, answer)

    def fail(self, operation_id: str, body: FailOperation) -> Operation:
        """Fail the operation. A repeated call returns the same result."""
        operation = self._operated(operation_id)
        if operation.status == "failed" and operation.epoch == body.epoch:
            return operation
        operation = self.claimed(operation_id, body.epoch)
        self._records.add_log(operation, body.log)
        failure_class = end.failure_class_of(operation, body.failure_class)
        error = end.failure(body.code, body.message, failure_class, body.fix)
        return self._end(operation, end.Ending("failed", operation.targets, error))

    def cancel(self, operation_id: str, reason: str) -> Operation:
        """End an operation that was never claimed. For any other one, ask its controller to undo it."""
        operation = self._take_exit(operation_id, "cancel", reason)
        if operation.attempts == 0:
            return self._end(_fenced(operation), end.Ending("cancelled", operation.targets))
        lease = replace(operation.lease, cancel_requested=True) if operation.lease else None
        return self._records.change_operation(operation, status="cancelling", lease=lease)

    def reopen(self, operation_id: str, name: ExitName, reason: str, deadline_s: float) -> Operation:
        """Accept a failed operation again, to retry it or to undo it."""
        failed = self._records.operation(operation_id)
        is_forced = failed.force and not failed.by_steward
        if name == "retry" and failed.kind in JOINING and not is_forced:
            self._breakers.check(failed.instance_id, failed.component_key)
        operation = self._take_exit(operation_id, name, reason)
        deadline_at = self._after(deadline_s)
        again = exits.reopened(operation, self._records.members, deadline_at, compensating=name == "compensate")
        accepted = self._records.change_operation(again)
        for member in self._concerned(accepted).values():
            self._records.take(member, accepted)
        self._records.update_status(self._records.instances[operation.instance_id])
        return accepted

    def claimed(self, operation_id: str, epoch: int) -> Operation:
        """Return the operation if its lease still has this epoch; otherwise raise `LeaseLost`."""
        self._end_expired()
        operation = self._records.operation(operation_id)
        request.check_holder(operation, epoch, self._account)
        return operation

    def _operated(self, operation_id: str) -> Operation:
        operation = self._records.operation(operation_id)
        request.check_operator(operation, self._account)
        return operation

    def _after(self, seconds: float) -> datetime.datetime:
        return self._records.clock() + datetime.timedelta(seconds=seconds)

    def _claim_id(self, operation: Operation) -> str:
        if operation.lease is None or operation.lease.expires_at <= self._records.clock():
            return ""
        return operation.lease.claim_id

    def _is_free(self, operation: Operation, app_slug: str) -> bool:
        ended = operation.status in ENDED_OPERATION
        return operation.app_slug == app_slug and not ended and not self._claim_id(operation)

    def _lease_out(self, operation: Operation, claim: ClaimOperation) -> Operation:
        epoch = operation.epoch + 1
        lease = Lease(
            holder=claim.holder,
            claim_id=claim.claim_id,
            epoch=epoch,
            expires_at=self._after(claim.lease_s),
            cancel_requested=operation.status == "cancelling",
        )
        leased = self._records.change_operation(
            operation,
            status="running" if operation.status == "accepted" else operation.status,
            epoch=epoch,
            lease=lease,
            attempts=operation.attempts + 1,
            started_at=operation.started_at or self._records.clock(),
            can_undo=request.can_undo(claim.undoes, operation.kind, operation.component_key),
        )
        self._records.update_status(self._records.instances[operation.instance_id])
        return leased

    def _store_outcome(
        self, operation: Operation, target: Target, member: Member, body: ReportMember, refusal: str | None
    ) -> None:
        outcome, error = report.outcome(operation, target, member, refusal)
        reported = replace(target, outcome=outcome, error=error, evidence=body.evidence or target.evidence)
        changed = report.with_lines(reported, body)
        targets = [changed if other.member_id == member.member_id else other for other in operation.targets]
        operation = replace(operation, targets=targets)
        skipped = report.to_skip(operation, self._records.members) if outcome == "failed" else set()
        why = f"{operation.stop_after_failures} members failed before its turn"
        for member_id in sorted(skipped) if operation.kind == "add" else ():
            self._records.change_member(self._records.members[member_id], status="removed", status_reason=why)
        targets = [
            replace(other, outcome="skipped", error=why) if other.member_id in skipped else other for other in targets
        ]
        self._records.change_operation(operation, targets=targets)

    def _take_exit(self, operation_id: str, name: ExitName, reason: str) -> Operation:
        operation = self._records.operation(operation_id)
        superseded = self._records.has_later(operation, exits.SUPERSEDES_NOTHING)
        concerned, now = self._concerned(operation), self._records.clock()
        exits.check(operation, concerned, name, superseded=superseded)
        repeats = name in ("retry", "compensate") and exits.has_later(operation, concerned)
        taken = ExitTaken(name=name, taken_by="test", reason=reason, taken_at=now, repeats_steps=repeats)
        return self._records.change_operation(operation, exits_taken=[*operation.exits_taken, taken])

    def _concerned(self, operation: Operation) -> dict[str, Member]:
        """Return the operation's targets; for an operation on the whole instance, also members added later."""
        members = [self._records.members[target.member_id] for target in operation.targets]
        if operation.kind in INSTANCE_KINDS:
            members += self._records.live_members(operation.instance_id)
        return {member.member_id: member for member in members}

    def _end_expired(self) -> None:
        for operation in list(self._records.operations.values()):
            if operation.status not in ENDED_OPERATION and operation.deadline_at <= self._records.clock():
                message = "The operation did not end before its deadline."
                error = end.failure("deadline_passed", message, "expired")
                self._end(_fenced(operation), end.Ending("failed", operation.targets, error))

    def _end(self, operation: Operation, ending: end.Ending) -> Operation:
        ended = self._records.change_operation(
            operation,
            status=ending.status,
            error=ending.error,
            lease=None,
            ended_at=self._records.clock(),
            targets=end.closed_targets(ending),
        )
        if ended.kind not in ASKING_KINDS:
            self._leave_members(ended)
            self._leave_instance(ended)
        return ended

    def _leave_members(self, ended: Operation) -> None:
        for target in ended.targets:
            member = self._records.members[target.member_id]
            if left := end.left_behind(ended, target, member):
                moved = self._records.change_member(member, status=left[0], status_reason=left[1])
                if member.status in BEGUN:
                    self._breakers.count(ended, moved)

    def _leave_instance(self, ended: Operation) -> None:
        instance = self._records.instances[ended.instance_id]
        left = replace(instance, last_operation_id=ended.operation_id)
        if ended.kind not in INSTANCE_KINDS:
            self._records.update_status(left)
            return
        refused = end.is_refusal(ended.error)
        left = replace(left, baseline=status.baseline_after(left.baseline, ended.kind, ended.status, refused=refused))
        if ended.status == "succeeded" and ended.to_version:
            left = status.moved_to(left, ended, self._records.manifests[ended.to_version])
        if ended.status == "succeeded" and ended.kind == "reconfigure":
            left = status.reconfigured(left, ended)
        conditions = status.conditions_after(ended, instance.revision, self._records.clock())
        self._records.update_status(left, conditions)


def _receipt(operation: Operation) -> Receipt:
    assert operation.lease is not None
    return Receipt(
        operation_id=operation.operation_id,
        revision=operation.revision,
        cancel_requested=operation.lease.cancel_requested,
        lease=operation.lease,
    )


def _fenced(operation: Operation) -> Operation:
    """Raise the epoch, so that reports of the present holder are refused."""
    return replace(operation, epoch=operation.epoch + 1)


def _moved(target: Target, member: Member) -> tuple[Target, Member]:
    """Move a replaced member to its new machine; it keeps its id."""
    moved = replace(member, was_ready=False, **rows.place(target.allocation_id))
    return replace(target, previous_allocation_id=target.previous_allocation_id or member.allocation_id), moved


def _reported_fields(body: ReportMember) -> dict[str, Any]:
    optional = {"adapter_detail": body.adapter_detail, "observed_version": body.observed_version}
    given = {name: value for name, value in optional.items() if value is not None}
    return {"status": body.status, "status_reason": body.status_reason, **given}
