"""Artifacts on their way to a host: the agent's own handler against a real server. A file is correct or an error."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from agent_process_on_folder import AgentProcess
from artifact_world import digest_of, promoted, trusted
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import agents, artifacts, capacity
from gpuaas_contract.node import TaskResult
from gpuaas_contract.placements import ArtifactPlacement
from gpuaas_platform import server
from gpuaas_platform.access.placements import service as placements
from gpuaas_platform.artifacts import content
from gpuaas_platform.call import system_origin
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.testing import serving
from placement_world import Placing, on_machines
from platform_world import Node, RealClock, World

SMALL = b"#!/bin/sh\necho small\n"
LARGE = bytes(range(256)) * (17 << 12)
"""More than the platform checks before it sends the first byte."""


@dataclass
class Relay:
    """A relay between agents and platform that can stop an answer in the middle."""

    port: int
    holds_after: int = 0
    """Bytes of one connection that pass; 0: all."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, inward: asyncio.StreamReader, outward: asyncio.StreamWriter) -> None:
        there = socket.socket()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # what is held back stays with the platform
        there.setblocking(False)
        await asyncio.get_running_loop().sock_connect(there, ("127.0.0.1", self.port))
        there_in, there_out = await asyncio.open_connection(sock=there)
        ways = (self._pass(inward, there_out, limited=False), self._pass(there_in, outward, limited=True))
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*ways)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, limited: bool) -> None:
        passed = 0
        try:
            while chunk := await source.read(1 << 16):
                passed += len(chunk)
                if limited and 0 < self.holds_after < passed:
                    self.held.set()
                    await self.released.wait()
                target.write(chunk)
                await target.drain()
        finally:
            target.close()


@dataclass
class Hosts:
    """A platform on a socket with two agents behind a relay; the first machine's is the one that matters."""

    placing: Placing
    relay: Relay
    agent: AgentProcess

    async def outcome(self, placement: ArtifactPlacement) -> tuple[str, str]:
        async with asyncio.timeout(60):
            ended = await self.placing.ended(placement)
        return ended.state, ended.error.code if ended.error else ""

    async def publish(self, sent: bytes, name: str) -> artifacts.Artifact:
        return await promoted(self.placing.world, await trusted(self.placing.world, name), sent, name=name)

    async def inspect(self) -> agents.NodeTask:
        body, node_id = agents.InspectNode(type="host.facts"), self.placing.node.node_id
        return await self._answered(await self.placing.world.call(agents.NODE_INSPECT, body, node_id=node_id))

    async def fetched(self) -> agents.NodeTask:
        """The newest task to fetch something, once the node has answered it."""
        tasks = (await self.placing.world.call(agents.NODE_TASK_LIST, node_id=self.placing.node.node_id)).items
        return await self._answered(next(task for task in tasks if task.type == "artifact.fetch"))

    async def _answered(self, task: agents.NodeTask) -> agents.NodeTask:
        where = {"node_id": task.node_id, "task_id": task.task_id}
        return await self.placing.world.call(agents.NODE_TASK_GET, query={"wait_s": 30}, **where)

    async def hold_back(self, artifact: artifacts.Artifact) -> ArtifactPlacement:
        """A placement whose node has got some of the bytes, and gets no more until the relay is released."""
        self.relay.holds_after = 1 << 20
        placement = await self.placing.place(artifact)
        async with asyncio.timeout(60):
            await self.relay.held.wait()
        self.relay.holds_after = 0
        (draft,) = self.agent.artifacts()
        assert draft.name.startswith(".")
        return placement


@pytest.fixture
async def hosts(settings: Settings, tmp_path: Path) -> AsyncIterator[Hosts]:
    async with contextlib.AsyncExitStack() as stack:
        clock = RealClock()
        quick = dataclasses.replace(settings, stream_recheck_s=0.001)
        site = await stack.enter_async_context(server.open_site(quick, clock))
        application = http.application(site, server.DOMAINS)
        address = await stack.enter_async_context(serving(application))
        stack.callback(site.hub.close)
        relay = Relay(int(address.rpartition(":")[2]))
        listening = await stack.enter_async_context(await asyncio.start_server(relay.serve, "127.0.0.1", 0))
        stack.callback(relay.released.set)
        transport = httpx.ASGITransport(app=application)
        people = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url=address))
        world = await World.make(site, clock, people)
        behind = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        machines = []
        for name in ("n1", "n2"):
            agent = await _enrolled(world, tmp_path, name, behind)
            stack.callback(agent.kill)
            machines.append((agent, await _allocated(world, name)))
        artifact = await promoted(world, await trusted(world), SMALL)
        placing = await on_machines(world, artifact, machines[0][1], machines[1][1])
        yield Hosts(placing, relay, machines[0][0])


async def _enrolled(world: World, folder: Path, name: str, address: str) -> AgentProcess:
    admitted = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name))
    agent = AgentProcess(folder / name, address, name, admitted.token)
    agent.start()
    async with asyncio.timeout(60):
        while not (await world.call(capacity.NODE_LIST, query={"name": name})).items:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.05)
    return agent


