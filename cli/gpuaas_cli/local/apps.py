"""The app of the local cloud: into the catalog, its controller into the background, an instance up, and a proof."""

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import (
    ENTITLEMENT_SET,
    PROJECT_APP_LIST,
    VERSION_PUBLISH,
    VERSION_REGISTER,
    Manifest,
    PublishVersion,
    SetEntitlement,
)
from gpuaas_contract.errors import Conflict, CredentialsInvalid, NotFound
from gpuaas_contract.identity import (
    SERVICE_ACCOUNT_CREATE,
    SERVICE_ACCOUNT_GET,
    SERVICE_ACCOUNT_KEY_CREATE,
    SERVICE_ACCOUNT_TOKEN,
    CreateServiceAccount,
    ServiceAccountLogin,
)
from gpuaas_contract.instances import (
    ACCESS_BUNDLE_GET,
    INSTANCE_CREATE,
    INSTANCE_LIST,
    START,
    ChangeInstance,
    DeployInstance,
)

from gpuaas_cli import failures, kinds, output, programs
from gpuaas_cli.client import home, machine
from gpuaas_cli.client.session import Session
from gpuaas_cli.local import plan, server
from gpuaas_cli.local.machines import require_program
from gpuaas_cli.local.processes import Process
from gpuaas_cli.local.report import Report, captured
from gpuaas_cli.work import follow

PROOF_S = 60.0
PROOF_PAUSE_S = 2.0
WATCHDOG_S = 1.0


def write_files(where: plan.Places, slug: str) -> Manifest:
    """Ask the app's own program for its packages and its manifest, and keep both beside its log."""
    program = require_program(f"gpuaas-{slug}")
    where.app(slug).mkdir(mode=0o700, parents=True, exist_ok=True)
    where.packages(slug).write_text(captured([program, "packages"]))
    where.manifest(slug).write_text(captured([program, "manifest"]))
    return msgspec.json.decode(where.manifest(slug).read_bytes(), type=Manifest)


async def offer(session: Session, manifest: Manifest, report: Report) -> None:
    """Register, publish and entitle, unless the project may deploy exactly this already."""
    if any(item.manifest == manifest for item in await session.every(PROJECT_APP_LIST)):
        return
    try:
        await session.call(VERSION_REGISTER, manifest)
    except Conflict:
        report.note(f"{manifest.slug} {manifest.version} is registered with another manifest; that one is used.")
    await session.call(VERSION_PUBLISH, PublishVersion(), app_slug=manifest.slug, version=manifest.version)
    await session.call(ENTITLEMENT_SET, SetEntitlement(enabled=True), app_slug=manifest.slug)


