"""One controller process for several projects: it serves those that accept the account, and mixes nothing of them."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
import structlog
from gpuaas_contract.errors import CredentialsInvalid, NotFound
from gpuaas_contract.identity import ME, PROJECT_LIST
from gpuaas_contract.operations import OPERATION_GET
from gpuaas_contract.runtime import CLAIM, ClaimOperation
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, HealthSettings, Operation, ProjectRunners, Reconciliation, RunnerSettings, logs
from gpuaas_sdk.controller.redaction import REDACTED
from gpuaas_sdk.testing import FakeMachines, FakeOrganisation
from gpuaas_sdk.testing.platform.edge import Fate, Received

PROJECTS = ("prj_a", "prj_b", "prj_c")
SETTINGS = RunnerSettings(
    claim_wait_s=0.2, refused_pause_s=0.05, report_every_s=0.05, health=HealthSettings(interval_s=0.05)
)


@pytest.fixture
def organisation() -> FakeOrganisation:
    return FakeOrganisation("demo", PROJECTS, secret_purposes=["role_join"])


@contextlib.asynccontextmanager
async def serving_all(
    app: App, organisation: FakeOrganisation, settings: RunnerSettings = SETTINGS
) -> AsyncIterator[tuple[Client, ProjectRunners]]:
    machines = FakeMachines()
    async with organisation.serve() as client:
        runners = ProjectRunners(
            client,
            lambda project_id: app.runner(client, project_id, "fleet", settings=settings, connect=machines.connect),
            list_every_s=0.05,
        )
        running = asyncio.create_task(runners.run())
        try:
            yield client, runners
        finally:
            running.cancel()
            await asyncio.wait({running})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_operations_of_every_project_that_accepts_the_account_are_run(
    app: App, organisation: FakeOrganisation
) -> None:
    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        return None

    projects = organisation.projects
    asked = {
        project_id: projects[project_id].request(projects[project_id].add_instance({}), "deploy").operation_id
        for project_id in PROJECTS
    }
    organisation.accept("prj_a")
    organisation.accept("prj_b")
    async with serving_all(app, organisation) as (client, runners):
        for project_id in ("prj_a", "prj_b"):
            assert (await projects[project_id].ended(asked[project_id])).status == "succeeded"
        assert runners.project_ids == {"prj_a", "prj_b"}
        with pytest.raises(NotFound):
            await client.call(OPERATION_GET, project_id="prj_c", operation_id=asked["prj_c"])
        assert projects["prj_c"].operation(asked["prj_c"]).status == "accepted"
        assert projects["prj_c"].calls == []

        organisation.accept("prj_c")
        assert (await projects["prj_c"].ended(asked["prj_c"])).status == "succeeded"


async def test_a_project_that_dismisses_the_account_is_left_and_the_others_continue(
    app: App, organisation: FakeOrganisation
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        if op.instance.project_id != "prj_a":
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    first, second = organisation.projects["prj_a"], organisation.projects["prj_b"]
    organisation.accept("prj_a")
    organisation.accept("prj_b")
    held = first.request(first.add_instance({}), "deploy").operation_id
    async with serving_all(app, organisation) as (_, runners), asyncio.timeout(60):
        await started.wait()
        organisation.dismiss("prj_a")
        await stopped.wait()
        await until(lambda: runners.project_ids == {"prj_b"})
        other = second.request(second.add_instance({}), "deploy").operation_id
        assert (await second.ended(other)).status == "succeeded"
    assert (first.operation(held).status, first.operation(held).lease) == ("running", None)


async def test_a_project_that_returns_waits_for_the_handlers_of_its_last_runner(
    app: App, organisation: FakeOrganisation
) -> None:
    running = running_max = runs = 0
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        nonlocal running, running_max, runs
        running, runs = running + 1, runs + 1
        running_max = max(running_max, running)
        try:
            if runs == 1:
                started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await may_end.wait()  # a clean-up that takes longer than `stop_s`
        finally:
            running -= 1

    project = organisation.projects["prj_a"]
    organisation.accept("prj_a")
    held = project.request(project.add_instance({}), "deploy").operation_id
    settings = dataclasses.replace(SETTINGS, stop_s=0.05)
    async with serving_all(app, organisation, settings) as (_, runners), asyncio.timeout(60):
        await started.wait()
        organisation.dismiss("prj_a")
        await until(lambda: not runners.project_ids)
        organisation.accept("prj_a")
        await asyncio.sleep(0.5)
        assert (runners.project_ids, runs) == (frozenset(), 1)
        may_end.set()
        assert (await project.ended(held)).status == "succeeded"
    assert (runs, running_max) == (2, 1)


async def test_a_project_that_is_missing_in_one_list_is_not_left(app: App, organisation: FakeOrganisation) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    lists = 0

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    def every_second_list_is_empty() -> list[str]:
        nonlocal lists
        lists += 1
        return [] if lists % 2 else ["prj_a"]

    project = organisation.projects["prj_a"]
    organisation.accept("prj_a")
    project.request(project.add_instance({}), "deploy")
    async with serving_all(app, organisation), asyncio.timeout(60):
        await started.wait()
        organisation.outside.visible_projects = every_second_list_is_empty
        await until(lambda: lists > 6)
        assert not stopped.is_set()


async def test_reports_of_one_project_do_not_reach_another(app: App, organisation: FakeOrganisation) -> None:
    logs.configure()
    log = structlog.get_logger()

    @app.health()
    async def look(now: Reconciliation) -> None:
        log.warning("demo.observed", project=now.instance.project_id)
        raise RuntimeError(f"machine of {now.instance.project_id}")

    for project_id in ("prj_a", "prj_b"):
        organisation.accept(project_id)
        organisation.projects[project_id].add_instance({"head": [f"{project_id}-n1"]}, ready=True)

    def reported(project_id: str) -> str:
        bodies = [body for name, body in organisation.projects[project_id].calls if name == CLAIM.name]
        return str([body.report for body in bodies if body.report is not None])

    try:
        async with serving_all(app, organisation):
            await until(lambda: all("demo.observed" in reported(project_id) for project_id in ("prj_a", "prj_b")))
    finally:
        structlog.reset_defaults()
    assert "prj_b" not in reported("prj_a")
    assert "prj_a" not in reported("prj_b")


async def test_a_secret_of_one_project_is_replaced_in_the_lines_of_another(
    app: App, organisation: FakeOrganisation
) -> None:
    logs.configure()
    log = structlog.get_logger()
    secrets: list[str] = []

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        if op.instance.project_id == "prj_a":
            secrets.append(await op.secret("role_join", "random"))
        log.info("demo.deployed", token=f"of prj_a: {secrets[0]}.")

    @app.health()
    async def look(now: Reconciliation) -> None:
        if now.instance.project_id == "prj_b":
            log.warning("demo.observed", token=f"of prj_a: {secrets[0]}.")

    first, second = organisation.projects["prj_a"], organisation.projects["prj_b"]
    organisation.accept("prj_a")
    organisation.accept("prj_b")

    def sent() -> str:
        return msgspec.json.encode([body for name, body in second.calls if body is not None]).decode()

    try:
        async with serving_all(app, organisation):
            for project in (first, second):
                instance = project.add_instance({})
                ended = await project.ended(project.request(instance, "deploy").operation_id)
                assert ended.status == "succeeded"
            await until(lambda: "demo.observed" in sent())
    finally:
        structlog.reset_defaults()
    assert "demo.deployed" in sent()
    assert secrets[0] not in sent()
    assert sent().count(f"of prj_a: {REDACTED}.") >= 2


async def test_a_list_that_cannot_be_read_changes_nothing(app: App, organisation: FakeOrganisation) -> None:
    organisation.accept("prj_a")
    refused = 0

    async def fail_list(call: Received) -> Fate:
        nonlocal refused
        if call.name == PROJECT_LIST.name and refused < 3:
            refused += 1
            raise NotFound
        return "serve"

    async with serving_all(app, organisation) as (_, runners):
        await until(lambda: runners.project_ids == {"prj_a"})
        organisation.outside.on_call(fail_list)
        await until(lambda: refused == 3)
        assert runners.project_ids == {"prj_a"}


async def test_refused_credentials_end_the_process(app: App, organisation: FakeOrganisation) -> None:
    organisation.accept("prj_a")

    async def refuse(call: Received) -> Fate:
        if call.name == PROJECT_LIST.name:
            raise CredentialsInvalid
        return "serve"

    async with organisation.serve() as client, asyncio.timeout(60):
        organisation.outside.on_call(refuse)
        with pytest.raises(CredentialsInvalid):
            await ProjectRunners(client, lambda project_id: app.runner(client, project_id, "fleet")).run()


async def test_the_account_can_see_itself_and_only_accepting_projects(organisation: FakeOrganisation) -> None:
    organisation.accept("prj_b")
    body = ClaimOperation(app_slug="demo", holder="fleet", claim_id="c1")
    async with organisation.serve() as client:
        assert (await client.call(ME)).actor_type == "service_account"
        assert [project.project_id async for project in client.pages(PROJECT_LIST)] == ["prj_b"]
        assert (await client.call(CLAIM, body, project_id="prj_b")).operation is None
        for hidden in ("prj_a", "prj_absent"):
            with pytest.raises(NotFound):
                await client.call(CLAIM, body, project_id=hidden)
    with pytest.raises(ValueError, match="prj_x"):
        organisation.accept("prj_x")
