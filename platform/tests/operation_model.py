"""A small reference model of instance, members and operations, for the lifecycle tests.

Its tables are written from the design, not imported from the platform: where the two disagree, one of them is wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


def _table(text: str) -> dict[str, frozenset[str]]:
    """A line per row: a word, then the words that belong to it."""
    return {words[0]: frozenset(words[1:]) for words in map(str.split, text.strip().splitlines())}


MEMBER_MOVES = _table("""
    requested     provisioning removing removed degraded failed tombstoned
    provisioning  requested joining removing degraded failed tombstoned
    joining       ready removing degraded failed tombstoned
    ready         degraded draining drained removing failed tombstoned
    degraded      ready draining drained removing failed tombstoned
    draining      drained ready degraded removing failed tombstoned
    drained       ready degraded removing failed tombstoned
    removing      removed provisioning failed tombstoned
    failed        provisioning joining ready degraded drained removing removed tombstoned
    removed
    tombstoned
""")
OPERATION_MOVES = _table("""
    accepted    running cancelling succeeded failed cancelled
    running     cancelling succeeded failed cancelled
    cancelling  succeeded failed cancelled
    failed      accepted succeeded cancelled
    succeeded
    cancelled
""")
INSTANCE_MOVES = _table("""
    requested     deploying running degraded failed deleting
    deploying     requested running degraded failed
    running       degraded stopping starting upgrading rolling_back reconfiguring deleting
    degraded      running stopping starting upgrading rolling_back reconfiguring deleting
    stopping      stopped running degraded failed
    stopped       starting deleting
    starting      running degraded stopped failed
    upgrading     running degraded
    rolling_back  running degraded
    reconfiguring running degraded
    failed        deploying running degraded stopping stopped starting deleting deleted
    deleting      deleted failed requested running degraded stopped
    deleted
""")
GOAL = _table("""
    deploy        ready
    add           ready
    upgrade       ready
    rollback      ready
    reconfigure   ready
    start         ready
    restart       ready
    resume        ready
    replace       ready
    repair        ready
    stop          drained
    drain         drained
    remove        removed tombstoned
    decommission  removed tombstoned
""")
UNDONE = _table("""
    deploy    removed tombstoned
    add       removed tombstoned
    upgrade   ready
    rollback  ready
    reconfigure ready
    restart   ready
    stop      ready
    drain     ready
    start     drained
    resume    draining drained
    remove    ready degraded draining drained
    replace   ready removed tombstoned
    repair    ready degraded failed draining drained
""")
MEMBER_START = _table("""
    drain    ready degraded draining drained
    resume   ready degraded draining drained
    remove   requested provisioning joining ready degraded draining drained removing failed
    replace  ready degraded draining drained removing failed
    repair   ready degraded draining drained failed
""")
INSTANCE_START = _table("""
    stop          running degraded failed
    start         stopped failed
    restart       running degraded
    upgrade       running degraded
    rollback      running degraded
    reconfigure   running degraded
    decommission  requested deploying running degraded stopping stopped starting upgrading rolling_back reconfiguring \
