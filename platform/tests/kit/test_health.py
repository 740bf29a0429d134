"""The checks of `/readyz`: shared, limited in frequency, and truthful about a store that does not commit."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from gpuaas_platform.call import Site
from gpuaas_platform.kit import db, disk, health, sqlite
from gpuaas_platform.kit.settings import Settings
from platform_world import World


class Counted:
    """A check that counts its runs and waits until it is released."""

    def __init__(self, reason: str = "") -> None:
        self.reason, self.runs = reason, 0
        self.released = asyncio.Event()

    async def __call__(self) -> str:
        self.runs += 1
        await self.released.wait()
        return self.reason


async def test_probes_that_arrive_together_share_one_run() -> None:
    check = Counted("broken")
    checks = {"it": health.Shared(check, 60)}
    probes = [asyncio.create_task(health.failed(checks)) for _ in range(10)]
    await asyncio.sleep(0)
    check.released.set()
    assert await asyncio.gather(*probes) == [{"it": "broken"}] * 10
    assert await health.failed(checks) == {"it": "broken"}
    assert check.runs == 1


async def test_after_the_interval_a_check_runs_again_and_recovers_by_itself() -> None:
    check = Counted("broken")
    check.released.set()
    checks = {"it": health.Shared(check, 0)}
    assert await health.failed(checks) == {"it": "broken"}
    check.reason = ""
    assert await health.failed(checks) == {}


async def test_a_check_that_hangs_is_reported_and_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_S_MAX", 0.01)
    hanging, passing = Counted(), Counted()
    passing.released.set()
    checks: dict[str, health.Check] = {"it": health.Shared(hanging, 0), "other": passing}
    for _ in range(3):
        assert await health.failed(checks) == {"it": health.NO_ANSWER}
    assert hanging.runs == 1
    hanging.released.set()
    monkeypatch.setattr(health, "ANSWER_S_MAX", 60)
    assert await health.failed(checks) == {}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, ready_interval_s=0)


async def test_the_store_check_commits_a_row(site: Site) -> None:
    assert await health.failed(site.health) == {}
    row = await site.database.reader.one("SELECT written_at FROM store_probe")
    assert row is not None
    assert row[0] > 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_store_that_can_only_be_read_is_not_ready(world: World) -> None:
    database = world.site.database
    assert isinstance(database, sqlite.SqliteDatabase)
    database._write_connection.execute("PRAGMA query_only=ON")
    answer = await world.http.get("/readyz")
    assert (answer.status_code, answer.json()["details"]["failed"]) == (503, {"store": "read_only"})
    database._write_connection.execute("PRAGMA query_only=OFF")
    assert (await world.http.get("/readyz")).status_code == 200


async def test_a_full_or_missing_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = health.disk_check(tmp_path / "gone")
    assert await check() == "folder_missing"
    for space, reason in (
        (disk.Space(1 << 30, 4096, has_free_inodes=True, is_read_only=False), "disk_full"),
        (disk.Space(1 << 30, 1 << 29, has_free_inodes=False, is_read_only=False), "disk_full"),
        (disk.Space(1 << 30, 1 << 29, has_free_inodes=True, is_read_only=True), "read_only"),
        (disk.Space(1 << 30, 1 << 29, has_free_inodes=True, is_read_only=False), ""),
    ):
        monkeypatch.setattr(disk, "space", lambda _, given=space: given)
        assert await check() == reason


@pytest.mark.parametrize(
    ("total_bytes", "configured", "reserve_bytes"),
    [(1 << 40, None, 1 << 30), (1 << 30, None, (1 << 30) // 20), (1 << 40, 0, 0), (1 << 30, 1 << 35, 1 << 35)],
)
def test_the_reserve_is_a_gibibyte_or_a_part_of_a_small_disk(
    total_bytes: int, configured: int | None, reserve_bytes: int
) -> None:
    assert disk.reserve_bytes(total_bytes, configured) == reserve_bytes


async def test_a_store_without_its_row_is_not_ready(site: Site) -> None:
    async def delete(tx: db.Tx) -> None:
        await tx.run("DELETE FROM store_probe")

    await site.database.write(delete)
    assert await health.failed(site.health) == {"store": "row_missing"}
