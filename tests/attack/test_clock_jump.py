"""Attack 8: the clock of the server's machine jumps by eight days for some seconds, because its time server is wrong or
in wrong hands. Before, a jump ahead deleted all events, tokens and idempotency rows and failed operations, and a jump
back made expired tokens valid again."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from gpuaas_contract import identity
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.kit import loop
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.testing import free_port
from platform_world import FakeClock, World
from server_process import Cloud, readyz

EIGHT_DAYS_S = 8 * 86_400.0
SESSION_S = 12 * 3600


class Machine(FakeClock):
    """A machine whose wall clock can be set. Its clock since boot cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 1000.0

    def forward(self, seconds: float) -> None:
        super().forward(seconds)
        self.elapsed_s += seconds

    def set_by(self, seconds: float) -> None:
        super().forward(seconds)


@dataclass
class Served:
    process: "subprocess.Popen[bytes]"
    url: str
    data: Path
    log: Path

    def readyz(self) -> int:
        return readyz(int(self.url.rpartition(":")[2]), timeout_s=10)

    def admin_password(self) -> str:
        command = [sys.executable, "-m", "gpuaas_platform.main", "admin", "--data", str(self.data)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
async def world(tmp_path: Path, machine: Machine) -> AsyncIterator[World]:
    settings = Settings(data_dir=tmp_path / "data", rate_limit_per_s=0, node_rate_limit_per_s=0)
    async with server.open_site(settings, machine, lambda: machine.elapsed_s) as site:
        transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield await World.make(site, machine, client)


async def sweep(world: World, seconds: int) -> None:
    """Run each loop of the server once per second."""
    table = server.sweeps(world.site)
    for _ in range(seconds):
        for _, _, run in table:
            with contextlib.suppress(loop.Later):
                await run()
        world.clock.forward(1)


async def stored(world: World) -> dict[str, int]:
    """Return the number of rows in each table."""
    reader = world.site.database.reader
    tables = await reader.all("SELECT name FROM sqlite_master WHERE type = 'table'")
    counts = {row[0]: await reader.one(f"SELECT count(*) FROM {row[0]}") for row in tables}
    return {name: count[0] for name, count in counts.items() if count is not None}


@pytest.mark.parametrize("jump_s", [EIGHT_DAYS_S, -EIGHT_DAYS_S], ids=["ahead", "back"])
async def test_a_jump_of_eight_days_deletes_nothing_ends_nothing_and_is_reported(
    world: World, machine: Machine, jump_s: float
) -> None:
    await world.entitled_app()
    controller = await world.service_account()
    deployed = await world.deploy()
    claimed = await world.claim(controller, lease_s=60)
    await sweep(world, 1)
    before, lease = await stored(world), claimed.operation
    assert lease is not None

    machine.set_by(jump_s)
    await sweep(world, 6)
    ready, metrics = await world.http.get("/readyz"), (await world.http.get("/metrics")).text
    assert (ready.status_code, ready.json()["details"]["check"]) == (503, "clock")
    assert "restart the server" in ready.json()["fix"]
    assert f"gpuaas_clock_jump_seconds {jump_s}" in metrics
    assert (await world.operation(deployed.operation.operation_id)).status == "running"
    assert await stored(world) == before
    await world.report(controller, claimed, claimed.members[0].member_id, "provisioning")

    machine.set_by(-jump_s)
    await sweep(world, 6)
    after = await stored(world)
    assert {name for name in before if after[name] < before[name]} == set()
    assert (await world.http.get("/readyz")).status_code == 200
    assert (await world.operation(deployed.operation.operation_id)).status == "running"
    assert (await world.send(identity.ME)).status_code == 200


async def test_a_jump_back_does_not_make_an_expired_token_valid_again(world: World, machine: Machine) -> None:
    machine.forward(SESSION_S + 1)
    assert (await world.send(identity.ME)).status_code == 401
    machine.set_by(-EIGHT_DAYS_S)
    assert (await world.send(identity.ME)).status_code == 401


async def test_a_token_that_is_issued_during_a_jump_lives_as_long_as_any_other(world: World, machine: Machine) -> None:
    machine.set_by(EIGHT_DAYS_S)
    world.token = await world.sign_in("admin")
    machine.forward(SESSION_S - 60)
    assert (await world.send(identity.ME)).status_code == 200
    machine.set_by(-EIGHT_DAYS_S)
    assert (await world.send(identity.ME)).status_code == 200
    machine.forward(61)
    assert (await world.send(identity.ME)).status_code == 401


async def test_the_time_that_passes_while_a_machine_is_suspended_is_no_jump(world: World, machine: Machine) -> None:
    machine.forward(EIGHT_DAYS_S)
    await sweep(world, 1)
    assert (await world.http.get("/readyz")).status_code == 200
    assert "gpuaas_clock_jump_seconds 0.0" in (await world.http.get("/metrics")).text


async def test_an_upload_in_progress_survives_a_jump(world: World, machine: Machine) -> None:
    """The file of an upload has the time of the wall clock. After a jump it looks as if its writer were gone."""
    draft = world.site.settings.data_dir / "blobs" / "drafts" / "upload"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b"half of it")
    hours_ago = time.time() - 2 * 3600
    os.utime(draft, (hours_ago, hours_ago))
    machine.set_by(EIGHT_DAYS_S)
    await sweep(world, 2)
    assert draft.exists()
    machine.set_by(-EIGHT_DAYS_S)
    await sweep(world, 1)
    assert not draft.exists()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server process whose wall clock SIGUSR1 sets eight days ahead and back."""
    data, log, port = tmp_path / "data", tmp_path / "log", free_port()
    program = str(Path(__file__).with_name("served_with_clock.py"))
    command = [sys.executable, program, "jump", str(data), str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    served = Served(process, f"http://127.0.0.1:{port}", data, log)
    served.wait_for(lambda: served.readyz() == 200)
    yield served
    process.kill()
    process.wait(60)


def test_a_running_server_deletes_nothing_while_its_clock_is_eight_days_ahead(served: Served) -> None:
    async def attack() -> None:
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(served.admin_password())
            await cloud.make_project()
            made = await cloud.make_event()
            served.process.send_signal(signal.SIGUSR1)
            served.wait_for(lambda: served.readyz() == 503)
            served.wait_for(lambda: '"loop":"retention"' in served.log.read_text())
            assert made in [event.correlation_id for event in await cloud.recorded()]
            served.process.send_signal(signal.SIGUSR1)
            served.wait_for(lambda: served.readyz() == 200)
            assert made in [event.correlation_id for event in await cloud.recorded()]

    asyncio.run(attack())
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    events = [line["event"] for line in lines if line["event"].startswith("clock.")]
    assert (events[0], events[-1], len(set(events))) == ("clock.jumped", "clock.came_back", 2)
