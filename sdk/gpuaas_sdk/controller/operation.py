"""What a handler holds while it works on one operation: steps, reports, machines, secrets. Made by `runner`; every
word it says to the platform carries the claim's epoch."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVarTuple

from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.credentials import Credential
from gpuaas_contract.deliveries import Delivery
from gpuaas_contract.errors import ApiError, Conflict, LeaseLost
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import MEMBER_GET, AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import GONE_MEMBER, MemberStatus
from gpuaas_contract.operations import INSTANCE_KINDS, OPERATION_GET, Evidence
from gpuaas_contract.placements import FileMode
from gpuaas_contract.runtime import (
    ACCESS_PUBLISH,
    MEMBER_REPORT,
    PublishAccess,
    ReportMember,
)

from gpuaas_sdk.controller import deliveries, placements, rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.machines import CERTIFICATE_TTL_S, Connect, Machines
from gpuaas_sdk.controller.steps import Result, Steps
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.machine.record import recorded

Arguments = TypeVarTuple("Arguments")

SECRET_TTL_S = 3600


class Operation:
    def __init__(
        self,
        lease: Lease,
        instance: Instance,
        members: Iterable[Member],
        holds: Iterable[Hold] = (),
        *,
        connect: Connect,
    ) -> None:
        record = lease.record
        self.id = record.operation_id
        self.kind = record.kind
        self.component_key = record.component_key
        self.correlation_id = record.correlation_id
        self.reason = record.reason
        self.force = record.force
        self.attempt = record.attempts
        """1 at the first claim; grows with every further one, after a crash as after a retry."""
        self.stop_after_failures = record.stop_after_failures
        self.from_version = record.from_version
        self.to_version = record.to_version
        """`upgrade`, `rollback`, and previews of them."""
        self.action = record.action
        self.inputs = record.inputs
        """`action`: what the caller gave; `upgrade`: the instance's inputs after it."""
        self.preview_of = record.preview_of
        self.deadline_at = record.deadline_at
        self.instance = instance
        self.holds = tuple(holds)
        """Holds on members of the instance, as they stood at the claim."""
        self.backs_out = rules.backs_out(record)
        """True while half-done work is undone, after a cancel or to compensate."""
        self._lease = lease
        self._members = {member.member_id: member for member in members}
        self._targets = {target.member_id: target for target in record.targets}
        self._steps = Steps(lease)
        self._machines = Machines(self._grant, connect, self._steps.add_line)

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member of the instance, as last reported."""
        return tuple(member for member in self._members.values() if member.status not in GONE_MEMBER)

    @property
    def targets(self) -> tuple[Member, ...]:
        """The members this operation, or the one to preview, is about. One that was taken away before a crash is no
        longer among them."""
        if self.kind in INSTANCE_KINDS:
            return self.members
        if self.kind == "preview":
            return self._known(self.inputs.get("member_ids", ()))
        return self._known(self._targets)

    @property
    def to_do(self) -> tuple[Member, ...]:
        """Targets with work left: neither done nor skipped by the stop rule, nor failed since the last retry. To back
        out, those that failed count as well."""
        left = {"pending", "failed"} if self.backs_out else {"pending"}
        outcomes = {member_id: target.outcome for member_id, target in self._targets.items()}
        return tuple(member for member in self.targets if outcomes.get(member.member_id, "pending") in left)

    def skips(self, member: Member) -> bool:
        """Whether the stop rule left the member out, because too many others failed before its turn."""
        target = self._targets.get(member.member_id)
        return target is not None and target.outcome == "skipped"

    def replacement(self, member: Member) -> str:
        """`replace`: the allocation the member moves to. Reporting it `provisioning` moves it there."""
        target = self._targets.get(member.member_id)
        if target is None or not target.allocation_id:
            raise LookupError(f"{self.kind} {self.id} does not replace member {member.member_id}")
        return target.allocation_id

    async def step(
        self,
        name: str,
        function: Callable[[*Arguments], Awaitable[None]],
        *args: *Arguments,
        member: Member | None = None,
    ) -> None:
        """Run `await function(*args)` once per operation: a step that succeeded on the record is skipped.

        The name and the member identify the step, so both must be the same after a crash. Steps of an undo handler
        have names of their own."""
        await self._steps.run(name, member.member_id if member else "", lambda: function(*args))

    async def say(self, message: str) -> None:
        """Tell watchers what the running step waits for. Saying the same again sends nothing."""
        await self._steps.say(message)

    async def each(
        self, members: Iterable[Member], function: Callable[[Member], Awaitable[None]], *, at_once: int = 0
    ) -> None:
        """Run `await function(member)` for all, `at_once` at a time. One that fails is reported; the others go on.

        Left out, `at_once` means all together; under a stop rule no more than may fail. Members the stop rule skips
        before their turn are not begun."""
        chosen = tuple(members)
        turns = asyncio.Semaphore(at_once or self.stop_after_failures or max(1, len(chosen)))
        ends = await asyncio.gather(
            *(self._in_turn(turns, member, function) for member in chosen), return_exceptions=True
        )
        unexpected = [end for end in ends if isinstance(end, BaseException) and not isinstance(end, Permanent)]
        for error in sorted(unexpected, key=lambda error: not isinstance(error, LeaseLost)):
            raise error
        failures = tuple((member, end) for member, end in zip(chosen, ends, strict=True) if isinstance(end, Permanent))
        if failures:
            raise rules.MembersFailed(failures, len(chosen))

    async def report(
        self,
        member: Member,
        *,
        status: MemberStatus | None = None,
        reason: str = "",
        detail: dict[str, Any] | None = None,
        version: str | None = None,
        evidence: Evidence | None = None,
    ) -> Member:
        """Say how a member is; what is left out stays as it was.

        `removing` (or straight to `removed`) of a member that was ready needs fresh evidence that it is idle."""
        known = self._members.get(member.member_id, member)
        report = ReportMember(
            epoch=self._lease.epoch,
            status=status or known.status,
            status_reason=rules.clipped(reason),
            adapter_detail=detail,
            observed_version=version,
            evidence=evidence,
        )
        self._lease.note(await self._lease.report(MEMBER_REPORT, report, member_id=member.member_id))
        reported = await self._moved(known) if rules.moves(self.kind, known, report) else rules.reported(known, report)
        self._members[member.member_id] = reported
        if target := self._targets.get(member.member_id):
            self._targets[member.member_id] = rules.with_outcome(self._lease.record, target, reported)
        return reported

    async def publish_access(self, bundle: AccessBundle) -> None:
        """Write how people reach the app; replaces what was published before."""
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

    async def machine(self, member: Member) -> Machine:
        """The member's host, as root; good for the operation's life."""
        return await self._machines.machine(member.allocation_id, member.address)

    async def secret(
        self, purpose: SecretPurpose, name: str, value: str | None = None, *, ttl_s: int = SECRET_TTL_S
    ) -> str:
        """A secret the platform keeps for the instance: `value`, or one it makes. While it is valid, every operation
        that asks for the same purpose and name gets the same one."""
        return await deliveries.secret(self._lease, purpose, name, value or "", ttl_s)

    async def credential(self, credential_id: str) -> tuple[Credential, str]:
        """A customer's private key for hosts that know no other, and what is known of it. People name the credential
        in an input of the app; the key stays in memory and is asked for anew by every operation."""
        return await deliveries.credential(self._lease, credential_id)

    async def artifact(self, name: str) -> Delivery:
        """A token of minutes for an artifact of the manifest, of the version the operation leads to: GET `url` with
        `token` as bearer, on the machine that needs it, and compare the content's digest with `digest`."""
        return await deliveries.artifact(self._lease, await self._artifact(name))

    async def place(self, name: str, member: Member, *, mode: FileMode = "0644") -> str:
        """Put an artifact of the manifest, of the version the operation leads to, on the member's machine; the path it
        has there. Root owns the file, its digest is as published, and it goes when the allocation is released."""
        with recorded(member.node_name, self._steps.add_line, "place", name, mode) as entry:
            artifact = await self._artifact(name)
            await self.say(f"{member.node_name} fetches {name}: {artifact.size_bytes:,} bytes")
            placement = await placements.place(self._lease, artifact, member.allocation_id, mode)
            entry.end(0, placement.path.encode())
            return placement.path

    async def until_deadline(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat what ends as `Temporary`; past the operation's deadline it counts as `Permanent`."""
        return await self._steps.until_deadline(attempt)

    async def turn_back(self) -> None:
        """From doing to undoing; called by the kit when somebody cancelled and the handler has stopped."""
        self.backs_out = True
        await self._steps.turn_back()

    async def close(self) -> None:
        await self._machines.close()

    async def _artifact(self, name: str) -> Artifact:
        version = "" if self.backs_out else self.to_version
        return await deliveries.named_artifact(self._lease, self.instance, name, version)

    def _known(self, member_ids: Iterable[str]) -> tuple[Member, ...]:
        return tuple(self._members[member_id] for member_id in member_ids if member_id in self._members)

    async def _moved(self, member: Member) -> Member:
        """Read a member that was moved to another machine: only the platform knows its new address."""
        return await self._lease.call(MEMBER_GET, instance_id=member.instance_id, member_id=member.member_id)

    async def _in_turn(
        self, turns: asyncio.Semaphore, member: Member, function: Callable[[Member], Awaitable[None]]
    ) -> Permanent | None:
        async with turns:
            if self.skips(member):
                return None
            try:
                await self.until_deadline(lambda: function(member))
            except Conflict:
                await self._read_skipped()
                if not self.skips(member):
                    raise
            except Permanent as error:
                await self._report_failed(member, error)
                return error
            return None

    async def _report_failed(self, member: Member, error: Permanent) -> None:
        known = self._members.get(member.member_id, member)
        if known.status not in GONE_MEMBER:
            detail = None if known.adapter_detail else {"error": rules.clipped(str(error))}
            await self.report(member, status="failed", reason=str(error), detail=detail)
        if self.stop_after_failures:
            await self._read_skipped()

    async def _read_skipped(self) -> None:
        """Learn which members the stop rule skipped; receipts do not contain that."""
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
            raise deliveries.refused(f"No access to the machine of allocation {allocation_id}", error) from error
