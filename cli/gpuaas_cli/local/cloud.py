"""The steps of `gpuaas up` and `gpuaas down`. Each step checks first and does only what is missing."""

import asyncio
import contextlib
import datetime
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator

from gpuaas_contract import capacity, identity

from gpuaas_cli import failures, output, programs
from gpuaas_cli.client import home
from gpuaas_cli.client.session import Session, open_session
from gpuaas_cli.flags import Flags
from gpuaas_cli.local import apps, choice, console, plan, processes, report, server
from gpuaas_cli.work import waits

ORG = "local"
PROJECT = "default"
NODES_READY_S = 120.0


def up(request: plan.CloudRequest) -> int:
    with locked(request):
        return asyncio.run(_up_with_console(request))


async def _up_with_console(request: plan.CloudRequest) -> int:
    result = await _up(request)
    await console.ensure(request)
    return result


@contextlib.contextmanager
def locked(request: plan.CloudRequest) -> Iterator[None]:
    """Lock the lab. The kernel releases the lock when the process ends, so a lock is never stale. Nothing of the lab is
    left after a purge, so the file is deleted then; another process that had opened it has no lock."""
    request.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = request.home / f"{request.lab}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError) as error:
            message, fix = "Another gpuaas up or down is at work here", "Wait until it is done, then try again."
            raise failures.Failure(message, fix=fix, code="locked", exit_code=failures.CONFLICT) from error
        yield
        if not request.folder.exists():
            path.unlink()


async def _up(request: plan.CloudRequest) -> int:
    request.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lab, gateway = None, ""
    if not request.control_plane_only:
        lab = report.Lab(request.lab)
        manifest = apps.write_files(request)
        with report.step("building the machine image (minutes the first time)", "image ready"):
            lab.run("image", "--packages", str(request.of_app(apps.PACKAGES)), *plan.image_options(request))
        (request.folder / plan.MACHINES).touch()
        # Creates the bridge. Machines reach the server at this host's address on it.
        gateway = lab.ask("network")["gateway"]
    if not request.release_public_key.exists():
        report.captured([sys.executable, "-m", "gpuaas_agent.signer", "create-key", str(request.release_key)])
    with report.step("starting the server", f"server ready on {request.server}"):
        started_at = await server.ensure(request, gateway)
    async with _session(request) as session:
        await _project(request, session)
    async with _session(request) as session:
        if lab is None:
            return await _control_plane(request, session)
        await _machines(request, session, lab, gateway)
        with report.step("waiting for the nodes", f"{request.nodes} nodes ready"):
            await _until_nodes_ready(request, session, started_at)
        with report.step("claiming the machines", f"{request.nodes} allocations active"):
            allocations = await _allocations(request, session)
        return await apps.LocalApp(session, request, manifest).bring_up([item.allocation_id for item in allocations])


def _session(request: plan.CloudRequest) -> contextlib.AbstractAsyncContextManager[Session]:
    """Open a session without the settings in the environment, because they can be for another cloud."""
    return open_session(Flags(context=request.lab), {"GPUAAS_HOME": str(request.home)})


async def _control_plane(request: plan.CloudRequest, session: Session) -> int:
    if programs.find(f"gpuaas-{request.app}"):
        await apps.offer(session, apps.write_files(request))
    report.note(f"The control plane is up ({report.took(request.asked_s)}). You are signed in as {server.ADMIN}.")
    report.commands("gpuaas get apps", "gpuaas node token NAME", plan.command("down", request.lab))
    return failures.OK


async def _project(request: plan.CloudRequest, session: Session) -> None:
    """Create the project of the local cloud if it is missing, and select it in the context."""
    orgs = [org for org in await session.every(identity.ORG_LIST) if org.name == ORG]
    org = (
        orgs[0]
        if orgs
        else await session.call(identity.ORG_CREATE, identity.CreateOrg(name=ORG, first_admin=server.ADMIN))
    )
    named = (await session.call(identity.PROJECT_LIST, query={"name": PROJECT})).items
    project = next((item for item in named if item.org_id == org.org_id), None)
    if project is None:
        body = identity.CreateProject(name=PROJECT)
        project = await session.call(identity.PROJECT_CREATE, body, org_id=org.org_id)
    home.change_context(request.home, session.target.context, project_id=project.project_id)


