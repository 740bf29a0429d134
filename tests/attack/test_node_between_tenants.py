"""Attack: a tenant is root on its machine. It copies the key of the node's agent, leaves something behind, releases the
machine, and has the machine report that it is clean. The next tenant must not get that machine, and the copied key must
not work any more."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import msgspec
import provisioner_hook
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import capacity, identity, node
from platform_world import Node, enrol_body, login_body
from provisioner_hook import Hook
from server_process import Cloud, ServerProcess, until

REASON = {"reason": "the machine was reinstalled"}
ALL_CLEAN = {"status": "succeeded", "result": {"evidence": {"left_behind": []}}}


@dataclass
class Tenants:
    attacker: Cloud
    victim: Cloud

    async def enrol(self, token: str, key: Ed25519PrivateKey) -> Node:
        """Enrol as the agent of gpu-1 does, and sign in."""
        enrolled = await self.attacker.call(node.ENROL, enrol_body(token, "gpu-1", key), token="")
        machine = Node(enrolled.node_id, "gpu-1", key, "")
        machine.token = await self.sign_in(machine)
        return machine

    async def sign_in(self, machine: Node) -> str:
        proof = login_body(machine, int(time.time()), uuid.uuid4().hex)
        return (await self.attacker.call(node.NODE_TOKEN, proof, token="")).access_token

    async def operators_token(self) -> str:
        return (await self.attacker.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="gpu-1"))).token

    async def used_machine(self) -> Node:
        """The attacker claims gpu-1 and releases it. The machine reports what the attacker wants."""
        machine = await self.enrol(await self.operators_token(), Ed25519PrivateKey.generate())
        (claimed,) = (await self.attacker.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
        await self._report_clean(machine, claimed.allocation_id, "active")
        await self.attacker.call(capacity.ALLOCATION_RELEASE, allocation_id=claimed.allocation_id)
        await self._report_clean(machine, claimed.allocation_id, "released")
        return machine

    async def _report_clean(self, machine: Node, allocation_id: str, status: str) -> None:
        """Report every task as done, with evidence that nothing is left, until the allocation has this status."""
        while (await self.attacker.call(capacity.ALLOCATION_GET, allocation_id=allocation_id)).status != status:
            given = (await self.attacker.call(node.TASK_NEXT, token=machine.token)).task
            assert given is not None, f"no task makes the allocation {status}"
            task_id = msgspec.json.decode(given.payload)["task_id"]
            await self.attacker.call(node.TASK_RESULT, ALL_CLEAN, token=machine.token, task_id=task_id)

    async def refusal(self) -> dict[str, int]:
        """Why the victim does not get a node: the number of nodes by reason."""
        answer = await self.victim.send(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
        assert answer.status_code == 422, answer.text
        reasons: dict[str, int] = answer.json()["details"]["reasons"]
        return reasons

    async def victim_gets_it(self) -> None:
        (claimed,) = (await self.victim.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
        assert claimed.node_name == "gpu-1"

    async def tenancy(self) -> str:
        return (await self.attacker.call(capacity.NODE_GET, node_id="gpu-1")).tenancy

    async def until(self, tenancy: str) -> None:
        """Wait until the loop of the server has changed the node; the test has the deadline."""
        while await self.tenancy() != tenancy:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def tenants(folder: Path, *options: str) -> AsyncIterator[Tenants]:
    with ServerProcess(folder / "data", options=["--rate-limit-per-s", "0", *options]) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            admin = Cloud(client)
            await admin.sign_in(server.admin_password())
            projects = []
            for name in ("attacker", "victim"):
                org = await admin.call(identity.ORG_CREATE, identity.CreateOrg(name=name, first_admin="admin"))
                body = identity.CreateProject(name=name)
                projects.append(await admin.call(identity.PROJECT_CREATE, body, org_id=org.org_id))
            yield Tenants(*(replace(admin, project_id=project.project_id) for project in projects))


async def test_a_machine_that_calls_itself_clean_is_refused_until_an_operator_has_reinstalled_it(
    tmp_path: Path,
) -> None:
    async with tenants(tmp_path) as both:
        machine = await both.used_machine()
        assert await both.refusal() == {"used": 1}

        await both.enrol(await both.operators_token(), machine.key)
        assert await both.refusal() == {"used": 1}, "enrolling again changes nothing"
        too_early = await both.attacker.send(capacity.NODE_MARK_SANITISED, REASON, node_id="gpu-1")
        assert too_early.status_code == 409, "the attacker has a copy of this key"

        await both.enrol(await both.operators_token(), Ed25519PrivateKey.generate())
        assert await both.refusal() == {"used": 1}, "a new key alone is no proof either"
        await both.attacker.call(capacity.NODE_MARK_SANITISED, REASON, node_id="gpu-1")
        await both.victim_gets_it()
        copied = await both.attacker.send(node.NODE_TOKEN, login_body(machine, int(time.time()), "copied"), token="")
        assert copied.status_code == 401


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    with provisioner_hook.running(tmp_path) as running:
        yield running


async def test_a_machine_comes_back_only_through_the_provisioner_and_a_new_enrolment(
    tmp_path: Path, hook: Hook
) -> None:
    options = ["--sanitise-url", hook.url, "--sanitise-token-file", str(hook.token_file), "--sanitise-after-s", "0"]
    async with tenants(tmp_path, *options) as both:
        machine = await both.used_machine()
        await both.until("sanitising")
        assert await both.refusal() == {"sanitising": 1}
        await until(lambda: bool(hook.orders))
        order = hook.orders[0]

        gone = await both.attacker.send(node.TASK_NEXT, token=machine.token)
        assert gone.status_code == 401, "the old identity ended when the attempt began"
        for token, key in (
            (await both.operators_token(), Ed25519PrivateKey.generate()),
            (order.token, machine.key),
        ):
            back = await both.attacker.send(node.ENROL, enrol_body(token, "gpu-1", key), token="")
            assert back.status_code == 401, back.text

        await both.enrol(order.token, Ed25519PrivateKey.generate())
        assert await both.refusal() == {"sanitising": 1}, "the provisioner has not finished"
        hook.answer("done")
        await both.until("clean")
        await both.victim_gets_it()
