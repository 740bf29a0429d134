"""Lifecycles under a storm of legal and illegal requests: the platform does what the reference model does, no more.

A step is one request (or one turn of the clock); after each the store is compared with the model. Every storm ends with
a walk out: through the API alone, from the state it has reached, the instance is taken to `deleted`."""

import asyncio
import collections
import contextlib
import logging
import tempfile
import urllib.parse
from collections.abc import Coroutine, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import campaigns
import httpx
import hypothesis
import operation_model
import pytest
import structlog
from gpuaas_contract import catalog, errors, identity, instances, lifecycles, operations, runtime
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.instances import store as instances_store
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.operations import read, reconcile
from hypothesis import stateful
from hypothesis import strategies as st
from operation_model import ENDED, GONE, INSTANCE_MOVES, MEMBER_MOVES, OPEN, OPERATION_MOVES, Member, Model
from platform_world import FakeClock, World
from scripted_controller import (
    DEADLINE_S,
    WAYS,
    Cluster,
    Controller,
    Held,
    evidence,
    publish_version,
    take_exit,
    with_hands,
)

Answer = TypeVar("Answer")
LEASE_S = 15
MACHINES = 8
NEXT = {"upgrades_from": ["1.0.*"], "rollback_to": ["1.0.0"]}
APP = with_hands(breaker={"failures": 1000})
PICK = st.integers(0, 7)
KIND = st.sampled_from(["add", "drain", "resume", "remove", "replace", "repair"])
VERB = st.sampled_from(["stop", "start", "restart", "upgrade", "rollback", "reconfigure", "decommission"])
BODIES: dict[str, dict[str, Any]] = {"upgrade": {"version": "1.1.0"}, "reconfigure": {"inputs": {"speed": 1}}}
STORMS = campaigns.size(short=100, whole=600)
"""Of about ninety steps each."""
STORMS_ON_POSTGRES = campaigns.size(short=20, whole=40)
WHOLE_WAY = 6
"""The longest way has as many steps."""


class InProcess(httpx.AsyncClient):
    """Asks the application directly: what a client adds to a request costs more than the request."""

    def __init__(self, application: http.Application) -> None:
        super().__init__()
        self._application = application

    async def request(self, method: str, url: httpx.URL | str, **sent: Any) -> httpx.Response:
        received: list[MutableMapping[str, Any]] = []
        body = {"type": "http.request", "body": sent["content"], "more_body": False}

        async def receive() -> dict[str, Any]:
            return body

        async def send(message: MutableMapping[str, Any]) -> None:
            received.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": str(url),
            "raw_path": str(url).encode(),
            "query_string": urllib.parse.urlencode(sent["params"] or {}).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent["headers"].items()],
            "client": ("127.0.0.1", 1),
        }
        await self._application(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in received)
        return httpx.Response(received[0]["status"], content=content)


@dataclass
class Lab:
    """One platform for all storms, with machines enough for one instance at a time."""

    loop: asyncio.AbstractEventLoop
    world: World
    controllers: list[Controller] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    is_clean: bool = False
    """Nothing of the last storm is left."""
    steps: int = 0
    storms: int = 0
    refused: int = 0
    seen: dict[str, collections.Counter[str]] = field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    """Lifecycle -> how often each state was seen."""
    left: dict[str, set[str]] = field(default_factory=lambda: collections.defaultdict(set))
    """Lifecycle -> states from which a storm walked out."""

    async def settle(self) -> None:
        """Into a new project, so that a storm that went wrong does not spoil the next ones."""
        org_id = (await self.world.call(identity.ORG_LIST)).items[0].org_id
        name = f"lab-{self.storms}"
        project = await self.world.call(identity.PROJECT_CREATE, {"name": name}, org_id=org_id)
        self.world.project_id = project.project_id
        await self.world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=True), app_slug="toy")
        self.controllers = [await Controller.start(self.world, holder) for holder in ("one", "two")]
        allocations = [await self.world.allocation(f"{name}-{number}") for number in range(MACHINES)]
        self.machines = [allocation.allocation_id for allocation in allocations]

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(coroutine)