async def _allocated(world: World, name: str) -> tuple[Node, str]:
    """Return the node and its allocation. Only its agent has the node's real key."""
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))).items
    where = {"allocation_id": made.allocation_id}
    async with asyncio.timeout(60):
        while (await world.call(capacity.ALLOCATION_GET, **where)).status != "active":  # noqa: ASYNC110 - the agent works
            await asyncio.sleep(0.05)
    return Node(made.node_id, name, Ed25519PrivateKey.generate(), ""), made.allocation_id


async def test_an_artifact_is_stored_on_the_machine_as_it_was_published(hosts: Hosts) -> None:
    placement = await hosts.placing.place(mode="0755")
    assert await hosts.outcome(placement) == ("placed", "")
    (path,) = hosts.agent.artifacts()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (SMALL, 0o755)
    assert str(path) == (await hosts.placing.now(placement)).path
    assert path.parts[-3:] == (hosts.placing.allocation_id, *digest_of(SMALL).split(":"))
    assert await hosts.outcome(await hosts.placing.place()) == ("placed", "")
    assert hosts.agent.artifacts() == [path]


async def test_an_artifact_that_was_removed_leaves_no_file_and_can_be_placed_again(hosts: Hosts) -> None:
    assert await hosts.outcome(await hosts.placing.place()) == ("placed", "")
    for _ in range(2):
        assert await hosts.outcome(await hosts.placing.unplace()) == ("removed", "")
        assert hosts.agent.artifacts() == []
    assert await hosts.outcome(await hosts.placing.place()) == ("placed", "")
    assert len(hosts.agent.artifacts()) == 1


async def test_an_agent_killed_in_the_middle_ends_with_exactly_one_good_file(hosts: Hosts) -> None:
    placement = await hosts.hold_back(await hosts.publish(LARGE, "large"))
    hosts.agent.kill()
    hosts.relay.released.set()
    assert len(hosts.agent.artifacts()) == 1
    hosts.agent.start()
    assert await hosts.outcome(placement) == ("placed", "")
    (path,) = hosts.agent.artifacts()
    assert (str(path), digest_of(path.read_bytes())) == ((await hosts.placing.now(placement)).path, placement.digest)


async def test_what_is_revoked_between_queue_and_fetch_fails_as_revoked(hosts: Hosts) -> None:
    hosts.agent.kill()
    placement = await hosts.placing.place()
    await _revoke(hosts, placement)
    hosts.agent.start()
    assert await hosts.outcome(placement) == ("failed", "artifact_revoked")
    assert hosts.agent.artifacts() == []


async def test_what_is_revoked_while_its_bytes_flow_is_cut_off(hosts: Hosts) -> None:
    placement = await hosts.hold_back(await hosts.publish(LARGE, "large"))
    await _revoke(hosts, placement)
    hosts.relay.released.set()
    assert await hosts.outcome(placement) == ("failed", "artifact_revoked")
    assert hosts.agent.artifacts() == []


async def test_what_is_revoked_once_its_bytes_have_passed_does_not_count_as_placed(hosts: Hosts) -> None:
    hosts.agent.kill()
    placement = await hosts.placing.place()
    await _revoke(hosts, placement)
    task = TaskResult(status="succeeded", result={"path": "/var/lib/somewhere"})
    site = hosts.placing.world.site
    origin = system_origin(site.clock(), placement.correlation_id)
    await site.database.write(lambda tx: placements.record_result(tx, origin, placement.placement_id, task))
    assert await hosts.outcome(placement) == ("failed", "artifact_revoked")


@pytest.mark.parametrize("sent", [SMALL, LARGE], ids=["checked first", "checked while sent"])
async def test_a_stored_file_that_was_tampered_with_never_arrives(hosts: Hosts, sent: bytes) -> None:
    artifact = hosts.placing.artifact if sent is SMALL else await hosts.publish(sent, "large")
    content.blobs(hosts.placing.world.site).path(artifact.digest).write_bytes(b"!" + sent[1:])
    assert await hosts.outcome(await hosts.placing.place(artifact)) == ("failed", "artifact_digest_mismatch")
    assert (await hosts.fetched()).state == "failed"
    assert hosts.agent.artifacts() == []


async def test_a_release_does_not_wait_for_a_download_and_leaves_nothing_of_it(hosts: Hosts) -> None:
    placement = await hosts.hold_back(await hosts.publish(LARGE, "large"))
    world, where = hosts.placing.world, {"allocation_id": hosts.placing.allocation_id}
    await world.call(capacity.ALLOCATION_RELEASE_USED, {"reason": "needed elsewhere"}, **where)
    assert await hosts.outcome(placement) == ("failed", "allocation_released")
    async with asyncio.timeout(60):
        while (await world.call(capacity.ALLOCATION_GET, **where)).status != "released":  # noqa: ASYNC110 - the agent works
            await asyncio.sleep(0.05)
    assert hosts.agent.artifacts() == []
    hosts.relay.released.set()
    assert (await hosts.inspect()).state == "succeeded"
    assert hosts.agent.artifacts() == []


async def _revoke(hosts: Hosts, placement: ArtifactPlacement) -> None:
    body = {"reason": "the build machine was broken into"}
    await hosts.placing.world.call(artifacts.REVOKE, body, artifact_id=placement.artifact_id)
