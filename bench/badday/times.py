"""Time that is wrong or missing: the clock jumps by eight days, and the server is stopped for a minute."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from gpuaas_contract import capacity, events

from bench.badday.leases import LEASE_S, Leases
from bench.badday.load import OPTIONS, load_on, until
from bench.badday.parts import AgentProcess, Cloud, ServerProcess
from bench.badday.result import Place, Result

NODE = "gpu-1"
_SERVER_WITH_CLOCK = Path(__file__).parents[2] / "tests" / "attack" / "served_with_clock.py"
_JUMPS = ("+8 days", "-8 days")


class JumpingServer(ServerProcess):
    """Each SIGUSR1 sets its clock: eight days ahead, right, eight days behind, right."""

    def __init__(self, data: Path, database_url: str) -> None:
        super().__init__(data, database_url)
        self._program = [sys.executable, str(_SERVER_WITH_CLOCK), "jumps", str(data), str(self.port), database_url]

    def command(self) -> list[str]:
        return self._program

    def set_clock(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)


async def clock_jumps(place: Place) -> Result:
    """Nothing may be deleted and no operation may end because of a wrong clock."""
    with JumpingServer(place.folder / "data", place.database_url) as server:
        async with load_on(server) as load:
            leases = await Leases.on(load.cloud)
            async with load.running(), leases.running():
                for _ in _JUMPS:
                    await load.advance()
                    server.set_clock()
                    await load.ready_is(503, "clock")
                    await load.advance()
                    await asyncio.sleep(place.size.jump_s)
                    server.set_clock()
                    await load.ready_is(200)
            await leases.count(load)
            result = await load.count(server, f"clock {' and '.join(_JUMPS)}")
            result.early, result.lost = result.early + result.lost, 0
            return result


async def stopped(place: Place) -> Result:
    """Stop the process as a suspended virtual machine is; its agents and controllers get no answers."""
    options = [*OPTIONS, "--heartbeat-interval-s", "1"]
    with ServerProcess(place.folder / "data", place.database_url, options=options) as server:
        async with load_on(server) as load:
            leases = await Leases.on(load.cloud)
            token = await load.cloud.call(capacity.ENROLMENT_CREATE, {"name": NODE})
            agent = AgentProcess(place.folder / "agent", server.url, NODE, token.token)
            agent.start()
            try:
                await until(lambda: _node_is_ready(load.cloud), "the node is ready")
                async with load.running(), leases.running():
                    await load.advance()
                    os.kill(server.pid, signal.SIGSTOP)
                    await asyncio.sleep(place.size.stop_s)
                    os.kill(server.pid, signal.SIGCONT)
                    await load.ready_is(200)
                    await load.advance()
                    await asyncio.sleep(LEASE_S)
            finally:
                agent.kill()
            await leases.count(load)
            load.result.early += await _times_lost(load.cloud)
            return await load.count(server, f"SIGSTOP for {place.size.stop_s:.0f} s")


async def _node_is_ready(cloud: Cloud) -> bool:
    nodes = (await cloud.call(capacity.NODE_LIST, query={"name": NODE})).items
    return [node.status for node in nodes] == ["ready"]


async def _times_lost(cloud: Cloud) -> int:
    page = await cloud.call(events.PLATFORM_EVENT_LIST, query={"limit": 500})
    of_node = [event.payload for event in page.items if event.payload.get("name") == NODE]
    return sum(payload.get("status") == "lost" for payload in of_node)