async def _machines(request: plan.CloudRequest, session: Session, lab: report.Lab, gateway: str) -> None:
    agent, enrolment = request.folder / "agent.pyz", request.folder / "enrol.json"
    report.captured([sys.executable, "-m", "gpuaas_agent.build", str(agent)])
    # All machines that have a disk, running or not.
    machines = {machine["name"] for machine in lab.ask("status", "-o", "json")}
    new = plan.to_enrol(plan.node_names(request.nodes), await session.every(capacity.NODE_LIST), machines)
    tokens = [await session.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name)) for name in new]
    content = {
        "server": f"https://{gateway}:{plan.GATEWAY_PORT}",
        "ca_sha256": tokens[0].ca_sha256 if tokens else "",
        "tokens": {token.name: token.token for token in tokens},
        "release_keys": [request.release_public_key.read_text()],
    }
    home.write_private(enrolment, json.dumps(content).encode())
    try:
        with report.step(f"starting {request.nodes} machines", f"{request.nodes} machines up"):
            files = ["--packages", str(request.of_app(apps.PACKAGES)), "--agent", str(agent), "--enrol", str(enrolment)]
            lab.run("up", "--nodes", str(request.nodes), *files, *plan.image_options(request))
    finally:
        enrolment.unlink(missing_ok=True)


async def _until_nodes_ready(request: plan.CloudRequest, session: Session, seen_since: datetime.datetime) -> None:
    async for _ in waits.attempts(NODES_READY_S):
        nodes = await session.every(capacity.NODE_LIST)
        missing = plan.not_ready(plan.node_names(request.nodes), nodes, seen_since)
        if not missing:
            return
    raise failures.timeout(
        f"No heartbeat of {', '.join(missing)} within {NODES_READY_S:g} s; a machine that belonged to another "
        "server keeps asking for that one until it is purged",
        f"gpuaas lab exec {missing[0]} --lab {request.lab} -- journalctl -u gpuaas-agent -n 20",
    )


async def _allocations(request: plan.CloudRequest, session: Session) -> list[capacity.Allocation]:
    wanted = plan.node_names(request.nodes)
    for name in plan.to_allocate(wanted, await session.every(capacity.ALLOCATION_LIST)):
        await session.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))
    held = plan.allocations_of(wanted, await session.every(capacity.ALLOCATION_LIST))
    result = [await waits.settled(session, item.allocation_id) for item in held]
    for item in result:
        if item.status != "active":
            message = f"The allocation of {item.node_name} is {item.status}: {item.status_reason}"
            fix = f"gpuaas allocation release {item.allocation_id}, then gpuaas up"
            raise failures.Failure(message, fix=fix, code="allocation_failed")
    return result


def down(request: plan.CloudRequest, *, purge: bool) -> None:
    with locked(request):
        if not request.folder.exists():
            home.forget_context(request.home, request.lab)
            output.talk(_nothing_here(request))
            return
        report.note(f"The local cloud {request.lab}, with its data in {request.folder}:")
        lab = report.Lab(request.lab) if (request.folder / plan.MACHINES).exists() else None
        for file in sorted(request.folder.glob("*/controller.pid")):
            _stop(processes.Process(file.parent, "controller"), f"{file.parent.name} controller")
        _stop(processes.Process(request.folder, "console"), "console")
        _stop(processes.Process(request.folder, "server"), "server")
        if lab:
            with report.step("stopping the machines", "machines stopped" + (" and deleted" if purge else "")):
                lab.run("down", *(["--purge"] if purge else []))
        if purge:
            shutil.rmtree(request.folder, ignore_errors=not request.folder.exists())
            home.forget_context(request.home, request.lab)
            report.note(f"Data of {request.lab} deleted.{_current_now(request)}")
        elif request.data.exists():
            again, delete = plan.command("up", request.lab), f"gpuaas down --purge --lab {request.lab}"
            report.note(f"Data stays in {request.folder}. Start again: {again} · delete: {delete}")
        else:
            output.talk("Nothing runs here.")


def _nothing_here(request: plan.CloudRequest) -> str:
    here = choice.local_clouds(request.home)
    if not here:
        return "Nothing runs here."
    names = ", ".join(here)
    return f"There is no local cloud {request.lab} in {request.home}; there is {names}. Nothing was stopped or deleted."


def _current_now(request: plan.CloudRequest) -> str:
    """Return which context is the current one after that of the cloud was deleted; empty if there is none."""
    config = home.load(request.home)
    if not config.current:
        return ""
    return f" The current context is {config.current} ({config.contexts[config.current].server})."


def _stop(process: processes.Process, what: str) -> None:
    running = process.running() is not None
    with report.step(f"stopping the {what}", f"{what} stopped") if running else contextlib.nullcontext():
        process.stop()
