"""Sealed start: no key in the clear anywhere, secret routes say why they wait, everything else works."""

import asyncio
import base64
import io
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import argon2.low_level
import httpx
import msgspec
import pytest
from gpuaas_contract import audit, credentials, identity, secrets
from gpuaas_contract.custody import CUSTODY_GET, UNSEAL
from gpuaas_platform import main, server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http
from gpuaas_platform.kit import custody, custody_choice, key_files
from gpuaas_platform.kit.key_files import GivenFile, PlainFile, SealedFile
from gpuaas_platform.kit.key_ring import KeyRing
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, World, ssh_private_key
from server_process import ServerProcess

PASSPHRASE = "correct horse battery staple, and a longer tail"


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
        rate_limit_per_s=0,
        node_rate_limit_per_s=0,
        sealed=True,
    )


@pytest.fixture
async def restarted(site: Site, world: World) -> AsyncIterator[Callable[[], Any]]:
    """The same store, opened anew as after a restart: sealed again."""
    opened: list[Any] = []

    async def restart() -> World:
        context = server.open_site(site.settings, world.clock)
        again = await context.__aenter__()
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=http.application(again, server.DOMAINS)), base_url="http://test"
        )
        opened.append((context, client))
        return World(again, world.clock, client, world.token, world.project_id)

    yield restart
    for context, client in opened:
        await client.aclose()
        await context.__aexit__(None, None, None)


async def unseal(world: World, passphrase: str = PASSPHRASE) -> httpx.Response:
    return await world.send(UNSEAL, {"passphrase": passphrase}, key="")


async def _asks(world: World) -> dict[str, httpx.Response]:
    """Every route that would have to keep or read a value."""
    token = await world.service_account(f"sa-{world.clock().timestamp():.0f}")
    claim = await world.claim(token)
    assert claim.operation is not None
    operation_id, epoch = claim.operation.operation_id, claim.epoch
    key = ssh_private_key()
    asked: dict[str, Any] = {
        "create": (credentials.CREDENTIAL_CREATE, {"name": "fleet", "private_key": key}, world.token),
        "rotate": (credentials.CREDENTIAL_ROTATE, {"private_key": key}, world.token),
        "deliver": (
            credentials.CREDENTIAL_DELIVER,
            {"epoch": epoch, "credential_id": "cred_x", "recipient_key": base64.b64encode(b"\x09" * 32).decode()},
            token,
        ),
        "open": (credentials.CREDENTIAL_OPEN, {"operation_id": operation_id, "epoch": epoch}, token),
        "issue": (secrets.SECRET_ISSUE, {"epoch": epoch, "purpose": "role_join", "name": "join"}, token),
        "open secret": (secrets.DELIVERY_OPEN, {"operation_id": operation_id, "epoch": epoch}, token),
    }
    params: dict[str, Any] = {"operation_id": operation_id, "credential_id": "cred_x", "delivery_id": "dlv_x"}
    return {
        name: await world.send(endpoint, body, token=who, key="", **params)
        for name, (endpoint, body, who) in asked.items()
    }


async def test_secret_routes_answer_503_with_the_reason_until_somebody_unseals(world: World) -> None:
    await world.entitled_app()
    await world.deploy("one")
    for name, answer in (await _asks(world)).items():
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["retryable"]) == (503, "sealed", True), name
        assert "nobody has given the passphrase" in problem["message"]
        assert "gpuaas-platform unseal" in problem["fix"]
        assert answer.headers["retry-after"] == "1"
    assert (await world.call(CUSTODY_GET)).sealed
    assert (await unseal(world)).json()["sealed"] is False
    world.clock.forward(20)
    codes = {name: answer.json().get("code", "through") for name, answer in (await _asks(world)).items()}
    assert codes == {
        "create": "through",
        "rotate": "not_found",
        "deliver": "not_found",
        "open": "not_found",
        "issue": "through",
        "open secret": "not_found",
    }


async def test_everything_else_works_while_it_is_sealed(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token)
    assert (await world.call(secrets.SECRET_LIST, instance_id=deployed.instance.instance_id)).items == []
    assert (await world.call(credentials.CREDENTIAL_LIST)).items == []
    allocation_id = (await world.members(deployed.instance.instance_id))[0].allocation_id
    assert (await world.machine_access(world.token, allocation_id)).certificate
    assert (await world.http.get("/readyz")).status_code == 200