failed deleting
""")
WHILE = {
    "deploy": "deploying",
    "stop": "stopping",
    "start": "starting",
    "restart": "starting",
    "upgrade": "upgrading",
    "rollback": "rolling_back",
    "reconfigure": "reconfiguring",
    "decommission": "deleting",
}
SURVIVED = frozenset({"upgrade", "rollback", "reconfigure"})
"""When these fail, the instance continues as it was."""
GONE = frozenset({"removed", "tombstoned"})
UNFINISHED = frozenset({"requested", "provisioning", "joining", "removing"})
BY_ITSELF = frozenset({"ready", "degraded", "draining", "drained", "failed"})
OPEN = frozenset({"accepted", "running", "cancelling"})
ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass
class Member:
    role: str
    machine: str
    status: str = "requested"
    was_ready: bool = False
    last_operation: str = ""

    @property
    def is_live(self) -> bool:
        return self.status not in GONE


@dataclass
class Operation:
    kind: str
    outcomes: dict[str, str]
    deadline_at: float
    machines: Mapping[str, str] = field(default_factory=dict)
    """`replace`: where each member moves to."""
    moved: set[str] = field(default_factory=set)
    status: str = "accepted"
    attempts: int = 0
    epoch: int = 0
    lease_until: float | None = None
    compensating: bool = False
    refused: bool = False
    before: dict[str, str] = field(default_factory=dict)
    """The status of each target when the operation was requested or retried."""

    @property
    def is_whole(self) -> bool:
        return self.kind in WHILE

    @property
    def backs_out(self) -> bool:
        return self.compensating or self.status == "cancelling"

    def waits(self, now: float) -> bool:
        return self.status in OPEN and (self.lease_until is None or self.lease_until <= now) and now < self.deadline_at


@dataclass
class Model:
    deadline_s: float
    members: dict[str, Member] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    baseline: str = "new"
    last_succeeded: bool = True
    version: str = "old"
    was_upgraded: bool = False

    def status(self) -> str:
        """Of the instance."""
        for operation in self.open_operations().values():
            if operation.is_whole and (operation.kind, operation.status) != ("deploy", "accepted"):
                return WHILE[operation.kind]
        if self.baseline != "up":
            return {"new": "requested"}.get(self.baseline, self.baseline)
        unsound = any(member.status in ("degraded", "failed") for member in self.members.values())
        return "degraded" if unsound or not self.last_succeeded else "running"

    def open_operations(self) -> dict[str, Operation]:
        return {name: operation for name, operation in self.operations.items() if operation.status in OPEN}

    def live(self, role: str = "") -> list[str]:
        return [
            name for name, member in self.members.items() if member.is_live and member.role in (role or member.role,)
        ]

    def may_operate(self, kind: str, names: Iterable[str], machines: Iterable[str]) -> bool:
        names, hands = list(names), self.live("hand")
        if self.status() not in ("running", "degraded") or not set(names) <= set(hands):
            return False
        if any(self.members[name].status not in MEMBER_START[kind] for name in names):
            return False
        if kind == "remove" and not self._leaves_one(names):
            return False
        if any(
            operation.is_whole or set(names) & set(operation.outcomes) for operation in self.open_operations().values()
        ):
            return False
        return self._are_free(machines)

    def may_change(self, verb: str) -> bool:
        if self.status() not in INSTANCE_START[verb] or self.open_operations():
            return False
        return {"upgrade": self.version == "old", "rollback": self.was_upgraded}.get(verb, True)

    def accept(
        self, name: str, kind: str, targets: Iterable[str], now: float, machines: Mapping[str, str] | None = None
    ) -> None:
        outcomes = dict.fromkeys(targets, "pending")
        before = {target: self.members[target].status for target in outcomes}
        self.operations[name] = Operation(kind, outcomes, now + self.deadline_s, machines or {}, before=before)
        for target in outcomes:
            self.members[target].last_operation = name

    def next_claims(self, now: float) -> set[str]:
        """What the next claim may get: the oldest new one or the one whose lease expired first, if that is older."""
        waiting = {name: operation.lease_until for name, operation in self.operations.items() if operation.waits(now)}
        lapsed = {name: until for name, until in waiting.items() if until is not None}
        oldest = sorted(set(waiting) - set(lapsed))[:1]
        first = [name for name, until in lapsed.items() if until == min(lapsed.values())]
        return {min([name, *oldest]) for name in first or oldest}

    def claim(self, name: str, now: float, lease_s: float) -> None:
        operation = self.operations[name]
        assert operation.waits(now)
        if operation.status == "accepted":
            self._move(operation, "running")
        operation.epoch, operation.attempts = operation.epoch + 1, operation.attempts + 1
        operation.lease_until = now + lease_s

    def holds(self, name: str, epoch: int) -> bool:
        operation = self.operations[name]
        is_held = operation.status in ("running", "cancelling") and operation.lease_until is not None
        return is_held and epoch == operation.epoch

    def may_report(self, name: str, epoch: int, target: str, status: str, *, idle: bool) -> bool:
        operation, member = self.operations[name], self.members[target]
        if not self.holds(name, epoch) or target not in operation.outcomes:
            return False
        if status == member.status:
            return True
        if status not in MEMBER_MOVES[member.status]:
            return False
        moves_on = operation.kind == "replace" and not operation.compensating
        if (member.status, status) == ("removing", "provisioning") and not moves_on:
            return False
        if member.was_ready and status == "tombstoned":
            return False
        takes_away = member.was_ready and status in ("removing", "removed") and member.status != "removing"
        return idle or not takes_away

    def report(self, name: str, target: str, status: str) -> None:
        operation, member = self.operations[name], self.members[target]
        if (member.status, status) == ("removing", "provisioning"):
            member.machine, member.was_ready = operation.machines[target], False
            operation.moved.add(target)
        self._set(member, status)
        if self._is_at_goal(operation, target):
            operation.outcomes[target] = "succeeded"
        elif status == "failed":
            operation.outcomes[target] = "failed"
        elif operation.outcomes[target] in ("failed", "refused"):
            operation.outcomes[target] = "pending"

    def completed(self, name: str, *, undone: bool) -> str:
        """What an operation ends as when its holder completes it now; empty when that is refused."""
        operation = self.operations[name]
        outcomes = self._outcomes(operation, undone)
        if "" in outcomes.values():
            return ""
        if operation.compensating or (operation.backs_out and set(outcomes.values()) - {"succeeded"}):
            return "cancelled"
        # A member that people gave up counts no more.
        return "failed" if set(outcomes.values()) - {"succeeded", "cancelled"} else "succeeded"

    def complete(self, name: str, *, undone: bool) -> None:
        operation, status = self.operations[name], self.completed(name, undone=undone)
        operation.outcomes = self._outcomes(operation, undone)
        self.end(name, status)

    def end(self, name: str, status: str, *, refused: bool = False) -> None:
        operation = self.operations[name]
        operation.refused = refused and not operation.backs_out
        self._move(operation, status)
        operation.lease_until = None
        for target, outcome in operation.outcomes.items():
            member = self.members[target]
            if outcome == "pending":
                outcome = "refused" if operation.refused else "cancelled" if status == "cancelled" else "failed"
                operation.outcomes[target] = outcome
            if outcome == "refused":
                self._restore(member, operation.before[target])
            if outcome == "failed" and member.status in UNFINISHED:
                self._set(member, "failed")
            if outcome == "cancelled" and member.status == "requested":
                self._set(member, "removed")
        if operation.is_whole:
            self._leave(operation)

    def expire(self, now: float) -> None:
        for name, operation in self.open_operations().items():
            if operation.deadline_at <= now:
                operation.epoch += 1
                self.end(name, "failed")

    def exits(self, name: str) -> set[str]:
        operation = self.operations[name]
        concerned = set(operation.outcomes) | set(self.live() if operation.is_whole else ())
        left = [target for target in concerned if self.members[target].is_live]
        passed_over = any(self.members[target].last_operation != name for target in left)
        if operation.is_whole or operation.kind == "replace":
            passed_over = passed_over and self._is_superseded(name)
        names = set()
        if operation.status in ("accepted", "running") and not operation.compensating:
            names |= {"cancel"} if operation.attempts == 0 or operation.kind in UNDONE else set()
        if operation.status == "failed" and left and not passed_over:
            unfinished = {target for target, outcome in operation.outcomes.items() if outcome != "succeeded"}
            if operation.is_whole or not unfinished or unfinished & set(left):
                names |= {"retry", "force_complete"}
            names |= {"compensate"} if operation.kind in UNDONE and not operation.refused else set()
            names |= {"tombstone"} if not operation.refused or operation.kind in ("deploy", "add") else set()
        return names | ({"force_complete"} if operation.status in OPEN else set())

    def _is_superseded(self, name: str) -> bool:
        """A repair supersedes nothing."""
        later = list(self.operations)[list(self.operations).index(name) + 1 :]
        return any(self.operations[other].kind != "repair" for other in later)

    def may_leave(self, name: str, exit_name: str) -> bool:
        """An exit that is offered is refused only where a machine it needs is taken by now, where no hand would stay,
        or while a repair works on a member of an operation on the whole instance."""
        operation = self.operations[name]
        if operation.is_whole and operation.status == "failed" and self.open_operations():
            return False
        again = [target for target in operation.outcomes if self._is_open(operation, target, undoing=False)]
        if exit_name == "retry" and operation.kind == "remove" and not self._leaves_one(again):
            return False
        wanted = [
            machine
            for target, machine in operation.machines.items()
            if self._is_open(operation, target, undoing=False) and target not in operation.moved
        ]
        return exit_name in self.exits(name) and (exit_name != "retry" or self._are_free(wanted))

    def leave(self, name: str, exit_name: str, now: float) -> None:
        operation = self.operations[name]
        if exit_name in ("retry", "compensate"):
            undoing = operation.compensating = exit_name == "compensate"
            self._move(operation, "accepted")
            operation.deadline_at = now + self.deadline_s
            again = [target for target in operation.outcomes if self._is_open(operation, target, undoing=undoing)]
            operation.refused = False
            for target in {*operation.outcomes, *(self.live() if operation.is_whole else ())}:
                self.members[target].last_operation = name
            if not undoing:
                lost = [target for target in operation.outcomes if not self.members[target].is_live]
                given_up = [target for target in lost if operation.outcomes[target] != "succeeded"]
                operation.outcomes |= dict.fromkeys(given_up, "cancelled")
                operation.before |= {target: self.members[target].status for target in again}
            operation.outcomes |= dict.fromkeys(again, "pending")
        elif exit_name == "tombstone":
            for target, outcome in operation.outcomes.items():
                if outcome == "failed" and self.members[target].is_live:
                    self._set(self.members[target], "tombstoned")
            if "tombstoned" in GOAL[operation.kind] and not any(
                self.members[target].is_live for target in operation.outcomes
            ):
                operation.outcomes = dict.fromkeys(operation.outcomes, "succeeded")
                self.end(name, "succeeded")
        elif exit_name == "force_complete":
            self._force(name)
        elif operation.attempts == 0:
            operation.epoch += 1
            self.end(name, "cancelled")
        else:
            self._move(operation, "cancelling")

    def may_observe(self, target: str, status: str) -> bool:
        member = self.members[target]
        if any(target in operation.outcomes for operation in self.open_operations().values()):
            return False
        both = {member.status, status} <= BY_ITSELF and status in MEMBER_MOVES[member.status]
        return both or member.status == status

    def observe(self, target: str, status: str) -> None:
        self._set(self.members[target], status)

    def _leaves_one(self, removed: Iterable[str]) -> bool:
        """All removals together leave a hand."""
        removals = [removal for removal in self.open_operations().values() if removal.kind == "remove"]
        return bool(set(self.live("hand")) - set(removed) - {name for removal in removals for name in removal.outcomes})

    def _are_free(self, machines: Iterable[str]) -> bool:
        """One hand per machine, those on their way there included."""
        taken = {self.members[name].machine for name in self.live("hand")}
        for operation in self.open_operations().values():
            pending = [target for target, outcome in operation.outcomes.items() if outcome == "pending"]
            taken |= {operation.machines[target] for target in pending if target in operation.machines}
        return taken.isdisjoint(machines)

    def _is_open(self, operation: Operation, target: str, *, undoing: bool) -> bool:
        """Whether a reopened operation has to do with it. A member that was repaired since is done again."""
        member = self.members[target]
        repaired = self.operations.get(member.last_operation) is not operation
        return member.is_live and (undoing or repaired or operation.outcomes[target] != "succeeded")

    def _is_at_goal(self, operation: Operation, target: str) -> bool:
        arrived = operation.kind != "replace" or self.members[target].machine == operation.machines[target]
        return arrived and self.members[target].status in self._goal(operation, target)

    def _goal(self, operation: Operation, target: str) -> frozenset[str]:
        # These do not give work to a member that someone drained. One that is repaired may have been drained before it
        # failed.
        keeps = operation.kind in ("restart", *SURVIVED) and self._was_drained(operation, target)
        drained = {"drained"} if keeps or operation.kind == "repair" else set()
        return GOAL[operation.kind] | drained | self._kept(operation, target)

    def _was_drained(self, operation: Operation, target: str) -> bool:
        return operation.before[target] in ("draining", "drained")

    def _kept(self, operation: Operation, target: str) -> frozenset[str]:
        """A change of inputs may leave a member unwell that was unwell before."""
        unwell = frozenset({"degraded", "draining", "drained", "failed"}) & {operation.before[target]}
        return unwell if operation.kind == "reconfigure" else frozenset()

    def _outcomes(self, operation: Operation, undone: bool) -> dict[str, str]:
        return {target: self._outcome(operation, target, says_undone=undone) for target in operation.outcomes}

    def _outcome(self, operation: Operation, target: str, *, says_undone: bool) -> str:
        """Empty: neither done nor failed nor undone."""
        status, undone = self.members[target].status, UNDONE.get(operation.kind, frozenset())
        # Ready before and ready after: the holder reports which it was.
        looks_undone = status in undone | self._kept(operation, target)
        turned_back = says_undone and operation.status == "cancelling" and looks_undone
        turned_back = turned_back and operation.kind != "replace"
        if self._is_at_goal(operation, target) and not operation.compensating and not turned_back:
            return "succeeded"
        if operation.backs_out and (status in undone | GONE or self._is_as_before(operation, target)):
            return "cancelled"
        if operation.outcomes[target] == "refused":
            return "refused"
        if operation.backs_out:
            return ""
        if operation.outcomes[target] == "cancelled":
            return "cancelled"
        return "failed" if status in GONE | {"failed"} else ""

    def _is_as_before(self, operation: Operation, target: str) -> bool:
        """An undo may leave a member as it was, except one that only failed to join. A replaced member that was not
        moved did not."""
        status = self.members[target].status
        may_stay = status in ("requested", "ready", "degraded", "draining", "drained")
        failed_to_join = operation.kind in ("deploy", "add") or target in operation.moved
        may_stay = may_stay or (status == "failed" and not failed_to_join)
        return status == operation.before[target] and may_stay

    def _restore(self, member: Member, before: str) -> None:
        """A refusal changed nothing, so the member is what it was; where it cannot return to that, it failed."""
        if before == member.status or before in MEMBER_MOVES[member.status]:
            self._set(member, before)
        elif member.status in UNFINISHED:
            self._set(member, "failed")

    def _force(self, name: str) -> None:
        operation = self.operations[name]
        for target, outcome in operation.outcomes.items():
            member = self.members[target]
            goal = UNDONE[operation.kind] if operation.compensating else self._goal(operation, target)
            if outcome == "succeeded" or member.status in goal | GONE:
                continue
            if "tombstoned" in goal:
                self._set(member, "tombstoned")
            elif member.status == "removing":
                self._set(member, "failed")
            elif (
                "drained" in goal
                and member.status in ("ready", "degraded", "draining")
                and (operation.kind != "repair" or self._was_drained(operation, target))
            ):
                self._set(member, "drained")
            else:
                self._set(member, "degraded")
        status = "cancelled" if operation.compensating else "succeeded"
        operation.outcomes = dict.fromkeys(operation.outcomes, status)
        operation.epoch += 1
        self.end(name, status)

    def _leave(self, operation: Operation) -> None:
        """How an operation on the whole instance leaves it. A refusal leaves it as it was."""
        if operation.refused:
            self.last_succeeded = self.last_succeeded and operation.kind != "deploy"
            return
        self.last_succeeded = operation.status != "failed" and (operation.kind, operation.status) != (
            "deploy",
            "cancelled",
        )
        if operation.status == "succeeded":
            self.baseline = {"stop": "stopped", "decommission": "deleted"}.get(operation.kind, "up")
            if operation.kind in ("upgrade", "rollback"):
                self.was_upgraded = operation.kind == "upgrade"
                self.version = "new" if self.was_upgraded else "old"
        elif operation.kind == "deploy" or (operation.status == "failed" and operation.kind not in SURVIVED):
            self.baseline = "failed"

    def _move(self, operation: Operation, status: str) -> None:
        assert status in OPERATION_MOVES[operation.status], (operation.status, status)
        operation.status = status

    def _set(self, member: Member, status: str) -> None:
        assert status == member.status or status in MEMBER_MOVES[member.status], (member.status, status)
        member.status, member.was_ready = status, member.was_ready or status in ("ready", "degraded")