class Storm(stateful.RuleBasedStateMachine):
    lab: ClassVar[Lab]

    def __init__(self) -> None:
        super().__init__()
        self.world = self.lab.world
        if not self.lab.is_clean:
            self.lab.run(self.lab.settle())
        self.held: list[Held] = []
        self.model = Model(DEADLINE_S)
        self.speed = 0
        self.lab.storms += 1

    @property
    def now(self) -> float:
        return self.world.clock().timestamp()

    @stateful.initialize(hands=st.integers(1, 2), begun=st.sampled_from(["asked", "up", "up", "upgraded"]))
    def deploy(self, hands: int, begun: str) -> None:
        """Few storms would come upon an upgrade by themselves, and only after one there is a way back."""
        head, *others = self.lab.machines[: 1 + hands]
        inputs = {"head_allocation": head, "hand_allocations": others}
        body = {"name": f"storm-{self.lab.storms}", "app_slug": "toy", "version": "1.0.0", "topology": "pair"}
        deployed = self.lab.run(self.world.call(instances.INSTANCE_CREATE, {**body, "inputs": inputs}))
        self.cluster = Cluster(self.world, self.lab.controllers[0], deployed.instance.instance_id)
        for member in deployed.members:
            self.model.members[member.member_id] = Member(member.component_key, member.allocation_id)
        self.model.accept(deployed.operation.operation_id, "deploy", self.model.members, self.now)
        self._agree()
        if begun != "asked":
            self.claim(0)
            self.go_on(-1, WHOLE_WAY)
        if begun == "upgraded":
            self.work_on_instance("upgrade", WHOLE_WAY)

    @stateful.rule(kind=KIND, first=PICK, count=st.integers(1, 2), machine=PICK)
    def ask_members(self, kind: str, first: int, count: int, machine: int) -> None:
        names = [name for name, member in self.model.members.items() if member.role == "hand"]
        names = [] if kind == "add" else list(dict.fromkeys(_pick(names, first + more) for more in range(count)))
        wanted = count if kind == "add" else len(names) if kind == "replace" else 0
        machines = list(dict.fromkeys(_pick(self.lab.machines, machine + more) for more in range(wanted)))
        operation = self._ask(
            self.cluster.operate(kind, *names, allocation_ids=machines, component_key="hand"),
            self.model.may_operate(kind, names, machines),
        )
        if operation is None:
            return
        targets = [target.member_id for target in operation.targets]
        if kind == "add":
            self.model.members |= {name: Member("hand", place) for name, place in zip(targets, machines, strict=True)}
        moves = dict(zip(targets, machines, strict=True)) if kind == "replace" else {}
        self.model.accept(operation.operation_id, kind, targets, self.now, moves)
        self._agree()

    @stateful.rule(verb=VERB)
    def ask_instance(self, verb: str) -> None:
        # A reconfigure that changes nothing is refused, so each asks for another speed.
        self.speed += 1
        request = {"inputs": {"speed": self.speed}} if verb == "reconfigure" else BODIES.get(verb, {})
        operation = self._ask(self.cluster.change(verb, **request), self.model.may_change(verb))
        if operation is not None:
            self.model.accept(operation.operation_id, verb, self.model.live(), self.now)
        self._agree()

    @stateful.rule(who=st.integers(0, 1))
    def claim(self, who: int) -> None:
        held = self.lab.run(self.lab.controllers[who].take(LEASE_S))
        claimed = held.claim.operation.operation_id if held.claim.operation else ""
        assert claimed in (self.model.next_claims(self.now) or {""})
        if claimed:
            self.model.claim(claimed, self.now, LEASE_S)
            assert held.claim.epoch == self.model.operations[claimed].epoch
            self.held = [*self.held[-5:], held]
        self._agree()

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, whom=PICK, status=st.sampled_from(sorted(MEMBER_MOVES)), idle=st.booleans())
    def report(self, which: int, whom: int, status: str, idle: bool) -> None:
        self._report(_pick(self.held, which), _pick(list(self.model.members), whom), status, idle=idle)

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, whom=PICK, next_one=PICK, idle=st.booleans())
    def report_a_legal_move(self, which: int, whom: int, next_one: int, idle: bool) -> None:
        held = _pick(self.held, which)
        name = _pick(list(self.model.operations[held.operation_id].outcomes) or list(self.model.members), whom)
        present = self.model.members[name].status
        self._report(held, name, _pick(sorted(MEMBER_MOVES[present]) or [present], next_one), idle=idle)

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, steps=st.integers(1, WHOLE_WAY))
    def go_on(self, which: int, steps: int) -> None:
        """So many steps of the way a sound controller goes, and the end if that was all."""
        held = _pick(self.held, which)
        way = WAYS[held.operation.kind]
        for name in self.model.operations[held.operation_id].outcomes:
            status = self.model.members[name].status
            left = way[way.index(status) + 1 :] if status in way[:-1] else way
            for step in left[:steps]:
                self._report(held, name, step, idle=True)
        if steps == WHOLE_WAY:
            self.complete(which, undone=False)

    @stateful.rule(verb=VERB, steps=st.integers(1, WHOLE_WAY))
    def work_on_instance(self, verb: str, steps: int) -> None:
        self.ask_instance(verb)
        self.claim(0)
        if self.held:
            self.go_on(-1, steps)

    @stateful.rule(kind=KIND, first=PICK, machine=PICK, steps=st.integers(1, WHOLE_WAY))
    def work_on_member(self, kind: str, first: int, machine: int, steps: int) -> None:
        self.ask_members(kind, first, 1, machine)
        self.claim(1)
        if self.held:
            self.go_on(-1, steps)

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, status=st.sampled_from(["ready", "failed", "drained", "removed"]))
    def report_all(self, which: int, status: str) -> None:
        held = _pick(self.held, which)
        for name in self.model.operations[held.operation_id].outcomes:
            self._report(held, name, status, idle=True)

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK)
    def heartbeat(self, which: int) -> None:
        held = _pick(self.held, which)
        holds = self.model.holds(held.operation_id, held.claim.epoch)
        if self._ask(held.heartbeat(LEASE_S), holds) is not None:
            self.model.operations[held.operation_id].lease_until = self.now + LEASE_S
        self._agree()

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, state=st.sampled_from(["running", "succeeded", "failed"]))
    def step(self, which: int, state: str) -> None:
        held = _pick(self.held, which)
        self._ask(held.step("install", state), self.model.holds(held.operation_id, held.claim.epoch))
        self._agree()

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK, undone=st.booleans())
    def complete(self, which: int, undone: bool) -> None:
        held = _pick(self.held, which)
        operation, epoch = self.model.operations[held.operation_id], held.claim.epoch
        is_repeat = operation.status in ENDED and epoch == operation.epoch
        may = self.model.holds(held.operation_id, epoch)
        may = may and bool(self.model.completed(held.operation_id, undone=undone))
        if self._ask(held.complete(undone=undone), may or is_repeat) is not None and may:
            self.model.complete(held.operation_id, undone=undone)
        self._agree()

    @stateful.precondition(lambda self: self.held)
    @stateful.rule(which=PICK)
    def fail(self, which: int) -> None:
        refused = which % 5 == 4
        held = _pick(self.held, which)
        operation, epoch = self.model.operations[held.operation_id], held.claim.epoch
        is_repeat = operation.status == "failed" and epoch == operation.epoch
        may = self.model.holds(held.operation_id, epoch)
        if self._ask(held.fail("refused" if refused else "repairable"), may or is_repeat) is not None and may:
            self.model.end(held.operation_id, "failed", refused=refused)
        self._agree()

    @stateful.rule(which=PICK, name=st.sampled_from(sorted(operations.EXITS)))
    def leave(self, which: int, name: operations.ExitName) -> None:
        operation_id = _pick(list(reversed(self.model.operations)), which)
        operation = self.lab.run(self.world.operation(operation_id))
        assert {way.name for way in operation.exits} == self.model.exits(operation_id)
        may = self.model.may_leave(operation_id, name)
        if self._ask(take_exit(self.world, operation, name), may) is not None:
            self.model.leave(operation_id, name, self.now)
        self._agree()

    @stateful.rule(whom=PICK, status=st.sampled_from(sorted(MEMBER_MOVES)))
    def observe(self, whom: int, status: str) -> None:
        """What a controller sees between operations."""
        name = _pick(list(self.model.members), whom)
        may = self.model.may_observe(name, status)
        reported = self.lab.run(self._observe(name, status))
        assert (not reported.refused) == may, reported.refused
        if may:
            self.model.observe(name, status)
        self._agree()

    @stateful.rule(who=st.integers(0, 1))
    def kill_controller(self, who: int) -> None:
        """It reports nothing any more; its leases run out by themselves."""
        token = self.lab.controllers[who].token
        self.held = [held for held in self.held if held.token != token]

    @stateful.rule(seconds=st.sampled_from([1, 1, LEASE_S, LEASE_S + 1, DEADLINE_S + 1]))
    def wait(self, seconds: int) -> None:
        """Leases run out and, when it takes long enough, deadlines pass; paused holders wake up afterwards."""
        self.world.clock.forward(seconds)
        self.lab.run(reconcile.sweep(self.world.site))
        self.model.expire(self.now)
        self._agree()

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.lab.is_clean = False
        self.lab.run(walk_out(self.cluster, self.lab.left))
        assert not self.lab.run(self.cluster.bound())
        self.lab.is_clean = True

    def _report(self, held: Held, name: str, status: str, *, idle: bool) -> None:
        shown = {"evidence": evidence(self.world.clock())} if idle else {}
        may = self.model.may_report(held.operation_id, held.claim.epoch, name, status, idle=idle)
        if self._ask(held.report(name, status, **shown), may) is not None:
            self.model.report(held.operation_id, name, status)
        self._agree()

    async def _observe(self, name: str, status: str) -> runtime.RuntimeReported:
        member = await self.cluster.member(name)
        seen = {"member_id": name, "revision": member.revision, "status": status}
        body = {"holder": "eye", "observed_revision": 1, "members": [seen]}
        token = self.lab.controllers[0].token
        return await self.world.call(runtime.RUNTIME_REPORT, body, token=token, instance_id=self.cluster.instance_id)

    def _ask(self, request: Coroutine[Any, Any, Answer], may: bool) -> Answer | None:
        """The answer, or None when it was refused; the model has decided which it must be."""
        answer, refusal = self.lab.run(_answer_or_refusal(request))
        assert (refusal is None) == may, f"the model {'allows' if may else 'refuses'} it: {refusal or answer}"
        self.lab.refused += refusal is not None
        return answer

    def _agree(self) -> None:
        self.lab.steps += 1
        instance, members, latest = self.lab.run(truth(self.world, self.cluster.instance_id, self.model))
        assert instance.status == self.model.status()
        assert {member.member_id: (member.status, member.allocation_id) for member in members} == {
            name: (member.status, member.machine) for name, member in self.model.members.items()
        }
        for operation in latest:
            model = self.model.operations[operation.operation_id]
            outcomes = {target.member_id: target.outcome for target in operation.targets}
            assert (operation.status, operation.epoch, operation.attempts, operation.compensating, outcomes) == (
                model.status,
                model.epoch,
                model.attempts,
                model.compensating,
                model.outcomes,
            )
        self.lab.seen["instance"][instance.status] += 1
        self.lab.seen["member"].update(member.status for member in members)
        self.lab.seen["operation"].update(operation.status for operation in latest)


