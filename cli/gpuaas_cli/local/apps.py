"""The app of the local cloud: register it, start its controller in the background, deploy an instance and test it."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from gpuaas_contract import capacity, catalog, identity, instances
from gpuaas_contract.errors import Conflict, CredentialsInvalid, NotFound

from gpuaas_cli import failures, kinds, output, terminal
from gpuaas_cli.client import home, machine
from gpuaas_cli.client.session import Session
from gpuaas_cli.local import plan, report
from gpuaas_cli.local.processes import Process
from gpuaas_cli.work import follow, waits

PACKAGES = "packages.txt"
"""File with the names of the packages that the app needs on its machines."""
CREDENTIALS = "credentials.json"
PROOF_S = 60.0
PROOF_PAUSE_S = 2.0
WATCHDOG_S = 1.0


def write_files(request: plan.CloudRequest) -> catalog.Manifest:
    """Write the packages and the manifest, as the app's own program prints them, next to the controller's log."""
    program, manifest = report.require_program(f"gpuaas-{request.app}"), request.of_app("manifest.json")
    manifest.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    request.of_app(PACKAGES).write_text(report.captured([program, "packages"]))
    manifest.write_text(report.captured([program, "manifest"]))
    return msgspec.json.decode(manifest.read_bytes(), type=catalog.Manifest)


async def offer(session: Session, manifest: catalog.Manifest) -> None:
    """Register, publish and entitle the app, unless the project may already deploy exactly this manifest."""
    slug, version = manifest.slug, manifest.version
    with report.step(f"registering {slug}", f"{slug} {version} in the catalog"):
        if any(item.manifest == manifest for item in await session.every(catalog.PROJECT_APP_LIST)):
            return
        try:
            await session.call(catalog.VERSION_REGISTER, manifest)
        except Conflict:
            report.note(f"{slug} {version} is registered with another manifest; that one is used.")
        await session.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug=slug, version=version)
        await session.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=True), app_slug=slug)


@dataclass(frozen=True)
class LocalApp:
    session: Session
    request: plan.CloudRequest
    manifest: catalog.Manifest

    @property
    def controller(self) -> Process:
        return Process(self.request.folder / self.request.app, "controller")

    async def bring_up(self, allocation_ids: Sequence[str]) -> int:
        slug = self.request.app
        await offer(self.session, self.manifest)
        with report.step(f"starting the {slug} controller", f"{slug} controller runs"):
            await self._start_controller()
        if not self.request.deploy:
            total = report.took(self.request.asked_s)
            report.note(f"Your machines are up ({total}). Next: gpuaas deploy {slug} --help")
            return failures.OK
        exit_code = await self._instance(allocation_ids)
        if exit_code == failures.OK:
            await self._prove()
        return exit_code

    async def _start_controller(self) -> None:
        await self._ensure_key(await self._ensure_account())
        command = [report.require_program(f"gpuaas-{self.request.app}"), "run", "--server", self.request.server]
        command += ["--project", await self.session.project(), "--credentials", str(self.request.of_app(CREDENTIALS))]
        record = self.controller.running()
        if record is None or record.command != command:
            self.controller.stop()
            self.controller.start(command)

    async def _ensure_account(self) -> str:
        """Create the service account of the controller, or bind it to the app, if needed; return its name."""
        name, apps = f"{self.request.app}-controller", [self.manifest.slug]
        try:
            account = await self.session.call(identity.SERVICE_ACCOUNT_GET, service_account_id=name)
        except NotFound:
            body = identity.CreateServiceAccount(name=name, apps=apps)
            account = await self.session.call(identity.SERVICE_ACCOUNT_CREATE, body)
        if not set(apps) <= set(account.apps):
            bound = identity.BindServiceAccount(apps=apps)
            await self.session.call(identity.SERVICE_ACCOUNT_BIND, bound, service_account_id=name)
        return name

    async def _ensure_key(self, name: str) -> None:
        """Keep the key of the controller if it works; create a new one if it is missing or refused."""
        file = self.request.of_app(CREDENTIALS)
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError, CredentialsInvalid):
            login = msgspec.json.decode(file.read_bytes(), type=identity.ServiceAccountLogin)
            await self.session.call(identity.SERVICE_ACCOUNT_TOKEN, login)
            return
        key = await self.session.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=name)
        content = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
        home.write_private(file, msgspec.json.encode(content))

    async def _instance(self, allocation_ids: Sequence[str]) -> int:
        name = self.request.app
        while True:
            step, instance = plan.instance_step(await self.session.every(instances.INSTANCE_LIST), name)
            if instance is None:
                topology, inputs = plan.deployment(self.manifest, allocation_ids)
                version, deploy = self.manifest.version, instances.DeployInstance
                body = deploy(name=name, app_slug=name, topology=topology, version=version, inputs=inputs)
                made = await self.session.call(instances.INSTANCE_CREATE, body)
                return await self._follow(made.operation.operation_id)
            if step == "use":
                return failures.OK
            if step == "give_up":
                raise failures.Failure(
                    f"The instance {name} is failed: {instance.status_reason or 'gpuaas describe shows why'}",
                    fix=f"gpuaas describe instance {name}; then gpuaas decommission {name} and gpuaas up",
                    code="instance_failed",
                    correlation_id=instance.correlation_id,
                )
            operation_id = instance.last_operation_id
            if step == "start":
                reason = instances.ChangeInstance(reason="gpuaas up")
                operation_id = (await self.session.call(instances.START, reason, instance_id=name)).operation_id
            if exit_code := await self._follow(operation_id):
                return exit_code

    async def _follow(self, operation_id: str) -> int:
        """Follow an operation. Stop if the controller ends, because no other controller works on it."""
        following = asyncio.ensure_future(follow.to_the_end(self.session, operation_id))
        try:
            while not (await asyncio.wait({following}, timeout=WATCHDOG_S))[0]:
                if self.controller.running() is None:
                    raise self.controller.died()
            return following.result()
        finally:
            if not following.done():
                following.cancel()
                await asyncio.wait({following})

    async def _prove(self) -> None:
        """Run the first command of the access bundle, on its machine and as its user."""
        name = self.request.app
        command = machine.first_command(await self.session.call(instances.ACCESS_BUNDLE_GET, instance_id=name), name)
        with report.step(f"trying `{command.line}`", f"{name} works: `{command.line}`"):
            async with machine.entered(self.session, command.allocation_id, "root") as login:
                shown = await _until_it_works(login, machine.as_user(command), name)
        allocations = await self.session.every(capacity.ALLOCATION_LIST)
        node = {item.allocation_id: item.node_name for item in allocations}[command.allocation_id]
        user = f" as {command.user}" if command.user else ""
        lines = [f"│ {line}" for line in shown.splitlines()]
        terminal.out("\n".join([f"┌ {node}{user}: {output.flat(command.line)}", *lines, "└"]))
        report.note(plan.TOOLCHAIN_NOTE)
        report.note(f"Your cloud is up ({report.took(self.request.asked_s)}). Next:")
        members = await kinds.members(self.session, name)
        report.commands(*plan.next_commands(self.request, self.manifest, members, allocations))


async def _until_it_works(login: machine.Login, command: list[str], name: str) -> str:
    """Repeat the command until it succeeds, because daemons start slowly. On a timeout, raise with the last error."""
    async for left_s in waits.attempts(PROOF_S, PROOF_PAUSE_S):
        tried = await asyncio.to_thread(machine.captured, login, command, timeout_s=max(1.0, left_s))
        if tried.returncode == 0:
            return tried.stdout
    message = f"{name} does not answer within {PROOF_S:g} s: {' '.join(tried.stderr.split()) or 'no output'}"
    raise failures.Failure(message, fix=f"gpuaas describe instance {name}", code="proof_failed")
