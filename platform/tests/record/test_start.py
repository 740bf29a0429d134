"""What a server checks before it starts: its clock and its database against what was recorded and signed."""

import dataclasses
import datetime

import pytest
import structlog
from gpuaas_platform import server
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import heads, service, start, verify
from platform_world import FakeClock

ORG = "org_acme"


async def add(site: Site, count: int) -> None:
    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            await service.audit(tx, system_origin(site.clock()), "apps.create", f"inst_{number}", Owner(ORG))

    await site.database.write(use_case)


def started_again(
    site: Site, now: datetime.datetime, *, accept_clock: bool = False, accept_data_loss: bool = False
) -> Site:
    settings = dataclasses.replace(site.settings, accept_clock=accept_clock, accept_data_loss=accept_data_loss)
    return dataclasses.replace(site, settings=settings, clock=clock.GuardedClock(lambda: now))


async def test_a_server_starts_on_an_empty_record_and_on_one_that_is_complete(site: Site) -> None:
    await start.check(site)
    await add(site, 3)
    await server.heads_signer(site).sign()
    await add(site, 2)
    await start.check(site)


async def test_a_clock_behind_the_newest_row_is_refused_unless_an_operator_accepts_it(
    site: Site, clock: FakeClock
) -> None:
    await add(site, 1)
    behind = clock() - datetime.timedelta(days=8)
    with pytest.raises(start.Refused, match="the newest row of the audit trail") as refused:
        await start.check(started_again(site, behind))
    assert "--accept-clock" in refused.value.fix
    with structlog.testing.capture_logs() as lines:
        await start.check(started_again(site, behind, accept_clock=True))
    assert [line["event"] for line in lines] == ["clock.accepted"]


async def test_a_clock_that_is_a_little_behind_or_far_ahead_is_not_refused(site: Site, clock: FakeClock) -> None:
    await add(site, 1)
    for days in (-59 / 86_400, 0, 8, 800):
        await start.check(started_again(site, clock() + datetime.timedelta(days=days)))


@pytest.mark.parametrize("days", [-8, 8])
async def test_a_server_with_another_time_than_the_database_does_not_start_unless_it_is_accepted(
    site: Site, days: int
) -> None:
    wrong = clock.utc_now() + datetime.timedelta(days=days)
    await start.check_database_clock(started_again(site, clock.utc_now() + datetime.timedelta(seconds=30)))
    with structlog.testing.capture_logs() as lines:
        await start.check_database_clock(started_again(site, wrong, accept_clock=True))
    if not site.settings.database_url:
        assert lines == []
        await start.check_database_clock(started_again(site, wrong))
        return
    assert [line["event"] for line in lines] == ["clock.accepted"]
    with pytest.raises(start.Refused, match="the clock of the database shows"):
        await start.check_database_clock(started_again(site, wrong))


@pytest.mark.parametrize("rows_after", [0, 5], ids=["missing", "replaced"])
async def test_signed_rows_that_are_missing_or_replaced_are_refused_until_the_loss_is_accepted(
    site: Site, settings: Settings, rows_after: int
) -> None:
    await add(site, 3)
    await server.heads_signer(site).sign()
    await site.database.write(lambda tx: tx.run("DELETE FROM audit WHERE chain = $1 AND position > 1", ORG))
    await add(site, rows_after)
    with pytest.raises(start.Refused, match=f"row 3 of chain {ORG}, signed at ") as refused:
        await start.check(site)
    assert "--accept-data-loss" in refused.value.fix
    with structlog.testing.capture_logs() as lines:
        await start.check(started_again(site, site.clock(), accept_data_loss=True))
    assert [line["event"] for line in lines] == ["audit.data_loss_accepted"]
    await start.check(site)
    await server.heads_signer(site).sign()
    evidence = verify.Evidence(heads.folder_in(settings.data_dir), site.keys.audit.public_key())
    async with verify.open_source(settings.data_dir, settings.database_url) as source:
        verdicts = await verify.verify(source, evidence)
    assert {verdict.name: verdict.findings for verdict in verdicts} == {ORG: (), "platform": ()}
    assert [path.name for path in evidence.folder.glob("set-aside-*/*")] == [f"{ORG}.jsonl"]
    row = await site.database.reader.one("SELECT action FROM audit WHERE chain = 'platform'")
    assert row is not None
    assert row[0] == "record.data_loss.accept"