async def _answer_or_refusal(
    request: Coroutine[Any, Any, Answer],
) -> tuple[Answer | None, errors.ApiError | None]:
    try:
        return await request, None
    except errors.ApiError as refusal:
        if refusal.status >= 500:
            raise
        return None, refusal


async def truth(
    world: World, instance_id: str, model: Model
) -> tuple[instances.Instance, list[instances.Member], list[operations.Operation]]:
    """What the store holds: the instance, its members, and of its operations the last few."""
    reader = world.site.database.reader
    instance = await instances_store.INSTANCES.get(reader, instance_id)
    assert instance is not None
    latest = list(model.operations)[-4:]
    heads = await read.heads_by_id(reader, latest)
    members = await instances_store.MEMBERS.find(reader, "instance_id = $1 ORDER BY member_id", instance_id)
    return instance, members, await read.with_targets(reader, [heads[name] for name in latest if name in heads])


async def walk_out(cluster: Cluster, left: dict[str, set[str]]) -> None:
    """Go from any state to `deleted`: leave every open operation by its exit, then tear the instance down."""
    world, query = cluster.world, {"instance_id": cluster.instance_id, "page_size": 500}
    listed = (await world.call(operations.OPERATION_LIST, query=query)).items
    left["instance"].add(await cluster.status())
    left["member"] |= {member.status for member in (await cluster.members()).values()}
    left["operation"] |= {operation.status for operation in listed}
    for operation in listed:
        if operation.status in OPEN:
            ways = {way.name: way.permitted for way in (await world.operation(operation.operation_id)).exits}
            assert ways["force_complete"]
            assert (await take_exit(world, operation, "force_complete")).status in ENDED
    if await cluster.status() != "deleted":
        await cluster.change("decommission", force=True, reason="walking out")
        assert (await cluster.controller.carry_out()).status == "succeeded"
    assert await cluster.status() == "deleted"


