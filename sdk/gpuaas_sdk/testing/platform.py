"""A platform in memory that speaks the runtime API over HTTP, with the real rules of claims, leases and lifecycles.

A test asks for operations, lets a `Runner` work against the address, and reads what is on record."""

import asyncio
import datetime
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import Manifest, SecretPurpose
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.holds import Hold, HoldKind
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.node import TaskError
from gpuaas_contract.operations import DEADLINES_S, ExitName, Operation, OperationKind
from gpuaas_contract.placements import ArtifactPlacement
from starlette.applications import Starlette

from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.testing import rows
from gpuaas_sdk.testing.custody import Custody
from gpuaas_sdk.testing.edge import Edge, News
from gpuaas_sdk.testing.observing import Observations
from gpuaas_sdk.testing.records import Clock, Records
from gpuaas_sdk.testing.routes import Routes
from gpuaas_sdk.testing.server import serving
from gpuaas_sdk.testing.shelf import Shelf


class FakePlatform:
    """One project with one service account, inside the test's event loop."""

    def __init__(
        self,
        app_slug: str,
        *,
        secret_purposes: Sequence[SecretPurpose] = (),
        clock: Clock = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """`secret_purposes`: those the app's manifest declares."""
        self.app_slug = app_slug
        self.project_id = "prj_test"
        self.key_id = "key_test"
        self.client_secret = secrets.token_hex(8)
        self.records = Records(self.project_id, clock)
        self.observations = Observations(self.records, app_slug, self.key_id)
        self.custody = Custody(self.records, secret_purposes)
        self.shelf = Shelf(self.records)
        self._edge = Edge(self.project_id, self.key_id, self.client_secret)
        self._news = News()
        routes = Routes(self._edge, self._news, self.records, self.observations, self.custody, self.shelf)
        self.app = Starlette(routes=routes.all())

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Every call that was let in: the endpoint's name and the request body."""
        return self._edge.calls

    def add_instance(
        self,
        members: Mapping[str, Sequence[str]],
        *,
        name: str = "demo",
        topology: str = "",
        inputs: dict[str, Any] | None = None,
        ready: bool = False,
    ) -> Instance:
        """`members` names the nodes of each role; `ready` makes it an instance that was deployed before."""
        instance = self.records.add_instance(self.app_slug, name, topology, inputs or {})
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
    ) -> Operation:
        """Ask for an operation; without targets it is about every live member. `replacements` names the node each
        target of a `replace` moves to."""
        chosen = tuple(self.members(instance) if targets is None else targets)
        moves = dict(zip((member.member_id for member in chosen), replacements, strict=False))
        return self._accept(
            instance,
            kind,
            rows.Asked(
                targets=chosen,
                component_key=component_key,
                reason=reason,
                force=force,
                deadline_s=DEADLINES_S[kind] if deadline_s is None else deadline_s,
                stop_after_failures=stop_after_failures,
                replacements=moves,
                to_version=to_version,
            ),
        )

    def invoke(self, instance: Instance, action: str, inputs: dict[str, Any] | None = None) -> Operation:
        """Ask for an action of the app."""
        asked = rows.Asked(targets=(), deadline_s=DEADLINES_S["action"], action=action, inputs=inputs or {})
        return self._accept(instance, "action", asked)

    def ask_preview(
        self,
        instance: Instance,
        kind: OperationKind,
        targets: Sequence[Member] | None = None,
        *,
        component_key: str = "",
    ) -> Operation:
        """Ask what an operation would hit, as a dry run of it does."""
        chosen = self.members(instance) if targets is None else targets
        asked = rows.Asked(
            targets=(),
            deadline_s=DEADLINES_S["preview"],
            component_key=component_key,
            inputs={"member_ids": [member.member_id for member in chosen]},
            preview_of=kind,
        )
        return self._accept(instance, "preview", asked)

    def cancel(self, operation_id: str, reason: str = "not wanted") -> Operation:
        cancelled = self.records.cancel(operation_id, reason)
        self._news.wake()
        return cancelled

    def retry(self, operation_id: str, reason: str = "repaired") -> Operation:
        return self._reopen(operation_id, "retry", reason)

    def compensate(self, operation_id: str, reason: str = "not wanted") -> Operation:
        return self._reopen(operation_id, "compensate", reason)

    def hold(
        self, member: Member, kind: HoldKind = "no_removal", *, reason: str = "because", ttl_s: float = 3600
    ) -> Hold:
        return self.records.add_hold(member, kind, reason, ttl_s)

    def add_artifact(self, instance: Instance, name: str, content: bytes) -> Artifact:
        """One that the instance's version names in its manifest."""
        artifact = self.shelf.put(name, content)
        present = self.records.instances[instance.instance_id]
        digests = {**present.artifacts, name: artifact.digest}
        self.records.instances[instance.instance_id] = msgspec.structs.replace(present, artifacts=digests)
        return artifact

    def fail_placement(self, code: str, message: str = "said by the test") -> None:
        """The next artifact a machine is to get ends with this, as its agent or the platform would say it."""
        self.shelf.failures.append(TaskError(code=code, message=message))

    def add_version(self, manifest: Manifest) -> None:
        """A version of the app that instances can be upgraded to."""
        self.shelf.add_version(manifest)

    @property
    def placements(self) -> list[ArtifactPlacement]:
        """What was to lie on which machine, in order, and how it ended."""
        return list(self.shelf.placements.values())

    def operation(self, operation_id: str) -> Operation:
        return self.records.operation(operation_id)

    def members(self, instance: Instance) -> list[Member]:
        return self.records.live_members(instance.instance_id)

    def member(self, member_id: str) -> Member:
        return self.records.members[member_id]

    def access_bundle(self, instance: Instance) -> AccessBundle:
        return self.records.access_bundles.get(instance.instance_id, AccessBundle())

    def expire_lease(self, operation_id: str) -> None:
        """As if the holder had been silent for the whole lease."""
        self.records.expire_lease(operation_id)
        self._news.wake()

    def lose_answers(self, endpoint: Endpoint[Any, Any], count: int = 1) -> None:
        """The next calls of this endpoint do their work, and their answers are lost on the way."""
        self._edge.answers_to_lose[endpoint.name] += count

    def revoke_tokens(self) -> None:
        """Every token given so far is refused from now on; the key stays good."""
        self._edge.tokens.clear()

    async def until(
        self, operation_id: str, condition: Callable[[Operation], bool], *, timeout_s: float = 60
    ) -> Operation:
        async with asyncio.timeout(timeout_s):
            while not condition(found := self.operation(operation_id)):
                await self._news.wait()
        return found

    async def ended(self, operation_id: str, *, timeout_s: float = 60) -> Operation:
        return await self.until(operation_id, lambda found: found.status in ENDED_OPERATION, timeout_s=timeout_s)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Client]:
        """Yields a client that is signed in as the service account."""
        async with serving(self.app) as server, self.client(server) as client:
            yield client

    def client(self, server: str) -> Client:
        return Client(server, ServiceAccount(self.key_id, self.client_secret))

    def _accept(self, instance: Instance, kind: OperationKind, asked: rows.Asked) -> Operation:
        operation = self.records.add_operation(instance, kind, asked)
        self._news.wake()
        return operation

    def _reopen(self, operation_id: str, name: ExitName, reason: str) -> Operation:
        deadline_s = DEADLINES_S[self.operation(operation_id).kind]
        reopened = self.records.reopen(operation_id, name, reason, deadline_s)
        self._news.wake()
        return reopened
