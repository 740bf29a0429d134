"""Looks at Slurm that callers share."""

import asyncio
import json

from gpuaas_app_slurm.workload import nodes
from gpuaas_sdk.machine import Command, Completed, Machine
from gpuaas_sdk.testing.machines import FakeHost


class SlowHost(FakeHost):
    """A machine of slurmctld that answers when the test allows it, with the state at the time of the question."""

    def __init__(self) -> None:
        super().__init__("gpu-1")
        self.node_state = "UNKNOWN"
        self.questions = 0
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def execute(self, command: Command) -> Completed:
        self.questions += 1
        answer = {"nodes": [{"name": "gpu-2", "state": [self.node_state]}], "jobs": []}
        self.asked.set()
        await self.may_answer.wait()
        return Completed(0, json.dumps(answer).encode())


async def test_callers_share_one_look_and_none_gets_an_answer_older_than_its_question() -> None:
    host = SlowHost()
    looks = nodes.Looks(Machine(host))
    first = asyncio.create_task(looks.node("gpu-2"))
    await host.asked.wait()
    host.node_state = "IDLE"
    later = [asyncio.create_task(looks.node("gpu-2")) for _ in range(16)]
    await asyncio.sleep(0)  # all of them have asked
    host.may_answer.set()
    seen = [await look for look in (first, *later)]
    assert [sorted(node.flags) for node in seen if node] == [["UNKNOWN"], *([["IDLE"]] * 16)]
    assert host.questions == 2


async def test_a_look_that_failed_is_made_again_for_the_next_caller() -> None:
    host = SlowHost()
    looks = nodes.Looks(Machine(host))
    first = asyncio.create_task(looks.nodes())
    await host.asked.wait()
    second = asyncio.create_task(looks.nodes())
    await asyncio.sleep(0)
    first.cancel()
    host.may_answer.set()
    assert [node.name for node in await second] == ["gpu-2"]
