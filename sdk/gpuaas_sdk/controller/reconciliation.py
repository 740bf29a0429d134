"""One look at one instance between operations, passed to the health handler: what it reads, reports and requests.

`health` creates it. What is kept from one look to the next is in `Watch`."""

import datetime
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog
from gpuaas_contract import stewardships as contract
from gpuaas_contract.access import MACHINE_ACCESS, MachineAccess, RequestMachineAccess
from gpuaas_contract.catalog import StewardVerb
from gpuaas_contract.endpoint import Answer, Endpoint, RequestBody
from gpuaas_contract.errors import (
    ApiError,
    CircuitOpen,
    Conflict,
    DisruptionBudget,
    LeaseLost,
    MemberHeld,
    NoSpare,
    OperationInProgress,
    StewardBudgetUsed,
)
from gpuaas_contract.instances import MEMBER_LIST, Command, Connection, Instance, Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import OPERATION_GET, Operation, OperationKind
from gpuaas_contract.posix import PosixPerson
from gpuaas_contract.runtime import (
    RUNTIME_REPORT,
    ObservedMember,
    PublishAccess,
    RefusedObservation,
    ReportedCondition,
    ReportRuntime,
)
from gpuaas_contract.usage import USAGE_REPORT, ReportedUsage, ReportUsage, UsageReceipt

from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import inputs, rest, rules
from gpuaas_sdk.controller.gauges import Gauge, Gauges
from gpuaas_sdk.controller.inputs import Forms, Inputs
from gpuaas_sdk.controller.observers import ObserverMachines
from gpuaas_sdk.controller.operation.machines import Connect
from gpuaas_sdk.controller.samples import Samples
from gpuaas_sdk.controller.self_report import NotedFailure
from gpuaas_sdk.controller.stewardships import Stewardships
from gpuaas_sdk.machine import Machine, MachineUnreachable

log = structlog.get_logger()

# Between the look and the request, a member may begin to leave, or a person may forbid what was allowed: `Conflict`.
_REFUSALS = (Conflict, OperationInProgress, StewardBudgetUsed, DisruptionBudget, CircuitOpen, MemberHeld, NoSpare)
"""Answers to a request of a steward that are no error: the operation is not possible now."""
_PASSING = (Conflict, OperationInProgress)
"""Refusals that belong to normal work. The others wait for a person or for time, so the controller shows them."""


ReadPeople = Callable[[], Awaitable[tuple[PosixPerson, ...]]]


@dataclass(frozen=True)
class Requested:
    """The answer to a request for an operation. Exactly one of the two is set.

    requested = await now.request("repair", [member], reason="the daemon has stopped")
    if requested.refusal:
        ...  # the next look tries it again"""

    operation: Operation | None = None
    refusal: ApiError | None = None
    """Why the operation is not possible now: another one runs, a hold, a budget or the breaker does not allow it."""


@dataclass
class Watch:
    """What this process keeps about one instance between two looks."""

    instance: Instance | None = None
    """The instance, with the defaults of the deploy form in its inputs."""
    members: dict[str, Member] = field(default_factory=dict)
    is_stale: bool = True
    """True: read the instance and its members again before the next look."""
    reported: bytes = b""
    """The last accepted report."""
    published: bytes = b""
    """The last accepted access bundle."""
    refusals: dict[tuple[str, ...], StewardBudgetUsed] = field(default_factory=dict)
    """Requests for which the budget is used, by kind and members."""
    machines: ObserverMachines | None = None
    """The connections to machines of the instance."""
    samples: Samples | None = None
    """The programs that run on these machines."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What the health handler keeps."""

    async def close(self) -> None:
        """End the programs and close the connections."""
        if self.samples is not None:
            await self.samples.close()
        if self.machines is not None:
            await self.machines.close()


