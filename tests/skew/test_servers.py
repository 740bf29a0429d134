"""Servers and controllers are upgraded one after another during work, in the order of `docs/how-to/upgrade.md`.

Every server and every controller is a process of its own, of this release or of the one before it."""

import asyncio
from pathlib import Path

from releases import THIS, Release
from rolled_project import Project
from server_process import ServerProcess
from two_servers import Balancer, second_folder


async def upgrade(server: ServerProcess) -> None:
    """Replace the running server by this release, on the same data and the same address."""
    assert await asyncio.to_thread(server.stop) == 0
    server.program = THIS.platform
    await asyncio.to_thread(server.start)


def check_audit(server: ServerProcess) -> None:
    server.stop()
    server.run("audit", "verify")


async def test_work_that_began_on_an_old_server_ends_on_a_new_one(
    previous: Release, database_url: str, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path / "data", database_url, program=previous.platform)
    password = server.admin_password()
    with server:
        async with Project.opened(server.url, password, tmp_path) as project:
            deploy = project.deployed.operation
            with project.controller(previous):
                await project.half_done(deploy)
                async with project.watched(), project.busy():
                    await upgrade(server)
                    assert (await project.finish(deploy)).status == "succeeded"
                await project.check_record()
                stop = await project.stop_instance()
                await project.half_done(stop)
            with project.controller(THIS):
                assert (await project.finish(stop)).status == "succeeded"
            check_steps(project, previous)
            assert "succeeded" in previous.gpuaas(server.url, project.cloud, "get", "operations", "-a")
        check_audit(server)


def check_steps(project: Project, previous: Release) -> None:
    """The old controller did the first half of both operations, the new one the second half of the second."""
    old, new = (str(release.root / "sdk" / "gpuaas_sdk") for release in (previous, THIS))
    ran = project.ran()
    assert [entry for entry in ran if entry[1] == "first"] == [("deploy", "first", old), ("stop", "first", old)]
    assert ("deploy", "second", old) in ran
    assert ran[-1] == ("stop", "second", new)


async def test_a_new_controller_does_nothing_on_an_old_server_and_works_when_the_server_is_new(
    previous: Release, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path / "data", program=previous.platform)
    password = server.admin_password()
    with server:
        async with Project.opened(server.url, password, tmp_path) as project:
            with project.controller(THIS):
                await project.refused_claims()
                assert project.ran() == []
                await upgrade(server)
                assert (await project.finish(project.deployed.operation)).status == "succeeded"
                assert (await project.finish(await project.stop_instance())).status == "succeeded"


async def test_two_servers_are_upgraded_together_and_clients_that_retry_lose_nothing(
    previous: Release, postgres_url: str, tmp_path: Path
) -> None:
    """This release has a migration that is applied alone, so the second server is stopped while the first starts."""
    first = ServerProcess(tmp_path / "first", postgres_url, program=previous.platform)
    password = first.admin_password()
    with first:
        folder = second_folder(tmp_path / "first", tmp_path / "second")
        second = ServerProcess(folder, postgres_url, program=previous.platform)
        async with Balancer(first, second).listening() as balanced:
            with second:
                async with Project.opened(balanced, password, tmp_path) as project:
                    deploy = project.deployed.operation
                    with project.controller(previous):
                        await project.half_done(deploy)
                        async with project.watched(), project.busy():
                            second.stop()
                            await upgrade(first)
                            await upgrade(second)
                            await project.check_shared(first, second)
                            assert (await project.finish(deploy)).status == "succeeded"
                        await project.check_record()
                second.stop()
            check_audit(first)
