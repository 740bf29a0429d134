"""An app, as its team declares it: a manifest and one handler per kind of operation."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import yaml
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.operations import INSTANCE_KINDS, OperationKind

from gpuaas_sdk import machine
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import command
from gpuaas_sdk.controller.machines import Connect
from gpuaas_sdk.controller.runner import DEFAULT_SETTINGS, Handler, Runner, RunnerSettings


class App:
    def __init__(self, slug: str, *, manifest: Path, packages: Sequence[str] = ()) -> None:
        """`packages`: the Debian packages its machines must be able to install; a lab without a network asks."""
        self.slug = slug
        self.packages = tuple(packages)
        self.manifest = _read_manifest(manifest)
        self._handlers: dict[tuple[str, str], Handler] = {}
        if self.manifest.slug != slug:
            raise ValueError(f"{manifest} is the manifest of {self.manifest.slug!r}, not of {slug!r}")

    def operation(self, kind: OperationKind, role: str = "") -> Callable[[Handler], Handler]:
        """Register the handler of a kind; with a role, only for members of that role."""
        self._check(kind, role)

        def register(handler: Handler) -> Handler:
            if (kind, role) in self._handlers:
                raise ValueError(f"{self.slug} already has a handler for {kind} {role}".rstrip())
            self._handlers[kind, role] = handler
            return handler

        return register

    def find_handler(self, kind: str, component_key: str) -> Handler | None:
        return self._handlers.get((kind, component_key)) or self._handlers.get((kind, ""))

    def runner(
        self,
        client: Client,
        project_id: str,
        name: str,
        *,
        settings: RunnerSettings = DEFAULT_SETTINGS,
        connect: Connect = machine.connect,
    ) -> Runner:
        """What claims and runs this app's operations. Tests pass a short lease and machines of their own."""
        return Runner(
            client,
            app_slug=self.slug,
            project_id=project_id,
            name=name,
            find_handler=self.find_handler,
            settings=settings,
            connect=connect,
        )

    def main(self, argv: Sequence[str] | None = None) -> int:
        """The console script of the app's controller."""
        return command.main(self.manifest, self.packages, self.runner, argv)

    def _check(self, kind: OperationKind, role: str) -> None:
        if kind in INSTANCE_KINDS:
            if role:
                raise ValueError(f"{kind} is about the whole instance; leave the role out")
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