class Reconciliation:
    """One look at one instance, passed to the health handler. Machines can be read here, not changed.

    @app.health(every_s=10)
    async def look(now: Reconciliation) -> None:
        down = [member.node_name for member in now.members if member.status != "ready"]
        status: Literal["true", "false"] = "false" if down else "true"
        await now.report([ReportedCondition(type="Serving", status=status, message=", ".join(down))])"""

    def __init__(
        self,
        client: Client,
        stewardships: Stewardships,
        name: str,
        instance: Instance,
        watch: Watch,
        *,
        connect: Connect,
        wake: Callable[[], None],
        people: ReadPeople,
        gauges: Gauges | None = None,
        forms: Forms = Forms(),  # noqa: B008 - frozen
        failed: Callable[[NotedFailure], None] = lambda _: None,
    ) -> None:
        """The inputs of `instance` have the defaults of `forms`. `wake` causes another look. Without `gauges`, this
        process serves no metrics. `failed` gets what people should see, also if the handler catches it."""
        self.instance = instance
        """The instance as it was at the beginning of the look, or as the last report returned it."""
        self._forms = forms
        self._client = client
        self._stewardships = stewardships
        self._name = name
        self._watch = watch
        self._connect = connect
        self._wake = wake
        self._people = people
        self._gauges = gauges
        self._failed = failed
        self._changed: set[str] = set()
        """Members that changed during this look, so that what it saw of them is no reason for a request."""

    @property
    def measures(self) -> bool:
        """Whether this process serves metrics. If not, a handler need not read what only `measured` takes."""
        return self._gauges is not None

    def measured(self, values: Iterable[Gauge]) -> None:
        """Replace what this process shows about the instance on its page `/metrics`, with the time of now.

        Each value gets the labels `instance_id` and `instance_name`. What is not known is left out.

            now.measured([Gauge("gpuaas_queue_length", "Jobs that wait.", 3)])"""
        if self._gauges is not None:
            self._gauges.set(self.instance.instance_id, self.instance.name, values)

    @property
    def members(self) -> tuple[Member, ...]:
        """Every live member, as last read or returned by a report."""
        return tuple(self._watch.members.values())

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the instance, with the defaults of the deploy form for fields without a chosen value."""
        return self.instance.inputs

    def inputs_as(self, kind: type[Inputs]) -> Inputs:
        """Return the inputs of the instance as a struct or dataclass of the app.

        settings = now.inputs_as(Settings)"""
        return inputs.converted(self.inputs, kind)

    @property
    def kept(self) -> dict[str, Any]:
        """What the handler keeps from one look at the instance to the next, in memory. It is empty again after another
        process looked after the instance, so it may only save work."""
        return self._watch.kept

    def seen(
        self,
        member: Member,
        status: MemberStatus | None = None,
        *,
        reason: str = "",
        detail: dict[str, Any] | None = None,
        version: str | None = None,
    ) -> ObservedMember:
        """Return an observation of a member for `report`. Without a status, detail or version, it stays."""
        return ObservedMember(
            member_id=member.member_id,
            revision=member.revision,
            status=status or member.status,
            status_reason=rules.clipped(reason),
            adapter_detail=detail,
            observed_version=version,
        )

    async def machine(self, member: Member) -> Machine:
        """Return the member's machine, to read from it. The connection is kept open from look to look.

        Commands run as a user without any rights: what changes the machine is refused there. To change something,
        request an operation. Raises `MachineUnreachable` if the machine does not answer, and `Temporary` while it has
        no user for observers yet."""
        self._watch.machines = self._watch.machines or ObserverMachines(self._connect)
        try:
            return await self._watch.machines.machine(member.allocation_id, member.address, self._grant)
        except LeaseLost:
            raise
        except MachineUnreachable as error:
            self._failed(NotedFailure("machine", "unreachable", str(error)))
            raise
        except ApiError as error:
            raise rules.refused(f"observer access to {member.node_name}", error) from error

    async def report(
        self, conditions: Iterable[ReportedCondition] = (), members: Iterable[ObservedMember] = ()
    ) -> list[RefusedObservation]:
        """Report observations and return those that the platform refused because the member has changed.

        Sends nothing if the platform has stored the same already, or answered the same report before."""
        chosen = rules.news(self.instance, self._watch.members, conditions, members)
        sent = msgspec.json.encode(chosen)
        if not any(chosen) or sent == self._watch.reported:
            return []
        answer = await self._call(
            RUNTIME_REPORT,
            lambda epoch: ReportRuntime(
                holder=self._name,
                observed_revision=self.instance.revision,
                epoch=epoch,
                conditions=chosen[0],
                members=chosen[1],
            ),
        )
        self._note(answer.instance, answer.members)
        for refused in answer.refused:
            log.info("observation.refused", member_id=refused.member_id, code=refused.code, error=refused.message)
            if refused.code in ("stale", "not_found"):
                self._watch.is_stale = True
                self._changed.add(refused.member_id)
        self._watch.reported = sent
        return answer.refused

    async def request(self, kind: StewardVerb, members: Iterable[Member], reason: str) -> Requested:
        """Request an operation on members of one role, such as a repair. `reason` is what was observed.

        A `replace` is for one member whose machine does not answer; the platform chooses the spare. A request that is
        not possible now is no error: see `Requested.refusal`. If the hourly limit is used, the
        platform is not asked again before the next one is possible; nor about a member of which `report` was refused
        because it changed during this look: the next look sees it as it is."""
        chosen = tuple(members)
        if changed := sorted(member.node_name for member in chosen if member.member_id in self._changed):
            return Requested(refusal=Conflict(f"{', '.join(changed)} changed during the look."))
        if (used := self.refusal(kind, chosen)) is not None:
            self._failed(_refused(kind, used))
            return Requested(refusal=used)
        key, member_ids = _key(kind, chosen), [member.member_id for member in chosen]
        try:
            operation = await self._call(
                contract.OPERATION_REQUEST,
                lambda epoch: contract.StewardOperationRequest(
                    epoch=epoch, kind=kind, member_ids=member_ids, reason=rules.clipped_reason(reason)
                ),
            )
        except _REFUSALS as error:
            log.info("request.refused", kind=kind, members=member_ids, code=error.code, error=error.message)
            if isinstance(error, StewardBudgetUsed):
                self._watch.refusals[key] = error
            if not isinstance(error, _PASSING):
                self._failed(_refused(kind, error))
            return Requested(refusal=error)
        log.info("request.accepted", kind=kind, members=member_ids, operation_id=operation.operation_id)
        self._watch.is_stale = True
        return Requested(operation=operation)

    def refusal(self, kind: StewardVerb, members: Iterable[Member]) -> StewardBudgetUsed | None:
        """Return why such a request is not possible before some time, if the platform answered so; None otherwise."""
        used = self._watch.refusals.get(_key(kind, members))
        return used if used is not None and _still_used(used) else None

    async def publish_access(
        self,
        *,
        endpoints: Iterable[Connection] = (),
        paths: dict[str, str] | None = None,
        commands: Iterable[Command] = (),
        notes: Iterable[str] = (),
    ) -> None:
        """Publish how people use the app. Sends nothing if it is the same as this process published last."""
        bundle = PublishAccess(
            epoch=0, endpoints=list(endpoints), paths=paths or {}, commands=list(commands), notes=list(notes)
        )
        content = msgspec.json.encode(bundle)
        if content == self._watch.published:
            return
        await self._call(contract.ACCESS_PUBLISH, lambda epoch: msgspec.structs.replace(bundle, epoch=epoch))
        self._watch.published = content

    async def members_at_rest(self, kinds: Collection[OperationKind]) -> tuple[Member, ...] | None:
        """Return every member, also those that are gone, read now; None if an operation of one of these kinds works on
        one. See `rest`."""
        project_id, instance_id = self.instance.project_id, self.instance.instance_id

        async def members() -> tuple[Member, ...]:
            pages = self._client.pages(MEMBER_LIST, project_id=project_id, instance_id=instance_id)
            return tuple([member async for member in pages])

        async def operation(operation_id: str) -> Operation:
            return await self._client.call(OPERATION_GET, project_id=project_id, operation_id=operation_id)

        return await rest.members_at_rest(members, operation, kinds)

    async def people(self) -> tuple[PosixPerson, ...]:
        """Return everyone who can log in to the project's machines, and everyone who could before. They are read at
        most once per interval, for all instances of this process together, and again after a change of the list, which
        also causes a look at each instance."""
        return await self._people()

    async def report_usage(self, records: Sequence[ReportedUsage]) -> UsageReceipt:
        """Report usage of the instance. A record that is reported again with the same id is counted once."""
        return await self._call(USAGE_REPORT, lambda epoch: ReportUsage(epoch=epoch, records=list(records)))

    async def _call(self, endpoint: Endpoint[RequestBody, Answer], body: Callable[[int], RequestBody]) -> Answer:
        """Call an endpoint of the instance with the epoch of the stewardship."""
        instance_id = self.instance.instance_id
        request = body(self._stewardships.epoch(instance_id))
        try:
            return await self._client.call(
                endpoint, request, project_id=self.instance.project_id, instance_id=instance_id
            )
        except LeaseLost:
            self._stewardships.lose(instance_id)
            raise

    async def sample(self, member: Member, program: str, *argv: str, silent_s: float) -> str:
        """Return the newest line that a Python program on the member's machine printed. The first call starts it.

        The program keeps running from look to look, so that a look costs no command. It prints one line when what it
        observes has changed, which causes a look at once, and repeats the line as a sign of life at least every
        `silent_s`. After the members have changed, the call waits for a line that the program observed since: the
        second from now, because a program observes and prints in turn. Raises what `machine` raises,
        and `Temporary` if the program ended or was silent for longer."""

        async def lines() -> AsyncGenerator[str]:
            machine = await self.machine(member)
            async with aclosing(machine.lines(program, *argv)) as printed:
                async for line in printed:
                    yield line

        self._watch.samples = self._watch.samples or Samples(self._wake)
        return await self._watch.samples.newest(f"{member.allocation_id} {argv}", lines, silent_s=silent_s)

    async def _grant(self, allocation_id: str, public_key: str) -> MachineAccess:
        instance_id = self.instance.instance_id
        request = RequestMachineAccess(
            public_key=public_key, instance_id=instance_id, epoch=self._stewardships.epoch(instance_id)
        )
        return await self._client.call(
            MACHINE_ACCESS, request, project_id=self.instance.project_id, allocation_id=allocation_id
        )

    def _note(self, instance: Instance, members: Iterable[Member]) -> None:
        self.instance = self._watch.instance = self._forms.applied(instance)
        self._watch.members |= {member.member_id: member for member in members}
        held = self._stewardships.get(instance.instance_id)
        if held is not None:
            held.revision = max(held.revision, instance.revision)


Health = Callable[[Reconciliation], Awaitable[None]]
"""The function that looks at an instance between operations: `async def look(now: Reconciliation) -> None`.

@app.health(every_s=10)
async def look_at(now: Reconciliation) -> None:
    ..."""


def _key(kind: StewardVerb, members: Iterable[Member]) -> tuple[str, ...]:
    return (kind, *sorted(member.member_id for member in members))


def _refused(kind: StewardVerb, error: ApiError) -> NotedFailure:
    return NotedFailure("request", error.code, f"{kind}: {error.message}")


def _still_used(used: StewardBudgetUsed) -> bool:
    next_at = used.details.get("next_at", "")
    return not next_at or datetime.datetime.fromisoformat(next_at) > datetime.datetime.now(datetime.UTC)
