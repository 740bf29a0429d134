"""Sealed start: no key in the clear anywhere, secret routes report why they wait, everything else works."""

import asyncio
import base64
import dataclasses
import io
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import argon2.low_level
import httpx
import msgspec
import pytest
from canary import Canary
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, audit, capacity, credentials, errors, events, identity, secrets, ssh_keys
from gpuaas_contract.custody import CUSTODY_GET, UNSEAL
from gpuaas_contract.node import TASK_NEXT
from gpuaas_platform import main, server
from gpuaas_platform.access.machines import authority
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.call import Site
from gpuaas_platform.custody import key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import GivenFile, KeyRing, PlainFile, SealedFile
from gpuaas_platform.edge import http
from gpuaas_platform.kit import keys, loop
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import ssh_trust
from platform_world import FakeClock, Node, World, openssh_private, ssh_private_key, ssh_public_key
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
    """Return a function that opens the same store as after a restart: sealed again."""
    contexts: list[Any] = []

    async def restart() -> World:
        context = server.open_site(site.settings, world.clock)
        again = await context.__aenter__()
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=http.application(again, server.DOMAINS)), base_url="http://test"
        )
        contexts.append((context, client))
        return World(again, world.clock, client, world.token, world.project_id)

    yield restart
    for context, client in contexts:
        await client.aclose()
        await context.__aexit__(None, None, None)


@pytest.fixture
async def sealed(world: World, restarted: Callable[[], Any]) -> World:
    """A platform that was open once, after a restart: sealed, and it has an SSH authority."""
    await unseal(world)
    await authority.sweep(world.site)
    again: World = await restarted()
    return again


async def unseal(world: World, passphrase: str = PASSPHRASE) -> httpx.Response:
    return await world.send(UNSEAL, {"passphrase": passphrase}, key="")


async def _answers_of_secret_routes(world: World) -> dict[str, httpx.Response]:
    """Call every route that would have to store or read a value."""
    token = await world.service_account(f"sa-{world.clock().timestamp():.0f}")
    claim = await world.claim(token)
    assert claim.operation is not None
    operation_id, epoch = claim.operation.operation_id, claim.epoch
    key = ssh_private_key()
    requests: dict[str, Any] = {
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
        "enter": (
            access.MACHINE_ACCESS,
            {
                "operation_id": operation_id,
                "epoch": epoch,
                "public_key": ssh_public_key(Ed25519PrivateKey.generate()),
            },
            token,
        ),
    }
    params: dict[str, Any] = {
        "operation_id": operation_id,
        "credential_id": "cred_x",
        "delivery_id": "dlv_x",
        "allocation_id": claim.members[0].allocation_id,
    }
    return {
        name: await world.send(endpoint, body, token=who, **params) for name, (endpoint, body, who) in requests.items()
    }


async def test_secret_routes_answer_503_with_the_reason_until_the_platform_is_unsealed(sealed: World) -> None:
    world = sealed
    await world.entitled_app()
    await world.deploy("one")
    for name, answer in (await _answers_of_secret_routes(world)).items():
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["retryable"]) == (503, "sealed", True), name
        assert "the passphrase was not given" in problem["message"]
        assert "gpuaas-platform unseal" in problem["fix"]
        assert answer.headers["retry-after"] == "1"
    assert (await world.call(CUSTODY_GET)).sealed
    assert (await unseal(world)).json()["sealed"] is False
    world.clock.forward(20)
    codes = {
        name: answer.json().get("code", "through") for name, answer in (await _answers_of_secret_routes(world)).items()
    }
    assert codes == {
        "create": "through",
        "rotate": "not_found",
        "deliver": "not_found",
        "open": "not_found",
        "issue": "through",
        "open secret": "not_found",
        "enter": "through",
    }


