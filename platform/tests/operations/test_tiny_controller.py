"""An HTTP client and a service-account key are all an app controller needs: the script of the how-to page shows it.

The script runs as its own process against a real server, on both stores; the machines speak the real node wire."""

import ast
import asyncio
import json
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import postgres_server
import pytest
from gpuaas_contract import actions, capacity, catalog, correlations, events, instances, operations, runtime
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_platform.kit import ids
from server_process import Cloud, ServerProcess

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
SCRIPT, PAGE = HOW_TO / "tiny_controller.py", HOW_TO / "write-a-controller.md"
MANIFEST: dict[str, Any] = json.loads((HOW_TO / "tiny_app.json").read_text())
DEADLINE_S = 120


class Controller:
    """The script, started and killed like any process."""

    def __init__(self, server: ServerProcess, project_id: str, key_file: Path, machines: Path) -> None:
        self.machines = machines
        self._command = [sys.executable, str(SCRIPT), "--url", server.url, "--project", project_id]
        self._command += ["--key-file", str(key_file)]
        self._log = key_file.with_name("controller.log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.machines, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def state_of(self, member_id: str) -> dict[str, str]:
        state: dict[str, str] = json.loads((self.machines / member_id).read_text())
        return state

    def give_work(self, member_id: str, *work_ids: str) -> None:
        (self.machines / f"{member_id}.work").write_text("\n".join(work_ids))


@dataclass
class App:
    """The made-up app in a project of its own, and what has been asked of it so far."""

    cloud: Cloud
    controller: Controller
    instance_id: str = ""
    asked: list[operations.Operation] = field(default_factory=list)

    async def deploy(self, hands: int) -> operations.Operation:
        inputs = {
            "head_allocation": await self.cloud.allocation(),
            "hand_allocations": [await self.cloud.allocation() for _ in range(hands)],
        }
        body = {"name": "one", "app_slug": "tiny", "version": "1.0.0", "topology": "star", "inputs": inputs}
        deployed = await self.cloud.call(instances.INSTANCE_CREATE, body, headers=_new_correlation())
        self.instance_id = deployed.instance.instance_id
        return await self._ended(deployed.operation)

    async def change(self, endpoint: Endpoint[Any, operations.Operation], **body: Any) -> operations.Operation:
        return await self._ended(await self.begin(endpoint, **body))

    async def operate(self, kind: str, **body: Any) -> operations.Operation:
        return await self.change(instances.MEMBER_OPERATION_CREATE, kind=kind, **body)

    async def begin(self, endpoint: Endpoint[Any, operations.Operation], **body: Any) -> operations.Operation:
        headers = _new_correlation()
        return await self.cloud.call(endpoint, body, headers=headers, instance_id=self.instance_id)

    async def invoke(self, action: str) -> operations.Operation:
        accepted = await self.cloud.call(
            actions.ACTION_INVOKE, {}, headers=_new_correlation(), instance_id=self.instance_id, action=action
        )
        return await self._ended(accepted)

    async def hands(self) -> list[instances.Member]:
        members = (await self.cloud.call(instances.MEMBER_LIST, instance_id=self.instance_id)).items
        return [member for member in members if member.component_key == "hand" and member.status != "removed"]

    async def instance(self) -> instances.Instance:
        return await self.cloud.call(instances.INSTANCE_GET, instance_id=self.instance_id)

    async def when(self, operation: operations.Operation, *steps: str) -> operations.Operation:
        """The operation as soon as the named step runs, or, without a name, as soon as it has ended."""
        while not (operation.status in ENDED_OPERATION or {step.name for step in operation.steps} & set(steps)):
            query = {"wait_s": 30, "revision": operation.revision}
            operation = await self.cloud.call(
                operations.OPERATION_GET, query=query, operation_id=operation.operation_id
            )
        return operation

    async def _ended(self, operation: operations.Operation) -> operations.Operation:
        ended = await self.when(operation)
        self.asked.append(ended)
        return ended


@dataclass(frozen=True)
class Served:
    """One server for all tests of this file, with the app in its catalog; each test has a project of its own."""

    server: ServerProcess
    admin_token: str


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = ""
    if request.param == "postgres":
        folder: Path = request.getfixturevalue("postgres_folder")
        name = ids.new("db")
        postgres_server.create_database(folder, name)
        url = f"postgresql://postgres@/{name}?host={folder}"
    server = ServerProcess(tmp_path_factory.mktemp("tiny") / "data", url)
    password = server.admin_password()
    with server:
        yield Served(server, asyncio.run(_admin_token(server, password)))


async def _admin_token(server: ServerProcess, password: str) -> str:
    """Of an admin who has put two versions of the app into the catalog."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        cloud = Cloud(client)
        await cloud.sign_in(password)
        for version in ("1.0.0", "1.1.0"):
            await cloud.call(catalog.VERSION_REGISTER, {**MANIFEST, "version": version})
            await cloud.call(catalog.VERSION_PUBLISH, {}, app_slug="tiny", version=version)
        return cloud.token


@pytest.fixture
async def app(served: Served, tmp_path: Path) -> AsyncIterator[App]:
    async with httpx.AsyncClient(base_url=served.server.url, timeout=60) as client, asyncio.timeout(DEADLINE_S):
        cloud = Cloud(client, served.admin_token)
        await cloud.make_project()
        await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="tiny")
        key_file, machines = tmp_path / "tiny-key.json", tmp_path / "machines"
        key_file.write_bytes(msgspec.json.encode(await cloud.service_account_key("tiny", "tiny")))
        machines.mkdir()
        controller = Controller(served.server, cloud.project_id, key_file, machines)
        controller.start()
        try:
            yield App(cloud, controller)
        finally:
            controller.kill()


async def test_the_script_carries_an_app_through_its_whole_life_and_all_of_it_is_on_the_record(app: App) -> None:
    await app.deploy(hands=1)
    assert (await app.instance()).status == "running"

    await app.operate("add", component_key="hand", allocation_ids=[await app.cloud.allocation() for _ in range(3)])
    first, *_ = hands = [member.member_id for member in await app.hands()]
    assert len(hands) == 4

    await app.operate("drain", member_ids=[first])
    assert app.controller.state_of(first)["state"] == "drained"
    await app.operate("resume", member_ids=[first])
    assert app.controller.state_of(first)["state"] == "ready"
    await app.operate("remove", member_ids=[first])
    assert first not in [member.member_id for member in await app.hands()]

    moved, other = (await app.hands())[0], await app.cloud.allocation()
    await app.operate("replace", member_ids=[moved.member_id], allocation_ids=[other])
    assert [member.allocation_id for member in await app.hands() if member.member_id == moved.member_id] == [other]

    await app.change(instances.STOP)
    assert (await app.instance()).status == "stopped"
    await app.change(instances.START)
    assert (await app.instance()).status == "running"

    await app.change(instances.UPGRADE, version="1.1.0")
    assert {member.observed_version for member in await app.hands()} == {"1.1.0"}
    await app.change(instances.ROLLBACK)
    assert {member.observed_version for member in await app.hands()} == {"1.0.0"}
    assert (await app.instance()).app_version == "1.0.0"

    app.controller.give_work(moved.member_id, "work-1", "work-2")
    listed = await app.invoke("list-work")
    assert listed.result == {"work": ["work-1", "work-2"]}
    app.controller.give_work(moved.member_id)

    await app.change(instances.DECOMMISSION)
    assert (await app.instance()).status == "deleted"

    assert [(operation.kind, operation.status) for operation in app.asked] == [
        (kind, "succeeded")
        for kind in (
            *("deploy", "add", "drain", "resume", "remove", "replace"),
            *("stop", "start", "upgrade", "rollback", "action", "decommission"),
        )
    ]
    recorded = await app.cloud.recorded()
    for operation in app.asked:
        await _check_on_record(app.cloud, operation, recorded)


async def _check_on_record(cloud: Cloud, operation: operations.Operation, recorded: list[events.Event]) -> None:
    """Every transition is an event; the request and the end are audited; one document holds it all."""
    emitted = [event for event in recorded if event.correlation_id == operation.correlation_id]
    kinds = [event.type for event in emitted if event.type.startswith("apps.operation.")]
    assert kinds[:2] == ["apps.operation.accepted", "apps.operation.claimed"]
    assert kinds[-1] == "apps.operation.ended"
    assert kinds.count("apps.operation.step") == 2 * len(operation.steps)
    moves = [(event.payload["member_id"], event.payload["status"]) for event in emitted if _is_move(event)]
    assert moves == [(step.member_id, step.name) for step in operation.steps if step.member_id]
    bundle = await cloud.call(correlations.CORRELATION_GET, correlation_id=operation.correlation_id)
    assert [entry.operation_id for entry in bundle.operations] == [operation.operation_id]
    assert {member.member_id for member in bundle.members} == {target.member_id for target in operation.targets}
    assert [event.cursor for event in bundle.events] == [event.cursor for event in emitted]
    assert bundle.audit is not None
    audited = [row.action for row in bundle.audit]
    assert audited[0] == _REQUESTS.get(operation.kind, instances.MEMBER_OPERATION_CREATE.name)
    assert audited[-1] == runtime.COMPLETE.name


_REQUESTS = {
    "deploy": instances.INSTANCE_CREATE.name,
    "action": actions.ACTION_INVOKE.name,
    **{kind: f"apps.instance.{kind}" for kind in ("stop", "start", "upgrade", "rollback", "decommission")},
}


def _is_move(event: events.Event) -> bool:
    return event.type == "apps.member.changed"


async def test_a_new_script_continues_where_a_killed_one_stopped(app: App) -> None:
    hand = await _with_work(app)
    drain = await app.begin(instances.MEMBER_OPERATION_CREATE, kind="drain", member_ids=[hand])
    await app.when(drain, "drained")
    app.controller.kill()
    app.controller.give_work(hand)
    app.controller.start()
    ended = await app.when(drain)
    assert ended.status == "succeeded"
    assert ended.attempts > 1
    assert [(step.name, step.state) for step in ended.steps] == [("draining", "succeeded"), ("drained", "succeeded")]


async def test_a_cancelled_drain_is_undone(app: App) -> None:
    hand = await _with_work(app)
    drain = await app.begin(instances.MEMBER_OPERATION_CREATE, kind="drain", member_ids=[hand])
    assert (await _cancelled(app, drain)).status == "cancelled"
    assert [member.status for member in await app.hands()] == ["ready"]
    assert app.controller.state_of(hand)["state"] == "ready"


async def test_a_cancelled_upgrade_leaves_the_version_as_it_was(app: App) -> None:
    await _with_work(app)
    upgrade = await app.begin(instances.UPGRADE, version="1.1.0")
    assert (await _cancelled(app, upgrade)).status == "cancelled"
    instance = await app.instance()
    assert (instance.status, instance.app_version) == ("running", "1.0.0")
    assert {member.observed_version for member in await app.hands()} == {"1.0.0"}


async def test_a_cancelled_replace_leaves_the_member_where_it_was(app: App) -> None:
    hand, spare = await _with_work(app), await app.cloud.allocation()
    (before,) = await app.hands()
    replacing = {"kind": "replace", "member_ids": [hand], "allocation_ids": [spare]}
    replace = await app.begin(instances.MEMBER_OPERATION_CREATE, **replacing)
    assert (await _cancelled(app, replace)).status == "cancelled"
    assert [(member.status, member.allocation_id) for member in await app.hands()] == [("ready", before.allocation_id)]
    assert (await app.cloud.call(capacity.ALLOCATION_GET, allocation_id=spare)).used_by_instance_ids == []


async def test_a_dry_run_lists_the_work_that_would_be_disturbed(app: App) -> None:
    hand = await _with_work(app)
    planned = await app.cloud.call(
        instances.MEMBER_OPERATION_CREATE,
        {"kind": "drain", "member_ids": [hand]},
        query={"dry_run": "true"},
        instance_id=app.instance_id,
    )
    assert planned.preview is not None
    assert [work.work_id for work in planned.preview.running_work] == ["work-1"]
    assert [member.status for member in await app.hands()] == ["ready"]


async def test_a_machine_that_cannot_be_read_fails_its_member_and_leaves_the_others(app: App) -> None:
    await app.deploy(hands=1)
    (hand,) = await app.hands()
    (app.controller.machines / f"{hand.member_id}.work").mkdir()
    stop = await app.change(instances.STOP)
    assert stop.error is not None
    assert (stop.status, stop.error.code) == ("failed", "targets_failed")
    outcomes = {target.member_id == hand.member_id: target.outcome for target in stop.targets}
    assert outcomes == {True: "failed", False: "succeeded"}


def test_the_script_is_short_and_needs_nothing_of_ours() -> None:
    source = SCRIPT.read_text()
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names} == {"httpx"}
    assert len(source.splitlines()) <= 150


def test_the_code_on_the_page_is_in_the_script() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown
    scripts = SCRIPT.read_text() + (HOW_TO / "tiny_machine.py").read_text()
    assert [piece for piece in shown if piece not in scripts] == []


async def _with_work(app: App) -> str:
    """The app with one hand, on which something runs: a drain of it waits."""
    await app.deploy(hands=1)
    (hand,) = await app.hands()
    app.controller.give_work(hand.member_id, "work-1")
    return hand.member_id


async def _cancelled(app: App, operation: operations.Operation) -> operations.Operation:
    """Cancelled while it waits for the work to end."""
    waiting = await app.when(operation, "drained")
    await app.cloud.call(operations.OPERATION_CANCEL, {"reason": "not today"}, operation_id=waiting.operation_id)
    return await app.when(waiting)


def _new_correlation() -> dict[str, str]:
    return {"X-Correlation-ID": f"asked-{uuid.uuid4().hex}"}
