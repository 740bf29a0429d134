"""An app as its team declares it: a manifest, and handlers for the operations that the manifest lists."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import msgspec
import yaml
from gpuaas_contract.catalog import Manifest, ReplaceOrder
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, PREVIEWED_KINDS, UNDONE, OperationKind

from gpuaas_sdk import machine
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import command, declared_steps, handlers, inputs
from gpuaas_sdk.controller.command import AppCommand
from gpuaas_sdk.controller.declared_steps import DeclaredStep, Look
from gpuaas_sdk.controller.gauges import Gauges
from gpuaas_sdk.controller.handlers import ActionHandler, Handler, Handlers, PreviewHandler
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.operation.machines import Connect
from gpuaas_sdk.controller.reconciliation import Health
from gpuaas_sdk.controller.redaction import PROCESS_SECRETS_MAX, Redaction
from gpuaas_sdk.controller.runner import DEFAULT_SETTINGS, Runner, RunnerSettings
from gpuaas_sdk.traces import Spans

Name = TypeVar("Name")
AnyHandler = TypeVar("AnyHandler")
About = TypeVarTuple("About")


class App:
    """An app. Its decorators register handlers; `main` runs its controller.

    app = App("hello", manifest=Path("manifest.yaml"))

    @app.operation("deploy")
    async def deploy(op: Operation) -> None:
        await op.each(op.to_do, join)

    sys.exit(app.main())"""

    def __init__(
        self,
        slug: str,
        *,
        manifest: Path,
        packages: Sequence[str] = (),
        settings: RunnerSettings = DEFAULT_SETTINGS,
        commands: Mapping[str, AppCommand] | None = None,
    ) -> None:
        """`packages` are the Debian packages that its machines need; a lab fetches them while it has a network.
        `commands` are added to the app's command line, by name."""
        self.slug = slug
        """The name of the app in the catalog."""
        self._commands = commands or {}
        # Shared by the runners of all projects: a line of one must not contain a secret of another one.
        self._redaction = Redaction(PROCESS_SECRETS_MAX)
        self.settings = settings
        """Lease, retries and limits of its runner."""
        self.packages = tuple(packages)
        """Debian packages that its machines need."""
        self.manifest = _read_manifest(manifest)
        """The manifest as it was read from the file."""
        orders = {role.component_key: role.replace_order for role in self.manifest.roles if role.replace_order}
        self._handlers = Handlers(slug, inputs.forms_of(self.manifest), declared_orders=orders)
        if self.manifest.slug != slug:
            raise ValueError(f"{manifest} is the manifest of {self.manifest.slug!r}, not of {slug!r}")

    def operation(
        self, kind: OperationKind, role: str = "", *, replace_order: ReplaceOrder | None = None
    ) -> Callable[[Handler], Handler]:
        """Register the handler of an operation kind; with a role, only for members of that role.

        `replace_order` is for `replace`: which machine changes first. If the manifest declares an order for a role, the
        controller starts only if the handler has the same one.

            @app.operation("replace", role="worker", replace_order="new_first")
            async def replace(op: Operation) -> None: ..."""
        if kind in ASKING_KINDS:
            raise ValueError(f"declare the handlers of {kind}s with @app.{kind}")
        if replace_order is not None and kind != "replace":
            raise ValueError(f"replace_order is for replace, not for {kind}")
        self._check(kind, role)
        if replace_order is not None:
            self._handlers.replace_orders[role] = replace_order
        return self._register(self._handlers.operations, (kind, role), f"handler for {kind} {role}")

    def undo(self, kind: OperationKind, role: str = "") -> Callable[[Handler], Handler]:
        """Register the handler that undoes unfinished work: after a cancel, and to compensate.

        `op.to_do` are the members to undo; `UNDONE` of the contract lists the status each must reach."""
        if kind not in UNDONE:
            raise ValueError(f"an undo handler for {kind} is never called: the platform does not undo it")
        self._check(kind, role)
        return self._register(self._handlers.undos, (kind, role), f"undo handler for {kind} {role}")

    def step(
        self, name: str, *, attempts: int | None = None, within_s: float | None = None
    ) -> Callable[[Callable[[Operation, *About], Awaitable[None]]], DeclaredStep[*About]]:
        """Declare a step that takes the operation, or the operation and a member. Handlers call it; `undo` of the step
        declares how it is undone, for `undo_by_steps` and `Operation.undo_steps`. The limits are those of
        `Operation.step`.

            @app.step("start", attempts=3)
            async def start(op: Operation, member: Member) -> None: ...

            @start.undo
            async def stop(op: Operation, member: Member) -> None: ...

            await start(op, member)  # in a handler"""

        def declare(function: Callable[[Operation, *About], Awaitable[None]]) -> DeclaredStep[*About]:
            step = DeclaredStep(name, function, attempts=attempts, within_s=within_s)
            if name in self._handlers.steps:
                raise ValueError(f"{self.slug} already has a step {name!r}")
            self._handlers.steps[name] = step
            return step

        return declare

    def undo_by_steps(self, kind: OperationKind, role: str = "", *, evidence: Look | None = None) -> None:
        """Undo an operation kind by the undos of its steps, the last step first; then members get their status from
        before. `evidence` returns evidence that a member does no work, if one can be ready before the operation ends.

            app.undo_by_steps("add", role="worker")"""

        async def undo(op: Operation) -> None:
            await declared_steps.undo_by_steps(op, evidence)

        self.undo(kind, role)(undo)

    def preview(self, kind: OperationKind, role: str = "") -> Callable[[PreviewHandler], PreviewHandler]:
        """Register the handler that reports, for a dry run, which work an operation would interrupt."""
        if kind not in PREVIEWED_KINDS:
            raise ValueError(f"a preview handler for {kind} is never called: the platform has no preview of it")
        self._check(kind, role)
        return self._register(self._handlers.previews, (kind, role), f"preview handler for {kind} {role}")

    def action(self, name: str) -> Callable[[ActionHandler], ActionHandler]:
        """Register the handler of an action of the manifest. Its return value is the action's result."""
        if name not in {action.name for action in self.manifest.actions}:
            raise ValueError(f"the manifest of {self.slug} has no action {name!r}")
        return self._register(self._handlers.actions, name, f"handler for action {name}")

    def health(self, every_s: float = 10.0) -> Callable[[Health], Health]:
        """Register the handler that looks at instances between operations: at this interval, and after every operation.

        One controller process at a time looks at an instance. If the handler raises or takes too long, the instance
        gets the condition `HealthCheckWorks` with the reason."""

        def register(handler: Health) -> Health:
            if self._handlers.health is not None:
                raise ValueError(f"{self.slug} already has a health handler")
            self._handlers.health, self._handlers.health_every_s = handler, every_s
            return handler

        return register

    def find_handler(self, kind: str, component_key: str) -> Handler | None:
        """Return the handler of an operation kind for a role."""
        return handlers.find(self._handlers.operations, kind, component_key)

    def runner(
        self,
        client: Client,
        project_id: str,
        name: str,
        *,
        settings: RunnerSettings | None = None,
        connect: Connect = machine.connect,
        spans: Spans | None = None,
        gauges: Gauges | None = None,
    ) -> Runner:
        """Return a runner that claims and runs this app's operations. Tests pass their own settings and machines.

        With `spans`, each operation, step and command on a machine is a span of the request's trace. `gauges` gets what
        the health handler measures."""
        return Runner(
            client,
            project_id=project_id,
            name=name,
            version=self.manifest.version,
            handlers=self._handlers,
            settings=settings or self.settings,
            connect=connect,
            spans=spans,
            gauges=gauges,
            redaction=self._redaction,
        )

    def unkept(self) -> list[str]:
        """Return what the manifest promises and no handler does. A controller does not start with an unkept promise.

        assert app.unkept() == []"""
        return self._handlers.unkept(self.manifest)

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line of the app and return its exit status."""
        return command.main(self.manifest, self.packages, self.runner, argv, self._commands, self.unkept())

    def _register(self, table: dict[Name, AnyHandler], name: Name, what: str) -> Callable[[AnyHandler], AnyHandler]:
        def register(handler: AnyHandler) -> AnyHandler:
            if name in table:
                raise ValueError(f"{self.slug} already has a {what}".rstrip())
            table[name] = handler
            return handler

        return register

    def _check(self, kind: OperationKind, role: str) -> None:
        if kind in INSTANCE_KINDS:
            if role:
                raise ValueError(f"{kind} concerns the whole instance; leave the role out")
            if kind not in ("deploy", "decommission", *self.manifest.instance_operations):
                raise ValueError(f"the manifest of {self.slug} does not list {kind!r} in its instance_operations")
            return
        roles = [spec for spec in self.manifest.roles if role in ("", spec.component_key)]
        if not roles:
            raise ValueError(f"the manifest of {self.slug} has no role {role!r}")
        if not any(kind in spec.operations for spec in roles):
            which = f"role {role!r}" if role else "no role"
            verb = "does not list" if role else "lists"
            raise ValueError(f"the manifest of {self.slug}: {which} {verb} {kind!r} in its operations")


def _read_manifest(path: Path) -> Manifest:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), Manifest)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is not a manifest: {error}") from error