@contextlib.contextmanager
def lab(database_url: str = "") -> Iterator[Lab]:
    """In memory where that is possible: durability is not the question here."""
    shared_memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None)
    a_year_s = 365 * 86_400
    with folder as name, contextlib.closing(asyncio.new_event_loop()) as loop:
        settings = Settings(
            data_dir=Path(name) / "data",
            database_url=database_url,
            session_ttl_s=a_year_s,
            service_account_token_ttl_s=a_year_s,
            rate_limit_per_s=0,
            node_rate_limit_per_s=0,
        )
        stack = contextlib.AsyncExitStack()
        try:
            yield loop.run_until_complete(_open(stack, settings, loop))
        finally:
            loop.run_until_complete(stack.aclose())


async def _open(stack: contextlib.AsyncExitStack, settings: Settings, loop: asyncio.AbstractEventLoop) -> Lab:
    clock = FakeClock()
    site = await stack.enter_async_context(server.open_site(settings, clock))
    client = await stack.enter_async_context(InProcess(http.application(site, server.DOMAINS)))
    world = await World.make(site, clock, client)
    await world.entitled_app(**APP)
    await publish_version(world, "1.1.0", **{**APP, **NEXT})
    return Lab(loop, world)


def storm(storm_lab: Lab, storms: int, steps: int) -> None:
    class ThisStorm(Storm):
        lab = storm_lab

    stateful.run_state_machine_as_test(
        ThisStorm,
        settings=hypothesis.settings(
            max_examples=storms,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[hypothesis.Phase.generate],  # to shrink a storm would take minutes; it is short enough to read
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )


@pytest.fixture
def quiet() -> Iterator[None]:
    """A line per request would cost more than the request."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


def _pick(choices: list[Any], number: int) -> Any:
    return choices[number % len(choices)]


@pytest.mark.timeout(1800)  # minutes of work on a loaded machine; no hang
@pytest.mark.usefixtures("quiet")
def test_a_storm_on_sqlite_agrees_with_the_model_and_every_state_is_reached_and_left() -> None:
    with lab() as storm_lab:
        storm(storm_lab, storms=STORMS, steps=60)
    assert storm_lab.steps >= 60 * STORMS
    rare = campaigns.size(short=RARE, whole=frozenset())
    assert {name: set(states) - rare for name, states in storm_lab.seen.items()} == {
        "instance": set(INSTANCE_MOVES) - rare,
        "member": set(MEMBER_MOVES) - rare,
        "operation": set(OPERATION_MOVES),
    }
    assert storm_lab.left["instance"] >= set(INSTANCE_MOVES) - {"deleted", "stopped"} - set(MOVED_BY) - rare
    assert storm_lab.left["member"] >= set(MEMBER_MOVES) - GONE - rare
    assert storm_lab.left["operation"] >= OPEN | {"failed"}


MOVED_BY: dict[str, tuple[str, ...]] = {
    "stopping": ("stop",),
    "starting": ("stop", "start"),
    "upgrading": ("upgrade",),
    "rolling_back": ("upgrade", "rollback"),
    "reconfiguring": ("reconfigure",),
    "deleting": ("decommission",),
}
"""Statuses that an instance has only during an operation, and the operations that lead there. A storm rarely ends in
one, so each has a walk out of its own."""


@pytest.mark.parametrize("status", MOVED_BY)
async def test_an_instance_can_be_deleted_from_every_status_that_it_has_during_an_operation(
    world: World, status: str
) -> None:
    cluster = await Cluster.running(world, **APP)
    await publish_version(world, "1.1.0", **{**APP, **NEXT})
    *before, last = MOVED_BY[status]
    for verb in before:
        await cluster.change(verb, **BODIES.get(verb, {}))
        await cluster.controller.carry_out()
    await cluster.change(last, **BODIES.get(last, {}))
    await cluster.controller.take()
    assert await cluster.status() == status
    await walk_out(cluster, collections.defaultdict(set))


async def test_a_stopped_instance_can_be_deleted(world: World) -> None:
    """A storm rarely ends in this status."""
    cluster = await Cluster.running(world, **APP)
    await cluster.change("stop")
    await cluster.controller.carry_out()
    assert await cluster.status() == "stopped"
    await walk_out(cluster, collections.defaultdict(set))


JOINING: tuple[str, ...] = ("provisioning", "joining")
LEAVING: tuple[str, ...] = ("draining", "drained", "removing")
RARE = frozenset({"rolling_back", "deploying", "tombstoned", *JOINING, *LEAVING})
"""States in which few storms end. All have tests of their own, in this file or among the exits."""


@pytest.mark.parametrize("status", [*JOINING, *LEAVING])
async def test_an_instance_can_be_deleted_while_a_member_comes_or_leaves(world: World, status: str) -> None:
    if status in JOINING:
        way, cluster = JOINING, await Cluster.requested(world, **APP)
    else:
        way, cluster = LEAVING, await Cluster.running(world, **APP)
        await cluster.operate("remove", (await cluster.hands())[0])
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], *way[: way.index(status) + 1], evidence=evidence(world.clock()))
    assert await cluster.statuses(held.member_ids[0]) == [status]
    left: dict[str, set[str]] = collections.defaultdict(set)
    await walk_out(cluster, left)
    assert status in left["member"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_the_same_storm_agrees_on_postgres(database_url: str) -> None:
    with lab(database_url) as storm_lab:
        storm(storm_lab, storms=STORMS_ON_POSTGRES, steps=60)
    assert storm_lab.steps >= 50 * STORMS_ON_POSTGRES


@pytest.mark.parametrize(
    ("published", "designed"),
    [
        (lifecycles.INSTANCE, INSTANCE_MOVES),
        (lifecycles.MEMBER, MEMBER_MOVES),
        (lifecycles.OPERATION, OPERATION_MOVES),
    ],
)
def test_the_published_lifecycles_have_exactly_the_moves_of_the_model(
    published: lifecycles.Table, designed: lifecycles.Table
) -> None:
    assert published == designed


@pytest.mark.parametrize("moves", [INSTANCE_MOVES, MEMBER_MOVES, OPERATION_MOVES])
def test_every_state_that_the_model_can_reach_has_a_row(moves: lifecycles.Table) -> None:
    assert {state for targets in moves.values() for state in targets} <= set(moves)


def test_the_model_has_a_goal_for_every_kind_of_operation() -> None:
    assert set(operation_model.GOAL) == set(WAYS)
