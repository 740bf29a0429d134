"""The object that a handler works with during one operation: steps, reports, machines, secrets, artifacts. `runner`
creates it. Every report carries the epoch of the claim."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVarTuple

import msgspec
import structlog
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.credentials import Credential
from gpuaas_contract.deliveries import Delivery
from gpuaas_contract.errors import ApiError, Conflict, LeaseLost, NotFound, PermissionDenied
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import MEMBER_GET, MEMBER_LIST, AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER, MemberStatus
from gpuaas_contract.operations import INSTANCE_KINDS, OPERATION_GET, Evidence, Leftover, OperationKind
from gpuaas_contract.operations import Operation as OperationRecord
from gpuaas_contract.placements import FileMode
from gpuaas_contract.posix import POSIX_PEOPLE, PosixPerson
from gpuaas_contract.protocol import report as protocol
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    MEMBER_REPORT,
    PublishAccess,
    ReportMember,
)
from gpuaas_contract.usage import USAGE_REPORT, ReportedUsage, ReportUsage, UsageReceipt
from gpuaas_contract.wire import PAGE_SIZE_MAX

from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import inputs, rest, rules
from gpuaas_sdk.controller.inputs import Forms, Inputs
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.operation import artifacts, secrets
from gpuaas_sdk.controller.operation.machines import CERTIFICATE_TTL_S, Connect, Machines
from gpuaas_sdk.controller.operation.steps import Limits, Result, Steps
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.machine import Machine, MachineAway, MachineUnreachable
from gpuaas_sdk.machine.record import recorded

log = structlog.get_logger()

Arguments = TypeVarTuple("Arguments")
StepUndo = Callable[..., Awaitable[None]]
"""Undoes one step: takes the operation, and the member if the step was about one."""

SECRET_TTL_S = 3600
_WITH_INPUTS = frozenset({"upgrade", "rollback", "reconfigure"})
"""Kinds that carry the inputs of the instance after the operation."""


class Operation:
    """One claimed operation of the app, passed to its handler.

    @app.operation("add")
    async def add(op: Operation) -> None:
        await op.each(op.to_do, join)"""

    def __init__(
        self,
        lease: Lease,
        instance: Instance,
        members: Iterable[Member],
        holds: Iterable[Hold] = (),
        *,
        connect: Connect,
        forms: Forms = Forms(),  # noqa: B008 - frozen
        step_undos: Mapping[str, StepUndo] | None = None,
    ) -> None:
        record = lease.record
        instance = forms.applied(instance)
        self.id = record.operation_id
        """The id of the operation: `op_…`. The same after a crash."""
        self.kind = record.kind
        """The kind, such as `deploy`; `preview` and `action` too."""
        self.component_key = record.component_key
        """The role that an operation on members concerns; empty for operations on the whole instance."""
        self.correlation_id = record.correlation_id
        """The id under which people find everything about the request: `gpuaas triage ID`."""
        self.reason = record.reason
        """Why the operation was requested, as its requester wrote it; may be empty."""
        self.requested_by = record.requested_by
        """The id of the user or service account that requested the operation."""
        self.force = record.force
        """True: the requester accepts that work is interrupted. No evidence is needed then."""
        self.by_steward = record.by_steward
        """True: the app itself requested the operation between operations, not a person."""
        self.attempt = record.attempts
        """The number of claims so far: 1 at the first claim, more after a crash or a retry."""
        self.stop_after_failures = record.stop_after_failures
        """After this many failed members, the platform skips those that have not started; 0: it skips none."""
        self.from_version = record.from_version
        """The version before; set for `upgrade`, `rollback` and their previews."""
        self.to_version = record.to_version
        """The version after; set for `upgrade`, `rollback` and their previews."""
        self.action = record.action
        """The name of the action; empty for other kinds."""
        self.inputs = _with_defaults(forms, record)
        """For `action`, the inputs of the caller; for `upgrade`, `rollback` and `reconfigure`, those of the instance
        after it. Fields without a chosen value have the default of the form, here and in `instance.inputs`."""
        self.inputs_before = forms.of_instance(record.inputs_before or instance.inputs)
        """The inputs of the instance before a `reconfigure`; for other kinds, its present inputs."""
        self.preview_of = record.preview_of
        """For `preview`, the kind of operation that a person considers."""
        self.deadline_at = record.deadline_at
        """When the platform fails the operation if it has not ended."""
        self.instance = instance
        """The instance as it was at the claim: name, version, inputs, topology."""
        self.holds = tuple(holds)
        """Holds on members of the instance at the time of the claim."""
        self.backs_out = rules.backs_out(record)
        """True while the work of this operation is undone, after a cancel or to compensate."""
        self._lease = lease
        self._members = {member.member_id: member for member in members}
        self._targets = {target.member_id: target for target in record.targets}
        self._failures: tuple[tuple[Member, Permanent], ...] = ()
        self._steps = Steps(lease)
        self._step_undos = step_undos or {}
        self._machines = Machines(self._grant, connect, self._steps.add_line, work=self.id, is_resumed=self.attempt > 1)

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member of the instance, as last reported."""
        return tuple(member for member in self._members.values() if member.status not in GONE_MEMBER)

    @property
    def targets(self) -> tuple[Member, ...]:
        """The members that this operation changes, or would change if it is a preview. Members that were removed before
        a crash are not included."""
        if self.kind in INSTANCE_KINDS:
            return self.members
        if self.kind == "preview":
            return self._known(self.inputs.get("member_ids", ()))
        return self._known(self._targets)

    @property
    def inputs_after(self) -> dict[str, Any]:
        """The inputs that the instance has after the operation; for a preview, those it would have.

        changed = [name for name in op.inputs_after if op.inputs_after[name] != op.inputs_before.get(name)]"""
        if self.kind == "preview":
            return self.inputs.get("inputs") or self.instance.inputs
        return self.inputs if self.kind in _WITH_INPUTS else self.instance.inputs

    def inputs_as(self, kind: type[Inputs]) -> Inputs:
        """Return the inputs as a struct or dataclass of the app: for an action, those of its caller; for other kinds,
        those of the instance after the operation. If they do not fit, an action is refused and another operation fails;
        both name the field. Call it before the first change. The undo of a `reconfigure` returns to `inputs_before`,
        which this does not read.

            class Settings(msgspec.Struct):
                port: int = 7000

            port = op.inputs_as(Settings).port"""
        if self.kind == "action":
            return inputs.of_caller(self.inputs, kind, action=self.action, instance_name=self.instance.name)
        return inputs.converted(self.inputs_after, kind)

    @property
    def to_do(self) -> tuple[Member, ...]:
        """The targets that need work: not done, not skipped by the stop rule, and not failed since the last retry.
        While the operation is undone, failed targets are included."""
        left = {"pending", "failed"} if self.backs_out else {"pending"}
        outcomes = {member_id: target.outcome for member_id, target in self._targets.items()}
        return tuple(member for member in self.targets if outcomes.get(member.member_id, "pending") in left)

    def skips(self, member: Member) -> bool:
        """Return whether the stop rule skipped the member because too many others failed."""
        target = self._targets.get(member.member_id)
        return target is not None and target.outcome == "skipped"

    def replacement(self, member: Member) -> str:
        """Return the id of the allocation that a replaced member moves to. The report `provisioning` moves it."""
        target = self._targets.get(member.member_id)
        if target is None or not target.allocation_id:
            raise LookupError(f"{self.kind} {self.id} does not replace member {member.member_id}")
        return target.allocation_id

    def has_moved(self, member: Member) -> bool:
        """Return whether a replaced member is on its new machine already. A later attempt must not go back then.

        if not op.has_moved(member):
            await op.step("clear the old machine", clear, member=member)"""
        return self.now(member).allocation_id == self.replacement(member)

    async def at_replacement(self, member: Member) -> Member:
        """Return a copy of a replaced member as it will be on its new machine, for `machine`, `on` and `answers`.

        The member itself stays where it is until the report `provisioning`. So an app can prepare the new machine, and
        try it, while the old one still works. The copy is named after the allocation; the address is that of the
        machine.

            spare = await op.at_replacement(member)
            await op.on(spare, install)"""
        allocation_id, now = self.replacement(member), self.now(member)
        if self.has_moved(member):
            return now
        address = await self._machines.address(allocation_id)
        return msgspec.structs.replace(
            now, allocation_id=allocation_id, node_id="", node_name=allocation_id, address=address
        )

    async def step(
        self,
        name: str,
        function: Callable[[*Arguments], Awaitable[None]],
        *args: *Arguments,
        member: Member | None = None,
        attempts: int | None = None,
        within_s: float | None = None,
    ) -> None:
        """Run `await function(*args)` unless this step already succeeded in this operation.

        The name and the member identify the step, so both must be the same after a crash. Steps of an undo handler
        must have other names than those of the handler.

        A `Temporary` error repeats the step until the operation's deadline. With `attempts`, the step fails after this
        many of them; with `within_s`, it is stopped and fails after this time.

            await op.step("start", start, machine, member=member, attempts=3, within_s=120)"""
        limits = Limits(attempts, within_s)
        await self._steps.run(name, member.member_id if member else "", lambda: function(*args), limits)

    async def undo_steps(self) -> None:
        """Run the undo of each step of `App.step` that this operation began, the last step first.

        Members are undone at the same time. Undos that already succeeded are not repeated after a crash. For an undo
        handler of the app, which then reports its members:

            await op.undo_steps()"""
        for steps_by_member in rules.undo_order(self._steps.begun(), self._step_undos):
            await self._undo_round(steps_by_member)

    async def say(self, message: str) -> None:
        """Show users what the running step waits for. A message that is the same as the last one is not sent."""
        await self._steps.say(message)

    async def until(
        self, check: Callable[[], Awaitable[Check]], *, every_s: float = 2.0, within_s: float | None = None
    ) -> Check:
        """Ask until the check passes, and show users its reason whenever that changes.

        Returns the last answer: one that did not pass only if `within_s` is over. A `Temporary` error counts as an
        answer that did not pass. Past the operation's deadline raises `Permanent`.

            async def drained() -> Check:
                jobs = await jobs_on(machine)
                return Check(not jobs, f"{len(jobs)} jobs run on {machine.hostname}")

            await op.until(drained)"""
        return await self._steps.until(check, every_s, within_s)

    async def on(
        self, member: Member, work: Callable[[Machine], Awaitable[Result]], *, patience_s: float = 60.0
    ) -> Result:
        """Run `await work(machine)`, again and again while the machine is unreachable.

        Raises `MachineAway` if the machine was unreachable for `patience_s`. The work must be safe to repeat.

            version = await op.on(member, read_version, patience_s=30)"""
        away_since: float | None = None
        while True:
            try:
                result = await work(await self.machine(member))
            except MachineUnreachable as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since >= patience_s:
                    raise MachineAway(member.node_name, member.address, patience_s, error.reason) from error
                await self._steps.show_wait(str(error), member.member_id)
                await asyncio.sleep(min(rules.pause_s(error.after_s), patience_s))
            else:
                await self._steps.end_wait(member.member_id)
                return result

    async def answers(self, member: Member, *, patience_s: float = 20.0) -> bool:
        """Return whether the member's machine answers within the time.

        if not await op.answers(member):
            raise Refused("the machine does not answer", fix="use force if it will not come back")"""
        try:
            await self.on(member, lambda machine: machine.run("true"), patience_s=patience_s)
        except MachineAway:
            return False
        return True

    def now(self, member: Member) -> Member:
        """Return the member as it was last reported; `member` may be an older copy of it."""
        return self._members.get(member.member_id, member)

    def status_before(self, member: Member) -> MemberStatus | None:
        """Return the status that a target had when the operation was requested or retried; an undo returns to it."""
        target = self._targets.get(member.member_id)
        return target.status_before if target else None

    async def is_used_by(self, instance_id: str, member: Member) -> bool:
        """Return whether another instance of the project has a live member on the machine of this member.

        An app asks before it takes over what an instance has left on a machine."""
        query = {"live": "true", "page_size": PAGE_SIZE_MAX}
        try:
            others = [other async for other in self._lease.pages(MEMBER_LIST, query, instance_id=instance_id)]
        except NotFound:
            return False
        return any(other.allocation_id == member.allocation_id for other in others)

    async def roles_beside(self, member: Member) -> frozenset[str]:
        """Return the roles that other live members of the instance have on the machine of this member, read now.

        A role on the receipt that no member has is left of an operation that people ended by force."""
        query = {"live": "true", "page_size": PAGE_SIZE_MAX}
        pages = self._lease.pages(MEMBER_LIST, query, instance_id=self.instance.instance_id)
        others = [other async for other in pages if other.member_id != member.member_id]
        return frozenset(other.component_key for other in others if other.allocation_id == member.allocation_id)

    async def members_at_rest(self, kinds: Collection[OperationKind]) -> tuple[Member, ...] | None:
        """Return every member of the instance, also those that are gone, read now; None if an operation of one of these
        kinds works on one. See `rest`."""

        async def members() -> tuple[Member, ...]:
            query = {"page_size": PAGE_SIZE_MAX}
            pages = self._lease.pages(MEMBER_LIST, query, instance_id=self.instance.instance_id)
            return tuple([member async for member in pages])

        return await rest.members_at_rest(
            members, lambda operation_id: self._lease.call(OPERATION_GET, operation_id=operation_id), kinds
        )

    async def people(self) -> tuple[PosixPerson, ...]:
        """Return the people of the project who have, or had, an account on its machines.

        Empty if the service account may not read them: it was made before its app asked for `identity.posix.read`."""
        try:
            return tuple([person async for person in self._lease.pages(POSIX_PEOPLE, {"page_size": PAGE_SIZE_MAX})])
        except PermissionDenied as error:
            log.warning("people.not_readable", error=error.message, fix=error.fix)
            return ()

    async def advance(self, member: Member, status: Literal["provisioning", "joining"]) -> None:
        """Report the status of a new member, unless it has this or a later one, as after a crash or in a retry.

        await op.advance(member, "joining")"""
        before = {"provisioning": ("requested", "failed"), "joining": ("requested", "provisioning", "failed")}
        if self.now(member).status in before[status]:
            if status == "joining" and self.now(member).status == "requested":
                await self.report(member, status="provisioning")
            await self.report(member, status=status)

    async def each(
        self,
        members: Iterable[Member],
        function: Callable[[Member], Awaitable[None]],
        *,
        at_once: int = 0,
        raises: bool = True,
    ) -> rules.Results:
        """Run `await function(member)` for all members, `at_once` at a time. A failed member does not stop the others.

        Without `at_once`, all run at the same time, or as many as the stop rule allows to fail. Members that the
        stop rule skips are not started. A member whose function raises `Refused` keeps the status that it had before.

        If any member failed, raises `MembersFailed`. With `raises=False`, returns instead which members are `ok` and
        which `failed`, and the operation fails after the handler has ended.

            joined = await op.each(op.to_do, join, raises=False)
            await op.each(joined.ok, run_first_job)"""
        chosen = tuple(members)
        slots = asyncio.Semaphore(at_once or self.stop_after_failures or max(1, len(chosen)))
        results = await asyncio.gather(
            *(self._in_slot(slots, member, function) for member in chosen), return_exceptions=True
        )
        unexpected = [
            result for result in results if isinstance(result, BaseException) and not isinstance(result, Permanent)
        ]
        for error in sorted(unexpected, key=lambda error: not isinstance(error, LeaseLost)):
            raise error
        failures = tuple(
            (member, result) for member, result in zip(chosen, results, strict=True) if isinstance(result, Permanent)
        )
        if failures and raises:
            raise rules.MembersFailed(failures, len(chosen))
        self._failures += failures
        failed = {member.member_id for member, _ in failures}
        ok = tuple(member for member in chosen if member.member_id not in failed and not self.skips(member))
        return rules.Results(ok, failures)

    def raise_failures(self) -> None:
        """Raise the failures that `each` returned. The kit calls this when the handler has ended."""
        failures, self._failures = self._failures, ()
        if failures:
            raise rules.MembersFailed(failures, max(len(failures), len(self._targets)))

    async def report(
        self,
        member: Member,
        *,
        status: MemberStatus | None = None,
        reason: str = "",
        detail: dict[str, Any] | None = None,
        version: str | None = None,
        evidence: Evidence | None = None,
        refused: bool = False,
        removed: list[str] | None = None,
        left: list[Leftover] | None = None,
    ) -> Member:
        """Report the state of a member and return the member. Without a status, detail or version, it stays.

        The first report of `removing` needs recent evidence that the member is idle, if it was ever ready. With
        `refused`, nothing was changed, and the member gets the status that it had before; `each` reports this.

        `removed` and `left` are the lines of the member in the statement of a remove or decommission: what was removed
        from its machine, and what was not and why.

            left = [Leftover(what="/data", why="it existed before")]
            await op.report(member, removed=["service queue"], left=left)"""
        known = self._members.get(member.member_id, member)
        report = ReportMember(
            epoch=self._lease.epoch,
            status=status or known.status,
            status_reason=rules.clipped(reason),
            adapter_detail=detail,
            observed_version=version,
            evidence=evidence,
            refused=refused,
            removed=removed,
            left=left,
        )
        target = self._targets.get(member.member_id)
        if refused and target is not None:
            restored = protocol.status_after_refusal(target, known)
            report = msgspec.structs.replace(report, status=restored)
        self._lease.note(await self._lease.report(MEMBER_REPORT, report, member_id=member.member_id))
        reported = await self._moved(known) if rules.moves(self.kind, known, report) else rules.reported(known, report)
        self._members[member.member_id] = reported
        if target is not None:
            refusal = reason if refused else None
            self._targets[member.member_id] = rules.with_outcome(self._lease.record, target, reported, refusal)
        return reported

    async def publish_access(self, bundle: AccessBundle) -> None:
        """Publish how users reach the app. This replaces the earlier access bundle."""
        await self._lease.report(
            ACCESS_PUBLISH,
            PublishAccess(
                epoch=self._lease.epoch,
                endpoints=bundle.endpoints,
                paths=bundle.paths,
                commands=bundle.commands,
                notes=bundle.notes,
            ),
        )

    async def report_usage(self, records: Sequence[ReportedUsage]) -> UsageReceipt:
        """Report usage of the instance under the claim of this operation, such as the last usage before a decommission.

        Between operations, the health handler reports it. A record that is reported again counts once."""
        report = ReportUsage(epoch=self._lease.epoch, operation_id=self.id, records=list(records))
        return await self._lease.call(USAGE_REPORT, report, instance_id=self.instance.instance_id)

    async def machine(self, member: Member) -> Machine:
        """Return the member's machine, with root access until the operation ends."""
        return await self._machines.machine(member.allocation_id, member.address)

    async def secret(
        self, purpose: SecretPurpose, name: str, value: str | None = None, *, ttl_s: int = SECRET_TTL_S
    ) -> str:
        """Return the instance's secret of this purpose and name. If there is none, store `value`, or a random one.

        Until the secret expires, every operation of the instance gets the same value."""
        return await secrets.secret(self._lease, purpose, name, value or "", ttl_s)

    async def credential(self, credential_id: str) -> tuple[Credential, str]:
        """Return a customer's credential and its private key, for machines that accept no other key.

        Users choose the credential in an input of the app. The key is kept only in memory, so every
        operation fetches it again."""
        return await secrets.credential(self._lease, credential_id)

    async def has_artifact(self, name: str) -> bool:
        """Return whether the manifest names this artifact, in the version that the instance gets or has."""
        return name in await artifacts.digests(self._lease, self.instance, self._artifact_version)

    async def artifact(self, name: str) -> Delivery:
        """Return a short-lived token for an artifact of the manifest, in the version that the instance gets or has.

        On the machine, send GET `url` with `token` as bearer token, then compare the digest of the content."""
        return await artifacts.deliver(self._lease, await self._artifact(name))

    async def place(self, name: str, member: Member, *, mode: FileMode = "0644") -> str:
        """Place an artifact of the manifest on the member's machine and return its path there.

        The artifact is that of the version that the instance gets or has. Root owns the file; it stays until `unplace`,
        or until the allocation is released."""
        with recorded(member.node_name, self._steps.add_line, "place", name, mode) as entry:
            artifact = await self._artifact(name)
            await self.say(f"{member.node_name} fetches {name}: {artifact.size_bytes:,} bytes")
            placement = await artifacts.place(self._lease, artifact, member.allocation_id, mode)
            entry.end(0, placement.path.encode())
            return placement.path

    async def unplace(self, name: str, member: Member, *, version: str = "") -> None:
        """Remove an artifact of the manifest from the member's machine. It succeeds if the machine does not have it.

        Without `version`, it is the artifact that `place` places. After an upgrade, remove the old one:

            await op.unplace("server", member, version=op.from_version)"""
        with recorded(member.node_name, self._steps.add_line, "unplace", name) as entry:
            artifact = await artifacts.find(self._lease, self.instance, name, version or self._artifact_version)
            await artifacts.unplace(self._lease, artifact, member.allocation_id)
            entry.end(0, b"")

    async def unplace_all(self, member: Member) -> None:
        """Remove every artifact of the instance's present and previous version from the member's machine.

        For the end of a remove, when the app does not use the files any more. `members.take_off` calls it."""
        await self._unplace(member, {"", self.instance.previous_version}, set())

    async def unplace_left(self, member: Member) -> None:
        """Remove the artifacts of the version that the instance can no longer return to from the member's machine.

        For the end of an upgrade, of a rollback and of their undo. Later operations have no record of that version, so
        `unplace_all` would not remove them. `members.drop_left` calls it."""
        left, kept = rules.versions_left(self._lease.record, self.instance, backs_out=self.backs_out)
        await self._unplace(member, left, kept)

    async def until_deadline(self, attempt: Callable[[], Awaitable[Result]], member: Member | None = None) -> Result:
        """Repeat the attempt after `Temporary` errors, and show what it waits for. Past the operation's deadline raise
        `Permanent`."""
        return await self._steps.until_deadline(attempt, member.member_id if member else "")

    async def turn_back(self) -> None:
        """Begin to undo the work. The kit calls this after a cancel, when the handler has stopped."""
        self.backs_out = True
        self._failures = ()
        await self._steps.turn_back()

    async def end_interrupted(self) -> None:
        """Report steps as failed that an earlier claim left running. The kit calls this before an undo that the earlier
        claim did not finish."""
        await self._steps.end_interrupted()

    async def close(self) -> None:
        """Close the connections to all machines."""
        await self._machines.close()

    @property
    def _artifact_version(self) -> str:
        """The app version whose artifacts are used; empty: that of the instance."""
        return "" if self.backs_out else self.to_version

    async def _artifact(self, name: str) -> Artifact:
        return await artifacts.find(self._lease, self.instance, name, self._artifact_version)

    async def _unplace(self, member: Member, versions: Collection[str], kept: Collection[str]) -> None:
        """Remove the artifacts of these versions, except those that versions in `kept` have too."""
        stays = {
            digest
            for version in kept
            for digest in (await artifacts.digests(self._lease, self.instance, version)).values()
        }
        wanted: dict[str, set[str]] = {}
        for version in versions:
            for name, digest in (await artifacts.digests(self._lease, self.instance, version)).items():
                wanted.setdefault(name, set()).update({digest} - stays)
        for artifact in await artifacts.with_digests(self._lease, wanted):
            with recorded(member.node_name, self._steps.add_line, "unplace", artifact.name) as entry:
                await artifacts.unplace(self._lease, artifact, member.allocation_id)
                entry.end(0, b"")

    def _known(self, member_ids: Iterable[str]) -> tuple[Member, ...]:
        return tuple(self._members[member_id] for member_id in member_ids if member_id in self._members)

    async def _undo_round(self, steps_by_member: Mapping[str, Sequence[str]]) -> None:
        async def undo(member: Member) -> None:
            await self._undo(steps_by_member[member.member_id], member)

        await self.each(self._known(steps_by_member), undo)
        await self._undo(steps_by_member.get("", ()))

    async def _undo(self, names: Iterable[str], *members: Member) -> None:
        for name in names:
            member = members[0] if members else None
            await self.step(f"{rules.UNDO}{name}", self._step_undos[name], self, *members, member=member)

    async def _moved(self, member: Member) -> Member:
        """Read a member after its move to another machine, because only the platform has its new address."""
        return await self._lease.call(MEMBER_GET, instance_id=member.instance_id, member_id=member.member_id)

    async def _in_slot(
        self, slots: asyncio.Semaphore, member: Member, function: Callable[[Member], Awaitable[None]]
    ) -> Permanent | None:
        async with slots:
            if self.skips(member):
                return None
            try:
                await self.until_deadline(lambda: function(member), member)
            except Conflict:
                if self.stop_after_failures:
                    await self._read_skipped()
                if not self.skips(member):
                    raise
            except Permanent as error:
                await self._report_failed(member, error)
                return error
            return None

    async def _report_failed(self, member: Member, error: Permanent) -> None:
        known = self._members.get(member.member_id, member)
        if isinstance(error, Refused) and not self.backs_out:
            await self.report(member, reason=rules.clipped(str(error)), refused=True)
        elif known.status not in GONE_MEMBER:
            detail = None if known.adapter_detail else {"error": rules.clipped(str(error))}
            await self.report(member, status="failed", reason=str(error), detail=detail)
        if self.stop_after_failures:
            await self._read_skipped()

    async def _read_skipped(self) -> None:
        """Read from the platform which members the stop rule skipped; receipts do not contain that."""
        record = await self._lease.report(OPERATION_GET)
        self._targets |= {target.member_id: target for target in record.targets if target.outcome == "skipped"}

    async def _grant(self, allocation_id: str, public_key: str) -> MachineAccess:
        request = RequestMachineAccess(
            public_key=public_key, operation_id=self.id, epoch=self._lease.epoch, ttl_s=CERTIFICATE_TTL_S
        )
        try:
            return await self._lease.call(MACHINE_ACCESS, request, allocation_id=allocation_id)
        except LeaseLost:
            raise
        except ApiError as error:
            raise rules.refused(f"No access to the machine of allocation {allocation_id}", error) from error


def _with_defaults(forms: Forms, record: OperationRecord) -> dict[str, Any]:
    """Return the inputs of an operation with the defaults of the form that they fill in."""
    if record.kind == "action":
        return forms.of_action(record.action, record.inputs)
    if record.kind == "preview" and record.inputs.get("inputs"):
        return {**record.inputs, "inputs": forms.of_instance(record.inputs["inputs"])}
    return forms.of_instance(record.inputs) if record.kind in _WITH_INPUTS else record.inputs