async def test_values_are_there_again_after_a_restart_and_the_right_passphrase(
    world: World, restarted: Callable[[], Any]
) -> None:
    await unseal(world)
    assert await world.site.custody.put("sec_one", b"value") == 1
    again = await restarted()
    with pytest.raises(custody.Sealed):
        await again.site.custody.get("sec_one", 1)
    wrong = await unseal(again, "something else")
    assert (wrong.status_code, wrong.json()["details"]) == (400, {"field": "passphrase"})
    assert (await again.call(CUSTODY_GET)).sealed
    assert (await unseal(again)).status_code == 200
    assert await again.site.custody.get("sec_one", 1) == b"value"
    assert (await unseal(again, "whatever")).json()["sealed"] is False, "what is open stays open"


async def test_guessing_is_slowed_down_and_on_record(world: World, restarted: Callable[[], Any]) -> None:
    await unseal(world)
    again = await restarted()
    answers = [await unseal(again, f"guess {number}") for number in range(6)]
    assert [answer.status_code for answer in answers] == [400] * 5 + [429]
    assert (await unseal(again)).status_code == 429, "also with the right one, or the limit would tell"
    again.clock.forward(61)
    assert (await unseal(again)).status_code == 200
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"action": "custody.seal.open"})).items
    assert sorted(row.result for row in rows) == ["failure"] * 5 + ["success"] * 2


async def test_only_who_runs_the_platform_unseals(world: World) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    tenant = await world.person("tenant", "tenant_admin", org_id)
    account = await world.service_account()
    for token in (tenant.token, account):
        assert (await world.send(UNSEAL, {"passphrase": PASSPHRASE}, token=token, key="")).status_code in (403, 404)
    assert (await world.call(CUSTODY_GET)).sealed


async def test_no_key_is_on_disk_in_the_clear(world: World) -> None:
    await unseal(world)
    await world.site.custody.put("sec_one", b"value")
    folder = world.site.settings.data_dir
    ring = custody_choice.key_file(world.site.settings)
    assert isinstance(ring, SealedFile)
    await asyncio.to_thread(ring.open, PASSPHRASE)
    (key,) = ring.read().values()
    assert stat.S_IMODE((folder / key_files.SEALED).stat().st_mode) == 0o600
    for path in [found for found in folder.rglob("*") if found.is_file()]:
        content = path.read_bytes()
        for form in (key, base64.b64encode(key), key.hex().encode(), PASSPHRASE.encode()):
            assert form not in content, path
    assert not (folder / key_files.PLAIN).exists()


async def test_a_key_sealed_elsewhere_is_never_replaced_by_a_new_one(
    world: World, restarted: Callable[[], Any]
) -> None:
    await unseal(world)
    await world.site.custody.put("sec_one", b"value")
    (world.site.settings.data_dir / key_files.SEALED).rename(world.site.settings.data_dir / "moved")
    again = await restarted()
    with pytest.raises(custody.Unreadable, match="put it back"):
        await again.site.custody.unseal(PASSPHRASE)
    assert not (world.site.settings.data_dir / key_files.SEALED).exists()


