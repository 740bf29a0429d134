"""The stored instances, members, operations and holds of the fake platform. `runtime` changes operations."""

import datetime
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.errors import NotFound
from gpuaas_contract.holds import Hold, HoldKind
from gpuaas_contract.instances import AccessBundle, Condition, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION, GONE_MEMBER, SERVING_MEMBER
from gpuaas_contract.operations import INSTANCE_KINDS, LogLine, Operation, OperationKind, Progress
from gpuaas_contract.posix import PosixPerson
from gpuaas_contract.protocol import log, status
from gpuaas_contract.protocol.log import LogState
from gpuaas_contract.protocol.steward import Shape
from gpuaas_contract.runtime import ReportedLogLine
from msgspec.structs import replace

from gpuaas_sdk.testing.platform import rows

Clock = Callable[[], datetime.datetime]


class Records:
    """All stored rows by their id. The methods also update revisions, progress and the instance's status."""

    def __init__(self, project_id: str, clock: Clock) -> None:
        self.project_id = project_id
        self.clock = clock
        self.instances: dict[str, Instance] = {}
        self.members: dict[str, Member] = {}
        self.operations: dict[str, Operation] = {}
        self.holds: dict[str, Hold] = {}
        self.access_bundles: dict[str, AccessBundle] = {}
        self.logs: dict[str, list[LogLine]] = {}
        """Lines of the controller's log, by operation id."""
        self._log_states: dict[str, LogState] = {}
        self.people: list[PosixPerson] = []
        """The people of the project; a test adds them."""
        self.manifests: dict[str, Manifest] = {}
        """The manifest of each version of the app."""
        self.spares: dict[str, Shape] = {}
        """Node name -> shape of the machines of the project that no instance uses; see `FakePlatform.add_spare`."""
        self.lost: set[str] = set()
        """Names of nodes without heartbeats; see `FakePlatform.lose`."""
        self._numbers = itertools.count(1)

    def people_digest(self) -> str:
        """Return a digest of the list of people."""
        return hashlib.sha256(msgspec.json.encode(self.people)).hexdigest()

    def add_instance(self, app_slug: str, name: str, topology: str, inputs: dict[str, Any]) -> Instance:
        """Store a new instance without members."""
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
        """Store a new member of the instance."""
        member = rows.member(self.new_id("mem"), instance, component_key, node_name, now=self.clock())
        self.members[member.member_id] = member
        return member

    def add_hold(self, member: Member, kind: HoldKind, reason: str, ttl_s: float) -> Hold:
        """Store a hold on the member."""
        hold = rows.hold(self.new_id("hold"), member, kind, reason, ttl_s, now=self.clock())
        self.holds[hold.hold_id] = hold
        return hold

    def add_operation(self, instance: Instance, kind: OperationKind, request: rows.OperationRequest) -> Operation:
        """Store an accepted operation, and record it as the last operation of its targets."""
        operation = rows.operation(self.new_id("op"), instance, kind, request, now=self.clock())
        self.operations[operation.operation_id] = operation
        for target in operation.targets:
            self.take(self.members[target.member_id], operation)
        self.update_status(self.instances[instance.instance_id])
        return operation

    def take(self, member: Member, operation: Operation) -> None:
        """Record the operation as the last one of the member."""
        self.members[member.member_id] = replace(member, last_operation_id=operation.operation_id)

    def has_later(self, operation: Operation, without: Collection[str]) -> bool:
        """Return whether the instance has had a later operation of another kind than these."""
        later = list(self.operations)[list(self.operations).index(operation.operation_id) + 1 :]
        return any(
            other.instance_id == operation.instance_id and other.kind not in without
            for other in (self.operations[operation_id] for operation_id in later)
        )

    def add_log(self, operation: Operation, reported: Sequence[ReportedLogLine]) -> None:
        """Store new lines of the controller's log about the operation, up to its bounds."""
        present = self._log_states.get(operation.operation_id, LogState())
        state, lines = log.stored(present, operation.operation_id, operation.epoch, reported)
        self._log_states[operation.operation_id] = state
        self.logs.setdefault(operation.operation_id, []).extend(lines)

    def make_ready(self, instance: Instance) -> Instance:
        """Change the instance and its members to the state after a deploy."""
        for member in self.live_members(instance.instance_id):
            self.members[member.member_id] = replace(member, status="ready", was_ready=True)
        return self.update_status(replace(instance, baseline="up"))

    def instance(self, instance_id: str) -> Instance:
        """Return the instance, or raise `NotFound`."""
        if instance_id not in self.instances:
            raise NotFound()
        return self.instances[instance_id]

    def member(self, instance_id: str, member_id: str) -> Member:
        """Return the member of this instance, or raise `NotFound`."""
        member = self.members.get(member_id)
        if member is None or member.instance_id != instance_id:
            raise NotFound()
        return member

    def operation(self, operation_id: str) -> Operation:
        """Return the operation, or raise `NotFound`."""
        if operation_id not in self.operations:
            raise NotFound()
        return self.operations[operation_id]

    def live_members(self, instance_id: str) -> list[Member]:
        """Return the members that are neither removed nor tombstoned."""
        members = [member for member in self.members.values() if member.instance_id == instance_id]
        return [member for member in members if member.status not in GONE_MEMBER]

    def open_operations(self, instance_id: str) -> list[Operation]:
        """Return the operations of the instance that have not ended."""
        operations = [operation for operation in self.operations.values() if operation.instance_id == instance_id]
        return [operation for operation in operations if operation.status not in ENDED_OPERATION]

    def active_holds(self, instance_id: str) -> list[Hold]:
        """Return the holds on members of the instance that have not expired."""
        now = self.clock()
        return [hold for hold in self.holds.values() if hold.instance_id == instance_id and hold.expires_at > now]

    def check_machine(self, instance_id: str, allocation_id: str, more: Iterable[str] = ()) -> None:
        """Raise `NotFound` unless the allocation belongs to the instance, or is one of `more`."""
        used = {member.allocation_id for member in self.live_members(instance_id)} | set(more)
        if allocation_id not in used:
            raise NotFound(f"There is no allocation {allocation_id} in this project.")

    def change_member(self, member: Member, **changes: Any) -> Member:
        """Store the member with these changes and the next revision."""
        changed = replace(member, **changes)
        changed = replace(
            changed,
            was_ready=changed.was_ready or changed.status in SERVING_MEMBER,
            revision=member.revision + 1,
            updated_at=self.clock(),
        )
        self.members[member.member_id] = changed
        return changed

    def change_operation(self, operation: Operation, **changes: Any) -> Operation:
        """Store the operation with these changes, its progress and the next revision."""
        changed = replace(operation, revision=operation.revision + 1, **changes)
        done = sum(target.outcome != "pending" for target in changed.targets)
        changed = replace(changed, progress=Progress(done=done, total=len(changed.targets)))
        self.operations[operation.operation_id] = changed
        return changed

    def update_status(self, instance: Instance, conditions: list[Condition] | None = None) -> Instance:
        """Derive the instance's status from its members, conditions and operations. Store it only if it changed."""
        present = self.instances[instance.instance_id]
        merged = status.merged(instance.conditions, conditions or [])
        members: Counter[str] = Counter(member.status for member in self.live_members(instance.instance_id))
        updated = replace(instance, conditions=merged)
        updated = replace(
            updated, status=status.instance_status(updated, self._active_kind(instance.instance_id), members, merged)
        )
        updated = replace(updated, status_reason=status.status_reason(updated, updated.status, members))
        if updated != present:
            updated = replace(updated, revision=present.revision + 1, updated_at=self.clock())
            self.instances[instance.instance_id] = updated
        return updated

    def new_id(self, kind: str) -> str:
        """Return an id that no other row has."""
        return f"{kind}_{next(self._numbers):04d}"

    def _active_kind(self, instance_id: str) -> OperationKind | None:
        """Return the kind of the open operation on the whole instance. A deploy counts only after it was claimed."""
        for operation in self.open_operations(instance_id):
            if operation.kind in INSTANCE_KINDS and (operation.kind != "deploy" or operation.status != "accepted"):
                return operation.kind
        return None
