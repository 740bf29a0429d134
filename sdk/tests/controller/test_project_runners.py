"""One controller process for several projects: it serves those that accept the account, and mixes nothing of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import structlog
from gpuaas_contract.errors import CredentialsInvalid, NotFound
from gpuaas_contract.identity import ME, PROJECT_LIST
from gpuaas_contract.operations import OPERATION_GET
from gpuaas_contract.runtime import CLAIM, ClaimOperation
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, HealthSettings, Operation, ProjectRunners, Reconciliation, RunnerSettings, logs
from gpuaas_sdk.testing import FakeMachines, FakeOrganisation
from gpuaas_sdk.testing.platform.edge import Fate, Received

PROJECTS = ("prj_a", "prj_b", "prj_c")
SETTINGS = RunnerSettings(
    claim_wait_s=0.2, refused_pause_s=0.05, report_every_s=0.05, health=HealthSettings(interval_s=0.05)
)


@pytest.fixture
def organisation() -> FakeOrganisation:
    return FakeOrganisation("demo", PROJECTS)


@contextlib.asynccontextmanager
async def serving_all(app: App, organisation: FakeOrganisation) -> AsyncIterator[tuple[Client, ProjectRunners]]:
    machines = FakeMachines()
    async with organisation.serve() as client:
        runners = ProjectRunners(
            client,
            lambda project_id: app.runner(client, project_id, "fleet", settings=SETTINGS, connect=machines.connect),
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
