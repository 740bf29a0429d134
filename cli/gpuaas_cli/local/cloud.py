"""`gpuaas up` and `gpuaas down`, step by step. Each step looks first and does only what is missing."""

import asyncio
import contextlib
import datetime
import fcntl
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpuaas_contract import capacity, identity

from gpuaas_cli import failures, output, programs
from gpuaas_cli.client import home
from gpuaas_cli.client.session import Session, open_session
from gpuaas_cli.flags import Flags
from gpuaas_cli.local import apps, machines, plan, processes, server
from gpuaas_cli.local.report import Report, captured
from gpuaas_cli.work import waits

ORG = "local"
PROJECT = "default"
NODES_READY_S = 120.0
POLL_S = 0.5


def up(home_folder: Path, request: plan.Wish) -> int:
    with locked(home_folder, request.lab):
        return asyncio.run(_up(home_folder, plan.places(home_folder, request.lab), request, Report()))


def down(home_folder: Path, lab_name: str, *, purge: bool) -> None:
    with locked(home_folder, lab_name):
        _down(home_folder, plan.places(home_folder, lab_name), lab_name, Report(), purge=purge)


@contextlib.contextmanager
def locked(home_folder: Path, lab_name: str) -> Iterator[None]:
    """The lock dies with its holder, so none is ever stale."""
    home_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home_folder / f"{lab_name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise failures.Failure(
                "Another gpuaas up or down is at work here",
                fix="Wait until it is done, then try again.",
                code="locked",
                exit_code=failures.CONFLICT,
            ) from error
        yield


async def _up(home_folder: Path, where: plan.Places, request: plan.Wish, report: Report) -> int:
    where.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lab, gateway = None, ""
    if not request.control_plane_only:
        lab = machines.Lab(report, request.lab)
        lab.require_rights()
        manifest = apps.write_files(where, request.app)
        with report.step("building the machine image (minutes the first time)", "image ready"):
            lab.build_image(where.of_app(request.app, apps.PACKAGES))
        where.machines.touch()
        gateway = lab.gateway()
    with report.step("starting the server", f"server ready on {request.server}"):
        started_at = await server.ensure(home_folder, where, request, gateway)
    async with _session(home_folder, request) as session:
        await _project(home_folder, session)
    async with _session(home_folder, request) as session:
        if lab is None:
            return await _control_plane(session, where, request, report)
        await _machines(session, where, request, lab, report, gateway, started_at)
        with report.step("claiming the machines", f"{request.nodes} allocations active"):
            allocations = await _allocations(session, request)
        app = apps.LocalApp(session, where, request, report, manifest)
        return await app.bring_up([item.allocation_id for item in allocations])


def _session(home_folder: Path, request: plan.Wish) -> contextlib.AbstractAsyncContextManager[Session]:
    """Settings in the environment are about other clouds than the one that is being started."""
    return open_session(Flags(context=request.lab), {"GPUAAS_HOME": str(home_folder)})


async def _control_plane(session: Session, where: plan.Places, request: plan.Wish, report: Report) -> int:
    if programs.find(f"gpuaas-{request.app}"):
        await apps.offer(session, apps.write_files(where, request.app), report)
    report.note(f"The control plane is up ({report.total()}). You are signed in as {server.ADMIN}.")
    report.commands("gpuaas get apps", "gpuaas node token NAME", plan.command("down", request.lab))
    return failures.OK


async def _project(home_folder: Path, session: Session) -> None:
    """The project of the local cloud exists and is the one to work in."""
    orgs = [org for org in await session.every(identity.ORG_LIST) if org.name == ORG]
    org = orgs[0] if orgs else await session.call(identity.ORG_CREATE, identity.CreateOrg(name=ORG))
    named = (await session.call(identity.PROJECT_LIST, query={"name": PROJECT})).items
    project = next((item for item in named if item.org_id == org.org_id), None)
    if project is None:
        body = identity.CreateProject(name=PROJECT)
        project = await session.call(identity.PROJECT_CREATE, body, org_id=org.org_id)
    home.change_context(home_folder, session.target.context, project_id=project.project_id)


