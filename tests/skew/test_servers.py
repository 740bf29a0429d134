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


async def test_a_new_controller_works_with_an_old_server(previous: Release, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", program=previous.platform)
    password = server.admin_password()
    with server:
        async with Project.opened(server.url, password, tmp_path) as project:
            with project.controller(THIS):
                assert (await project.finish(project.deployed.operation)).status == "succeeded"
                assert (await project.finish(await project.stop_instance())).status == "succeeded"


async def test_two_servers_are_upgraded_one_after_the_other_without_a_break(
    previous: Release, postgres_url: str, tmp_path: Path
) -> None:
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
                            await upgrade(first)
                            await project.check_shared(first, second)
                            await upgrade(second)
                            assert (await project.finish(deploy)).status == "succeeded"
                        await project.check_record()
                second.stop()
            check_audit(first)