async def test_a_key_in_the_clear_keeps_a_sealed_server_from_starting_until_it_is_sealed(
    settings: Settings, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_settings = Settings(data_dir=settings.data_dir, database_url=settings.database_url)
    async with server.open_site(open_settings, clock) as site:
        await site.custody.put("sec_one", b"value")
    with pytest.raises(server.CannotStart) as refused:
        async with server.open_site(settings, clock):
            pass
    assert "custody seal" in refused.value.fix
    arguments = ["custody", "seal", "--data", str(settings.data_dir), "--database", settings.database_url]
    for _ in range(2):
        assert await _command(monkeypatch, arguments, PASSPHRASE) == 0
    assert not (settings.data_dir / key_files.PLAIN).exists()
    assert PASSPHRASE not in capsys.readouterr().out
    assert await _command(monkeypatch, arguments, "another") == 2
    for some in (settings, open_settings):
        async with server.open_site(some, clock) as site:
            await site.custody.unseal(PASSPHRASE)
            assert await site.custody.get("sec_one", 1) == b"value"


async def _command(monkeypatch: pytest.MonkeyPatch, arguments: list[str], passphrase: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpuaas-platform", *arguments])
    monkeypatch.setattr("sys.stdin", io.StringIO(passphrase + "\n"))
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main.main)
    return int(ended.value.code or 0)


async def test_a_sealed_key_is_rotated_with_its_passphrase_beside_a_running_server(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await unseal(world)
    await world.site.custody.put("sec_one", b"value")
    before = (await _counted(world.site)).present
    data = ["--data", str(world.site.settings.data_dir), "--database", world.site.settings.database_url]
    assert await _command(monkeypatch, ["custody", "rotate", *data], "wrong") == 2
    assert await _command(monkeypatch, ["custody", "rotate", *data], PASSPHRASE) == 0
    after = await _counted(world.site)
    assert after.present != before
    assert after.values_by_key == {after.present: 1}
    assert await world.site.custody.get("sec_one", 1) == b"value", "the server reads the new key by itself"
    assert await _command(monkeypatch, ["custody", "status", *data], "") == 0
    said = capsys.readouterr().out
    assert f"{after.present} wraps 1 values, present" in said
    assert "sealed by a passphrase" in said


async def _counted(site: Site) -> Any:
    return await custody_choice.embedded(site.settings, site.database).counted()


def test_the_command_unseals_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, options=["--sealed"]) as process:
        arguments = ["unseal", "--data", str(data), "--server", process.url]
        monkeypatch.setattr("sys.argv", ["gpuaas-platform", *arguments])
        for passphrase, code in ((PASSPHRASE, 0), ("", 2)):
            monkeypatch.setattr("sys.stdin", io.StringIO(passphrase + "\n"))
            with pytest.raises(SystemExit) as ended:
                main.main()
            assert ended.value.code == code
    said = capsys.readouterr()
    assert said.out.startswith("open: the file ")
    assert "no passphrase was given" in said.err


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_key_may_come_from_systemd_and_is_rotated_by_whoever_gives_it(
    tmp_path: Path,
    database_url: str,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = tmp_path / "credentials" / key_files.PLAIN
    given.parent.mkdir()
    await _command(monkeypatch, ["custody", "key"], "")
    given.write_text(capsys.readouterr().out)
    given.chmod(0o400)
    settings = Settings(data_dir=tmp_path / "data", database_url=database_url, custody_key_file=given)
    async with server.open_site(settings, clock) as site:
        await site.custody.put("sec_one", b"value")
    assert not (settings.data_dir / key_files.PLAIN).exists()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given.parent))
    rotate = ["custody", "rotate", "--data", str(settings.data_dir)]
    assert await _command(monkeypatch, rotate, "") == 2
    assert "holds no newer key" in capsys.readouterr().err
    await _command(monkeypatch, ["custody", "key", "--beside", str(given)], "")
    both = capsys.readouterr().out
    given.unlink()
    given.write_text(both)
    assert await _command(monkeypatch, rotate, "") == 0
    assert "take the others out" in capsys.readouterr().out
    newest = KeyRing(GivenFile(given)).key_ids()[-1]
    kept = PlainFile(given).read()
    given.write_bytes(msgspec.json.encode({newest: kept[newest]}))
    async with server.open_site(settings, clock) as site:
        assert await site.custody.get("sec_one", 1) == b"value"


def test_the_passphrase_is_stretched_by_argon2id(tmp_path: Path) -> None:
    file = SealedFile(tmp_path / key_files.SEALED)
    file.open(PASSPHRASE)
    box = msgspec.json.decode(file.path.read_bytes(), type=key_files.Box)
    assert (box.kdf, box.time_cost, box.memory_kib) == ("argon2id", 3, 65_536)
    stretched = argon2.low_level.hash_secret_raw(
        PASSPHRASE.encode(), box.salt, 3, 65_536, 4, 32, argon2.low_level.Type.ID
    )
    assert key_files._opened(box, stretched) == file.read()