async def _machines(
    session: Session,
    where: plan.Places,
    request: plan.Wish,
    lab: machines.Lab,
    report: Report,
    gateway: str,
    started_at: datetime.datetime,
) -> None:
    wanted = plan.node_names(request.nodes)
    captured([sys.executable, "-m", "gpuaas_agent.build", str(where.agent)])
    new = plan.to_enrol(wanted, await session.every(capacity.NODE_LIST), lab.machines())
    tokens = [await session.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name)) for name in new]
    enrolment = {
        "server": f"https://{gateway}:{plan.GATEWAY_PORT}",
        "ca_sha256": tokens[0].ca_sha256 if tokens else "",
        "tokens": {token.name: token.token for token in tokens},
    }
    home.write_private(where.enrolment, json.dumps(enrolment).encode())
    try:
        with report.step(f"starting {request.nodes} machines", f"{request.nodes} machines up"):
            lab.up(request.nodes, where.of_app(request.app, apps.PACKAGES), where.agent, where.enrolment)
    finally:
        where.enrolment.unlink(missing_ok=True)
    with report.step("waiting for the nodes", f"{request.nodes} nodes ready"):
        await _until_nodes_ready(session, wanted, started_at, request)


async def _until_nodes_ready(
    session: Session, wanted: list[str], seen_since: datetime.datetime, request: plan.Wish
) -> None:
    ends_at = time.monotonic() + NODES_READY_S
    while missing := plan.not_ready(wanted, await session.every(capacity.NODE_LIST), seen_since):
        if time.monotonic() >= ends_at:
            raise failures.timeout(
                f"No heartbeat of {', '.join(missing)} within {NODES_READY_S:g} s; a machine that belonged to another "
                "server keeps asking for that one until it is purged",
                f"gpuaas lab exec {missing[0]} --lab {request.lab} -- journalctl -u gpuaas-agent -n 20",
            )
        await asyncio.sleep(POLL_S)


async def _allocations(session: Session, request: plan.Wish) -> list[capacity.Allocation]:
    wanted = plan.node_names(request.nodes)
    for name in plan.to_allocate(wanted, await session.every(capacity.ALLOCATION_LIST)):
        await session.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))
    held = plan.allocations_of(wanted, await session.every(capacity.ALLOCATION_LIST))
    result = [await waits.settled(session, item.allocation_id) for item in held]
    for item in result:
        if item.status != "active":
            raise failures.Failure(
                f"The allocation of {item.node_name} is {item.status}: {item.status_reason}",
                fix=f"gpuaas allocation release {item.allocation_id}, then gpuaas up",
                code="allocation_failed",
            )
    return result


def _down(home_folder: Path, where: plan.Places, lab_name: str, report: Report, *, purge: bool) -> None:
    lab = machines.Lab(report, lab_name) if where.machines.exists() else None
    if lab:
        lab.require_rights()
    for file in sorted(where.folder.glob("*/controller.pid")):
        _stop(processes.Process(file.parent, "controller"), f"{file.parent.name} controller", report)
    _stop(processes.Process(where.folder, "server"), "server", report)
    if lab:
        with report.step("stopping the machines", "machines stopped" + (" and deleted" if purge else "")):
            lab.down(purge=purge)
    if purge:
        shutil.rmtree(where.folder, ignore_errors=not where.folder.exists())
        home.forget_context(home_folder, lab_name)
        report.note("Data deleted.")
    elif where.data.exists():
        again, delete = plan.command("up", lab_name), plan.command("down --purge", lab_name)
        report.note(f"Data stays in {where.folder}. Start again: {again} · delete: {delete}")
    else:
        output.talk("Nothing runs here.")


def _stop(process: processes.Process, what: str, report: Report) -> None:
    running = process.running() is not None
    with report.step(f"stopping the {what}", f"{what} stopped") if running else contextlib.nullcontext():
        process.stop()
