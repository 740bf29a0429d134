"""A fake platform in memory that serves the runtime API over HTTP, with the real rules for claims, leases and states.

A test requests operations, runs an app's `Runner` against the fake platform, and reads what was stored."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import Manifest, SecretPurpose, StewardSpec
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.holds import Hold, HoldKind
from gpuaas_contract.instances import AccessBundle, BreakerState, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import DEADLINES_S, JOINING, ExitName, LogLine, Operation, OperationKind
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_contract.placements import ArtifactPlacement
from gpuaas_contract.protocol.steward import Shape
from starlette.applications import Starlette

from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.testing.platform import rows
from gpuaas_sdk.testing.platform.artifacts import Artifacts
from gpuaas_sdk.testing.platform.breakers import Breakers
from gpuaas_sdk.testing.platform.edge import Account, Changes, Edge, OnCall, SignIn
from gpuaas_sdk.testing.platform.observations import Observations
from gpuaas_sdk.testing.platform.records import Clock, Records
from gpuaas_sdk.testing.platform.routes import Locate, Routes, by_name
from gpuaas_sdk.testing.platform.runtime import Runtime
from gpuaas_sdk.testing.platform.secrets import Secrets
from gpuaas_sdk.testing.platform.stewards import Stewards
from gpuaas_sdk.testing.platform.usage import Usage
from gpuaas_sdk.testing.server import serving


class FakePlatform:
    """A fake platform with one project and one service account. It runs in the event loop of the test.

    platform = FakePlatform("hello")
    instance = platform.add_instance({"server": ["gpu-1", "gpu-2"]})
    operation = platform.request(instance, "deploy")
    async with platform.serve() as client:
        runner = app.runner(client, platform.project_id, "test", connect=machines.connect)
        running = asyncio.create_task(runner.run())
        assert (await platform.ended(operation.operation_id)).status == "succeeded"
        running.cancel()"""

    def __init__(
        self,
        app_slug: str,
        *,
        secret_purposes: Sequence[SecretPurpose] = (),
        permissions: Collection[str] = CONTROLLER_KEYS,
        steward: StewardSpec = StewardSpec(),  # noqa: B008 - frozen
        clock: Clock = lambda: datetime.datetime.now(datetime.UTC),
        locate: Locate = by_name,
        project_id: str = "prj_test",
        sign_in: SignIn | None = None,
    ) -> None:
        """`locate` returns where a controller logs in to a machine, if machines exist apart from `FakeMachines`.

        `secret_purposes` and `steward` must be those that the app's manifest declares; so must `permissions`, if its
        `controller` lists any. `sign_in` is shared by the projects of a `FakeOrganisation`."""
        self.app_slug = app_slug
        """The app that the service account operates."""
        self.project_id = project_id
        """The project of all instances."""
        sign_in = sign_in or SignIn()
        self.key_id = sign_in.key_id
        """The key of the service account."""
        self.client_secret = sign_in.client_secret
        """The secret of the key."""
        self.records = Records(self.project_id, clock)
        account = Account(self.key_id, frozenset({app_slug}), frozenset(permissions))
        self.breakers = Breakers(self.records)
        self.runtime = Runtime(self.records, account, self.breakers)
        self.stewards = Stewards(self.records, account, steward, self.breakers)
        self.observations = Observations(self.records, self.stewards, app_slug, account)
        self.secrets = Secrets(self.records, self.runtime, secret_purposes)
        self.artifacts = Artifacts(self.records, self.runtime)
        self.usage = Usage(self.records, self.runtime, self.stewards)
        self.visible_projects: Callable[[], Sequence[str]] = lambda: [self.project_id]
        """Returns the projects that the service account can see."""
        self._edge = Edge(self.project_id, account, sign_in)
        self._changes = Changes()
        routes = Routes(
            edge=self._edge,
            changes=self._changes,
            records=self.records,
            runtime=self.runtime,
            observations=self.observations,
            stewards=self.stewards,
            secrets=self.secrets,
            artifacts=self.artifacts,
            usage=self.usage,
            locate=locate,
            visible_projects=lambda: self.visible_projects(),
        )
        self.app = Starlette(routes=routes.all())

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Every authenticated call: the endpoint's name and the request body."""
        return self._edge.calls

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Endpoint and error code of every refused call."""
        return self._edge.refusals

    def on_call(self, decide: OnCall) -> None:
        """Call `decide` with every authenticated call before it is executed; its result decides what happens to it."""
        self._edge.on_call = decide

    def add_instance(
        self,
        members: Mapping[str, Sequence[str]],
        *,
        app_slug: str = "",
        name: str = "demo",
        topology: str = "",
        inputs: dict[str, Any] | None = None,
        ready: bool = False,
    ) -> Instance:
        """Add an instance. `members` lists the nodes of each role. With `ready`, the instance is already deployed.

        With `app_slug`, it is an instance of another app, which the service account does not operate."""
        if app_slug:
            self.observations.other_apps.add(app_slug)
        instance = self.records.add_instance(app_slug or self.app_slug, name, topology, inputs or {})
        for component_key, node_names in members.items():
            for node_name in node_names:
                self.records.add_member(instance, component_key, node_name)
        return self.records.make_ready(instance) if ready else instance

    def request(
        self,
        instance: Instance,
        kind: OperationKind,
        targets: Sequence[Member] | None = None,
        *,
        component_key: str = "",
        reason: str = "",
        force: bool = False,
        deadline_s: float | None = None,
        stop_after_failures: int = 0,
        replacements: Sequence[str] = (),
        to_version: str = "",
        inputs: dict[str, Any] | None = None,
    ) -> Operation:
        """Request an operation; without `targets` it concerns every live member.

        `replacements` lists the node that each target of a `replace` moves to. Before an upgrade, add its version with
        `add_version`; `inputs` are those that it changes. The breaker of the role may refuse an add and a replace, see
        `breaker`."""
        if kind in JOINING:
            self.breakers.check(instance.instance_id, component_key)
        if to_version and to_version not in self.records.manifests:
            raise ValueError(f"The app has no version {to_version}; add it with add_version(manifest).")
        chosen = tuple(self.members(instance) if targets is None else targets)
        moves = dict(zip((member.member_id for member in chosen), replacements, strict=False))
        return self._accept(
            instance,
            kind,
            rows.OperationRequest(
                targets=chosen,
                component_key=component_key,
                reason=reason,
                force=force,
                deadline_s=DEADLINES_S[kind] if deadline_s is None else deadline_s,
                stop_after_failures=stop_after_failures,
                replacements=moves,
                to_version=to_version,
                inputs={**instance.inputs, **inputs} if inputs else {},
            ),
        )

    def reconfigure(self, instance: Instance, inputs: dict[str, Any]) -> Operation:
        """Request a change of inputs; those that are not named stay as they are."""
        before = self.records.instance(instance.instance_id).inputs
        request = rows.OperationRequest(
            targets=tuple(self.members(instance)),
            deadline_s=DEADLINES_S["reconfigure"],
            inputs={**before, **inputs},
            inputs_before=before,
        )
        return self._accept(instance, "reconfigure", request)

    def invoke(
        self, instance: Instance, action: str, inputs: dict[str, Any] | None = None, *, requested_by: str = "test"
    ) -> Operation:
        """Request an action of the app. `requested_by` is the id of the user who asks."""
        request = rows.OperationRequest(
            targets=(), deadline_s=DEADLINES_S["action"], action=action, inputs=inputs or {}, requested_by=requested_by
        )
        return self._accept(instance, "action", request)

    def ask_preview(
        self,
        instance: Instance,
        kind: OperationKind,
        targets: Sequence[Member] | None = None,
        *,
        component_key: str = "",
        inputs: dict[str, Any] | None = None,
        force: bool = False,
    ) -> Operation:
        """Request a preview of an operation, as a dry run does; `inputs` are those that a reconfigure would change."""
        chosen = self.members(instance) if targets is None else targets
        request = rows.OperationRequest(
            targets=(),
            deadline_s=DEADLINES_S["preview"],
            component_key=component_key,
            force=force,
            inputs={"member_ids": [member.member_id for member in chosen]}
            | ({"inputs": {**instance.inputs, **inputs}} if inputs else {}),
            preview_of=kind,
        )
        return self._accept(instance, "preview", request)

    def cancel(self, operation_id: str, reason: str = "not wanted") -> Operation:
        """Cancel an operation, as a user does."""
        cancelled = self.runtime.cancel(operation_id, reason)
        self._changes.wake()
        return cancelled

    def retry(self, operation_id: str, reason: str = "repaired") -> Operation:
        """Retry a failed operation."""
        return self._reopen(operation_id, "retry", reason)

    def compensate(self, operation_id: str, reason: str = "not wanted") -> Operation:
        """Request that the finished part of a failed operation is undone."""
        return self._reopen(operation_id, "compensate", reason)

    def breaker(self, instance: Instance, component_key: str) -> BreakerState:
        """Return whether the breaker of a role is open. Add the version of the instance with `add_version` before:
        its manifest declares how many failures open the breaker."""
        return self.breakers.state(instance.instance_id, component_key)

    def reset_breaker(self, instance: Instance, component_key: str) -> None:
        """Close the breaker of a role, as people do after a repair."""
        self.breakers.reset(instance.instance_id, component_key)

    def add_spare(self, node_name: str, *, sku: str = "", region: str = "", gpus: int = 0) -> None:
        """Add a machine of the project that no instance uses. Members have machines without SKU, region and GPUs."""
        self.records.spares[node_name] = Shape(sku, region, gpus)

    def lose(self, node_name: str) -> None:
        """Mark the node as lost, as if its agent sent no heartbeats. Its machine does not change."""
        self.records.lost.add(node_name)

    def hold(
        self, member: Member, kind: HoldKind = "no_removal", *, reason: str = "because", ttl_s: float = 3600
    ) -> Hold:
        """Place a hold on the member."""
        return self.records.add_hold(member, kind, reason, ttl_s)

    def add_artifact(self, instance: Instance, name: str, content: bytes) -> Artifact:
        """Add an artifact, as if the manifest of the instance's version named it."""
        artifact = self.artifacts.put(name, content)
        present = self.records.instances[instance.instance_id]
        digests = {**present.artifacts, name: artifact.digest}
        self.records.instances[instance.instance_id] = msgspec.structs.replace(present, artifacts=digests)
        return artifact

    def fail_placement(self, code: str, message: str = "set by the test") -> None:
        """Make the next placement of an artifact fail with this error code of the agent or of the platform."""
        self.artifacts.failures.append(TaskError(code=code, message=message))

    def add_version(self, manifest: Manifest) -> None:
        """Add a version of the app to which instances can be upgraded."""
        self.artifacts.add_version(manifest)

    @property
    def placements(self) -> list[ArtifactPlacement]:
        """Every placement of an artifact on a machine, oldest first."""
        return list(self.artifacts.placements.values())

    def operation(self, operation_id: str) -> Operation:
        """Return the operation as it is now."""
        return self.records.operation(operation_id)

    def members(self, instance: Instance) -> list[Member]:
        """Return the live members of the instance."""
        return self.records.live_members(instance.instance_id)

    def member(self, member_id: str) -> Member:
        """Return the member as it is now."""
        return self.records.members[member_id]

    def access_bundle(self, instance: Instance) -> AccessBundle:
        """Return the access bundle of the instance; empty if the app has not published one."""
        return self.records.access_bundles.get(instance.instance_id, AccessBundle())

    def expire_lease(self, operation_id: str) -> None:
        """Let the lease expire now, as if its controller had sent no heartbeats."""
        self.runtime.expire_lease(operation_id)
        self._changes.wake()

    def end_leases(self) -> None:
        """Take all work away from the service account, as if the project had dismissed it. It must claim again."""
        self.runtime.end_leases()
        self.stewards.withdraw_all()
        self._changes.wake()

    def instance(self, instance_id: str) -> Instance:
        """Return the instance as it is now, with its steward."""
        return self.stewards.shown(self.records.instance(instance_id))

    def lose_answers(self, endpoint: Endpoint[Any, Any], count: int = 1) -> None:
        """Discard the responses to the next `count` calls of this endpoint; the calls still take effect."""
        self._edge.answers_to_lose[endpoint.name] += count

    def revoke_tokens(self) -> None:
        """Refuse every token issued so far. The service-account key stays valid, so a client can get a new token."""
        self._edge.tokens.clear()

    async def until(
        self, operation_id: str, condition: Callable[[Operation], bool], *, timeout_s: float = 60
    ) -> Operation:
        """Wait until the condition is true for the operation, and return the operation."""
        async with asyncio.timeout(timeout_s):
            while not condition(operation := self.operation(operation_id)):
                await self._changes.wait()
        return operation

    async def changed(self) -> None:
        """Wait for the next change of anything."""
        await self._changes.wait()

    async def ended(self, operation_id: str, *, timeout_s: float = 60) -> Operation:
        """Wait until the operation has ended, and return it."""
        return await self.until(operation_id, lambda now: now.status in ENDED_OPERATION, timeout_s=timeout_s)

    def log(self, operation_id: str) -> list[LogLine]:
        """Return the lines of the controller's log about the operation, as the platform stores them."""
        return self.records.logs.get(operation_id, [])

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Client]:
        """Serve the platform on loopback and yield a client that is signed in as the service account."""
        async with serving(self.app) as server, self.client(server) as client:
            yield client

    def client(self, server: str) -> Client:
        """Return a client with the key of this platform for a server at another address."""
        return Client(server, ServiceAccount(self.key_id, self.client_secret))

    def _accept(self, instance: Instance, kind: OperationKind, request: rows.OperationRequest) -> Operation:
        operation = self.records.add_operation(instance, kind, request)
        self._changes.wake()
        return operation

    def _reopen(self, operation_id: str, name: ExitName, reason: str) -> Operation:
        deadline_s = DEADLINES_S[self.operation(operation_id).kind]
        reopened = self.runtime.reopen(operation_id, name, reason, deadline_s)
        self._changes.wake()
        return reopened