class LocalApp:
    def __init__(
        self, session: Session, where: plan.Places, wanted: plan.Wish, report: Report, manifest: Manifest
    ) -> None:
        self._session = session
        self._where = where
        self._wanted = wanted
        self._report = report
        self._manifest = manifest
        self._controller = Process(where.app(wanted.app), "controller")

    async def bring_up(self, allocation_ids: Sequence[str]) -> int:
        slug = self._wanted.app
        with self._report.step(f"registering {slug}", f"{slug} {self._manifest.version} in the catalog"):
            await offer(self._session, self._manifest, self._report)
        with self._report.step(f"starting the {slug} controller", f"{slug} controller runs"):
            await self._start_controller()
        if not self._wanted.deploy:
            self._report.note(f"Your machines are up ({self._report.total()}). Next: gpuaas deploy {slug} --help")
            return failures.OK
        exit_code = await self._instance(allocation_ids)
        if exit_code == failures.OK:
            await self._prove()
        return exit_code

    async def _start_controller(self) -> None:
        await self._credentials()
        program = require_program(f"gpuaas-{self._wanted.app}")
        command = plan.controller_command(program, self._where, self._wanted, await self._session.project())
        record = self._controller.running()
        if record is None or record.command != command:
            self._controller.stop()
            self._controller.start(command)

    async def _credentials(self) -> None:
        """A key that works stays; a missing or refused one is replaced."""
        file = self._where.credentials(self._wanted.app)
        if await self._key_works(file):
            return
        name = f"{self._wanted.app}-controller"
        try:
            await self._session.call(SERVICE_ACCOUNT_GET, service_account_id=name)
        except NotFound:
            await self._session.call(SERVICE_ACCOUNT_CREATE, CreateServiceAccount(name=name))
        key = await self._session.call(SERVICE_ACCOUNT_KEY_CREATE, service_account_id=name)
        content = msgspec.json.encode({"key_id": key.key_id, "client_secret": key.client_secret})
        home.write_private(file, content)

    async def _key_works(self, file: Path) -> bool:
        login = _read_key(file)
        if login is None:
            return False
        try:
            await self._session.call(SERVICE_ACCOUNT_TOKEN, login)
        except CredentialsInvalid:
            return False
        return True

    async def _instance(self, allocation_ids: Sequence[str]) -> int:
        name = self._wanted.app
        while True:
            step, matches = plan.instance_step(await self._session.every(INSTANCE_LIST), name)
            if step == "use":
                return failures.OK
            if step == "give_up" and matches is not None:
                raise failures.Failure(
                    f"The instance {name} is failed: {matches.status_reason or 'gpuaas describe shows why'}",
                    fix=f"gpuaas describe instance {name}; then gpuaas decommission {name} and gpuaas up",
                    code="instance_failed",
                    correlation_id=matches.correlation_id,
                )
            if step == "follow" and matches is not None:
                operation_id = matches.last_operation_id
            elif step == "start":
                started = await self._session.call(START, ChangeInstance(reason="gpuaas up"), instance_id=name)
                operation_id = started.operation_id
            else:
                operation_id = await self._deploy(allocation_ids)
            exit_code = await self._follow(operation_id)
            if exit_code != failures.OK or step == "deploy":
                return exit_code

    async def _deploy(self, allocation_ids: Sequence[str]) -> str:
        slug = self._wanted.app
        topology, inputs = plan.deployment(self._manifest, allocation_ids)
        body = DeployInstance(
            name=slug, app_slug=slug, topology=topology, version=self._manifest.version, inputs=inputs
        )
        return (await self._session.call(INSTANCE_CREATE, body)).operation.operation_id

    async def _follow(self, operation_id: str) -> int:
        """No other controller works on the operation, so a dead one ends the wait."""
        following = asyncio.ensure_future(follow.to_the_end(self._session, operation_id))
        try:
            while not (await asyncio.wait({following}, timeout=WATCHDOG_S))[0]:
                if self._controller.running() is None:
                    raise server.died(self._controller)
            return following.result()
        finally:
            if not following.done():
                following.cancel()
                await asyncio.wait({following})

    async def _prove(self) -> None:
        """Run the first command of the access bundle, on its machine and as its user."""
        name = self._wanted.app
        machine.require_ssh()
        command = machine.first_command(await self._session.call(ACCESS_BUNDLE_GET, instance_id=name), name)
        proving = self._report.step(f"trying `{command.line}`", f"{name} works: `{command.line}`")
        with proving, machine.prepared() as folder:
            ready = await machine.ask(self._session, command.allocation_id, folder)
            shown = await _until_it_works(ready, machine.as_user(command), name)
        allocations = await self._session.every(ALLOCATION_LIST)
        node = {item.allocation_id: item.node_name for item in allocations}[command.allocation_id]
        user = f" as {command.user}" if command.user else ""
        print("\n".join(framed(f"{node}{user}: {command.line}", shown)), flush=True)
        self._report.note(f"Your cloud is up ({self._report.total()}). Next:")
        members = await kinds.members(self._session, name)
        next_commands = plan.next_commands(self._wanted, self._manifest, members, allocations)
        for line in [*programs.path_hint(), *next_commands]:
            self._report.note(f"  {line}")


def framed(title: str, text: str) -> list[str]:
    lines = output.clean(text.rstrip("\n")).splitlines()
    return [f"┌ {title}", *(f"│ {line}" for line in lines), "└"]


def _read_key(file: Path) -> ServiceAccountLogin | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ServiceAccountLogin)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


async def _until_it_works(ready: machine.Ready, command: list[str], name: str) -> str:
    """Daemons need a moment after a restart; the last error is shown if it never works."""
    ends_at = time.monotonic() + PROOF_S
    while True:
        tried = await asyncio.to_thread(_try, ready, command, max(1.0, ends_at - time.monotonic()))
        if isinstance(tried, str):
            return tried
        if time.monotonic() + PROOF_PAUSE_S >= ends_at:
            raise failures.Failure(
                f"{name} does not answer within {PROOF_S:g} s: {' '.join(tried.stderr.split()) or 'no output'}",
                fix=f"gpuaas describe instance {name}",
                code="proof_failed",
            )
        await asyncio.sleep(PROOF_PAUSE_S)


def _try(ready: machine.Ready, command: list[str], timeout_s: float) -> str | subprocess.CompletedProcess[str]:
    try:
        ended = machine.captured(ready, command, timeout_s=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end within {timeout_s:.0f} s")
    return ended.stdout if ended.returncode == 0 else ended
