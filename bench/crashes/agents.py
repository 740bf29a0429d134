"""The agent of each simulated machine. It enrols and takes tasks over the API of agents, and does them in the content
of the machine. A killed platform makes it wait and ask again, as a real agent does."""

import asyncio
import base64
import contextlib
import time
import uuid
from typing import Any

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import capacity, node
from gpuaas_contract.errors import ApiError
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client
from gpuaas_sdk.conformance import SimulatedMachine
from gpuaas_sdk.conformance.machines import OBSERVER
from gpuaas_sdk.outcomes import NoAnswer

WAIT_S = 20.0
PAUSE_S = 0.2


class Agent:
    """One enrolled node. `run` does its tasks until it is cancelled."""

    def __init__(self, server: str, machine: SimulatedMachine, facts: capacity.Facts) -> None:
        self._server, self._machine, self._facts = server, machine, facts
        self._key = Ed25519PrivateKey.generate()
        self._node_id = ""

    async def enrol(self, admin: Client, host_key: str) -> None:
        name = self._machine.name
        token = await admin.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name))
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        body = node.Enrol(
            token=token.token,
            name=name,
            public_key_pem=self._key.public_key().public_bytes(encoding, form).decode(),
            ssh_host_public_key=host_key,
            facts=self._facts,
        )
        async with Client(self._server, NoAuth()) as client:
            self._node_id = (await client.call(node.ENROL, body)).node_id

    async def run(self) -> None:
        while True:
            with contextlib.suppress(NoAnswer, ApiError):
                async with Client(self._server, BearerToken(await self._sign_in())) as client:
                    while True:
                        await self._take_task(client)
            await asyncio.sleep(PAUSE_S)

    async def _sign_in(self) -> str:
        moment, nonce = int(time.time()), uuid.uuid4().hex
        proof = self._key.sign(f"gpuaas-node-token\n{self._node_id}\n{moment}\n{nonce}".encode())
        signature = base64.b64encode(proof).decode()
        body = node.NodeLogin(node_id=self._node_id, timestamp_s=moment, nonce=nonce, signature=signature)
        async with Client(self._server, NoAuth()) as client:
            return (await client.call(node.NODE_TOKEN, body)).access_token

    async def _take_task(self, client: Client) -> None:
        report = node.NodeStatusReport(agent_version="0.3.0", boot_id="bench", facts=self._facts)
        given = (await client.call(node.STATUS, report, query={"wait_s": WAIT_S})).task
        if given is None:
            return
        task = msgspec.json.decode(given.payload)
        result = node.TaskResult(status="succeeded", result=self._do(task["type"], task["params"]))
        await client.call(node.TASK_RESULT, result, task_id=task["task_id"])

    def _do(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """Do a task. Those about accounts and keys have nothing to do: the SSH servers let all controllers in."""
        if kind == "allocation.provision":
            return {"observer_user": OBSERVER}
        if kind not in (node.FETCH_TASK, node.UNPLACE_TASK):
            return {}
        path = f"/var/lib/gpuaas/artifacts/{params['allocation_id']}/{params['digest'].replace(':', '/')}"
        if kind == node.UNPLACE_TASK:
            return {"removed": [path] if self._machine.files.pop(path, None) is not None else []}
        self._machine.files[path] = b"placed"
        return {"path": path, "digest": params["digest"], "size_bytes": params["size_bytes"]}