async def test_everything_else_works_while_it_is_sealed(sealed: World) -> None:
    await sealed.entitled_app()
    token = await sealed.service_account()
    deployed = await sealed.running_instance(token)
    assert (await sealed.call(secrets.SECRET_LIST, instance_id=deployed.instance.instance_id)).items == []
    assert (await sealed.call(credentials.CREDENTIAL_LIST)).items == []
    assert (await sealed.call(access.GRANT_LIST)).items == []
    spare = await sealed.allocation("spare")
    released = await sealed.call(capacity.ALLOCATION_RELEASE, allocation_id=spare.allocation_id)
    assert (spare.status, released.status) == ("active", "releasing")
    assert (await sealed.http.get("/readyz")).status_code == 200


async def test_access_is_revoked_while_it_is_sealed(world: World, restarted: Callable[[], Any]) -> None:
    await unseal(world)
    await authority.sweep(world.site)
    node = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    await world.finish_task(node)
    granted = await world.machine_access(world.token, made.allocation_id)
    again = await restarted()
    await again.call(access.GRANT_REVOKE, {"reason": "stolen"}, grant_id=granted.grant_id)
    assert await _trust_task(again, node) == (
        await ssh_trust.public_keys(again.site.database.reader, again.site),
        [int(granted.serial)],
    )
    await again.finish_task(node)
    await grants_reconcile.sweep(again.site)
    (ended,) = (await again.call(access.GRANT_LIST)).items
    assert (ended.state, ended.enforced_at) == ("ended", again.clock())


async def _trust_task(world: World, node: Node) -> tuple[list[str], list[int]]:
    """Return which authorities the node's next task trusts, and which serials it refuses."""
    task = await world.next_task(node)
    assert task is not None
    assert task["type"] == "ssh.trust"
    return task["params"]["user_ca_public_keys"], task["params"]["revoked_serials"]


async def test_a_first_start_that_is_sealed_claims_nodes_and_prepares_them_after_the_unseal(world: World) -> None:
    node = await world.node("n1")
    (claimed,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    assert claimed.status == "requested"
    assert "gpuaas-platform unseal" in claimed.status_reason
    with pytest.raises(loop.Later, match="custody is not open"):
        await authority.sweep(world.site)
    await world.sweep()
    assert await world.next_task(node) is None
    with pytest.raises(errors.Sealed, match="the passphrase was not given"):
        await world.machine_access(world.token, claimed.allocation_id)
    await unseal(world)
    await _sweep(world)
    await world.finish_task(node)
    ready = await world.call(capacity.ALLOCATION_GET, allocation_id=claimed.allocation_id)
    assert (ready.status, ready.status_reason) == ("active", "")
    assert (await world.machine_access(world.token, claimed.allocation_id)).certificate
    changes = [
        event for event in (await world.call(events.EVENT_LIST)).items if event.type.startswith("capacity.allocation")
    ]
    assert [event.payload["status"] for event in changes] == ["requested", "provisioning", "active"]
    assert {event.correlation_id for event in changes} == {claimed.correlation_id}


async def _sweep(world: World) -> None:
    await authority.sweep(world.site)
    await world.sweep()


async def test_keys_chosen_for_a_claim_that_waits_are_installed_after_its_user_is_made(world: World) -> None:
    node, ada = await world.node("n1"), await world.person("ada", "project_admin", world.project_id)
    await world.call(
        ssh_keys.SSH_KEY_CREATE, {"public_key": ssh_public_key(Ed25519PrivateKey.generate())}, token=ada.token
    )
    (claimed,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    body = {"user_ids": [ada.user_id]}
    chosen = await world.call(ssh_keys.ALLOCATION_KEYS_SET, body, allocation_id=claimed.allocation_id)
    assert (chosen.state, await world.next_task(node)) == ("pending", None)
    await unseal(world)
    await _sweep(world)
    done = []
    for _ in range(2):
        task = await world.next_task(node)
        assert task is not None
        done.append(task["type"])
        await world.finish_task(node)
        world.clock.forward(10)
        await _sweep(world)
    assert done == ["allocation.provision", "allocation.install_authorized_keys"]


async def test_a_claim_that_waits_can_be_given_back(world: World) -> None:
    node = await world.node("n1")
    (claimed,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=claimed.allocation_id)
    await world.finish_task(node)
    gone = await world.call(capacity.ALLOCATION_GET, allocation_id=claimed.allocation_id)
    assert gone.status == "released"
    await unseal(world)
    await _sweep(world)
    assert await world.next_task(node) is None


@pytest.fixture
def key_in_file(settings: Settings) -> Ed25519PrivateKey:
    """What an earlier release left: the SSH authority in the clear."""
    key, folder = Ed25519PrivateKey.generate(), settings.data_dir / "keys"
    folder.mkdir(parents=True)
    keys.write_private(folder / "ssh-authority.pem", keys.private_pem(key))
    return key


async def test_an_upgraded_platform_that_starts_sealed_continues_with_the_key_its_machines_trust(
    key_in_file: Ed25519PrivateKey, world: World, restarted: Callable[[], Any]
) -> None:
    allocation = await world.allocation("n1")
    assert allocation.status == "active", "the public half is known"
    with pytest.raises(errors.Sealed):
        await world.machine_access(world.token, allocation.allocation_id)
    await unseal(world)
    await _sweep(world)
    file = ssh_trust.file(world.site)
    assert not file.exists()
    assert (await authority.signing_key(world.site)).private_bytes_raw() == key_in_file.private_bytes_raw()
    keys.write_private(file, keys.private_pem(key_in_file))
    await authority.start((await restarted()).site)
    assert not file.exists(), "as after a crash; it needs no open custody"


class TestWithLoops:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        """The loops do nothing unless they are woken."""
        return dataclasses.replace(settings, sweep_interval_s=3600)

    async def test_an_unseal_wakes_the_loops_that_waited_for_it(self, world: World) -> None:
        node = await world.node("n1")
        async with server.loops(world.site):
            await world.call(capacity.ALLOCATION_CREATE, {})
            asked = asyncio.create_task(world.call(TASK_NEXT, token=node.token, query={"wait_s": 30}))
            await unseal(world)
            assert (await asked).task is not None


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


async def test_guesses_are_slowed_down_and_in_the_audit_log(world: World, restarted: Callable[[], Any]) -> None:
    await unseal(world)
    again = await restarted()
    answers = [await unseal(again, f"guess {number}") for number in range(6)]
    assert [answer.status_code for answer in answers] == [400] * 5 + [429]
    assert (await unseal(again)).status_code == 429, "also with the right one, or the limit would reveal it"
    again.clock.forward(61)
    assert (await unseal(again)).status_code == 200
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"action": "custody.seal.open"})).items
    assert sorted(row.result for row in rows) == ["failure"] * 5 + ["success"] * 2


async def test_only_platform_operators_can_unseal(world: World) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    tenant = await world.person("tenant", "tenant_admin", org_id)
    account = await world.service_account()
    for token in (tenant.token, account):
        assert (await world.send(UNSEAL, {"passphrase": PASSPHRASE}, token=token, key="")).status_code in (403, 404)
    assert (await world.call(CUSTODY_GET)).sealed


async def test_no_key_is_on_disk_in_the_clear(world: World) -> None:
    await unseal(world)
    await world.site.custody.put("sec_one", b"value")
    await authority.sweep(world.site)
    folder = world.site.settings.data_dir
    ring = key_files.chosen(world.site.settings)
    assert isinstance(ring, SealedFile)
    await asyncio.to_thread(ring.open, PASSPHRASE)
    (key,) = ring.read().values()
    authority_key = Canary.of_key(openssh_private(await authority.signing_key(world.site)))
    assert stat.S_IMODE((folder / key_files.SEALED).stat().st_mode) == 0o600
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        for form in (key, base64.b64encode(key), key.hex().encode(), PASSPHRASE.encode()):
            assert form not in content, path
        assert not authority_key.is_in(content), path
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
    output = capsys.readouterr().out
    assert f"{after.present} wraps 1 values, present" in output
    assert "sealed by a passphrase" in output


async def _counted(site: Site) -> Any:
    return await EmbeddedCustody.opened(site.settings, site.database).counted()


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
    output = capsys.readouterr()
    assert output.out.startswith("open: the file ")
    assert "no passphrase was given" in output.err


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_key_may_come_from_systemd_and_is_rotated_by_a_new_key_in_its_file(
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
