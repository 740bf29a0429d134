"""Custody in Vault: the same promises as the embedded one, over KV version 2, and no value in any error."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import vault_server
from gpuaas_contract import capacity, credentials, errors, secrets
from gpuaas_contract.custody import CUSTODY_GET
from gpuaas_contract.operations import Operation
from gpuaas_platform import main
from gpuaas_platform.access.machines import authority
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.vault import VaultCustody
from gpuaas_platform.kit import loop
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import ssh_trust
from platform_world import World, ssh_private_key, ssh_public_key
from vault_server import MOUNT, VaultServer

VALUE = b"\x00\xff binary value"


@pytest.fixture
def vault() -> Iterator[VaultServer]:
    with vault_server.running() as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path, vault: VaultServer) -> Path:
    path = tmp_path / "vault-token"
    path.write_text(vault.token + "\n")
    return path


def custody_at(url: str, token_file: Path, mount: str = MOUNT) -> VaultCustody:
    settings = Settings(token_file.parent, vault_address=url, vault_token_file=token_file, vault_mount=mount)
    return VaultCustody(settings)


@pytest.fixture
def kept(vault: VaultServer, token_file: Path) -> VaultCustody:
    return custody_at(vault.url, token_file)


async def test_values_can_be_read_back_by_version(kept: VaultCustody, vault: VaultServer) -> None:
    assert [await kept.put("sec_one", value) for value in (VALUE, b"second")] == [1, 2]
    assert (await kept.get("sec_one", 1), await kept.get("sec_one", 2)) == (VALUE, b"second")
    assert list(vault.kept) == ["gpuaas/sec_one"]


async def test_puts_that_race_for_one_ref_get_versions_of_their_own(kept: VaultCustody) -> None:
    versions = await asyncio.gather(*(kept.put("sec_race", str(number).encode()) for number in range(20)))
    assert sorted(versions) == list(range(1, 21))
    assert [await kept.get("sec_race", version) for version in versions] == [str(n).encode() for n in range(20)]


async def test_a_delete_removes_every_version_and_may_be_repeated(kept: VaultCustody, vault: VaultServer) -> None:
    for value in (VALUE, b"second"):
        await kept.put("sec_one", value)
    for _ in range(2):
        await kept.delete("sec_one")
    assert vault.kept == {}
    for version in (1, 2):
        with pytest.raises(custody.SecretMissing):
            await kept.get("sec_one", version)


async def test_a_token_that_was_replaced_is_read_again(
    kept: VaultCustody, vault: VaultServer, token_file: Path
) -> None:
    await kept.put("sec_one", VALUE)
    vault.token = "s.second"
    with pytest.raises(custody.Unavailable, match="refuses the platform's token"):
        await kept.get("sec_one", 1)
    _replace(token_file, "s.second")
    assert await kept.get("sec_one", 1) == VALUE
    _replace(token_file, None)
    vault.token = "s.third"
    with pytest.raises(custody.Unavailable, match="token file"):
        await kept.get("sec_one", 1)


def _replace(token_file: Path, token: str | None) -> None:
    token_file.unlink()
    if token is not None:
        token_file.write_text(token)


async def test_a_sealed_vault_is_reported_and_unsealed_with_its_own_command(
    kept: VaultCustody, vault: VaultServer
) -> None:
    vault.sealed = True
    with pytest.raises(custody.Sealed):
        await kept.put("sec_one", VALUE)
    assert (await kept.status()).sealed
    with pytest.raises(custody.Unavailable, match="vault operator unseal"):
        await kept.unseal("anything")
    vault.sealed = False
    assert not (await kept.status()).sealed


async def test_a_vault_that_refuses_the_token_is_reported_with_the_next_command(
    kept: VaultCustody, vault: VaultServer, token_file: Path
) -> None:
    assert not (await kept.status()).sealed
    vault.token = "s.second"
    refused = await kept.status()
    assert (refused.sealed, refused.refused) == (True, True)
    assert "refuses the platform's token" in refused.key
    assert refused.fix == f"vault token create -policy=POLICY -field=token > {token_file}"
    _replace(token_file, "s.second")
    healed = await kept.status()
    assert (healed.sealed, healed.refused, healed.fix) == (False, False, "")
    assert vault.kept == {}, "a status request leaves nothing behind"


async def test_the_status_distinguishes_why_vault_is_not_open(vault: VaultServer, token_file: Path) -> None:
    lost = custody_at(vault.url, token_file, "elsewhere")
    assert ((await lost.status()).refused, (await lost.status()).fix) == (
        True,
        "vault secrets enable -path=elsewhere kv-v2",
    )
    nowhere = custody_at("http://127.0.0.1:9", token_file)
    assert ((await nowhere.status()).refused, (await nowhere.status()).fix) == (
        False,
        "vault status -address=http://127.0.0.1:9",
    )
    vault.sealed = True
    kept = custody_at(vault.url, token_file)
    assert ((await kept.status()).refused, (await kept.status()).fix) == (False, "vault operator unseal")


async def test_the_error_for_a_vault_that_does_not_answer_contains_no_value(
    kept: VaultCustody, token_file: Path
) -> None:
    nowhere = custody_at("http://127.0.0.1:9", token_file)
    with pytest.raises(custody.Unavailable, match="does not answer") as gone:
        await nowhere.put("sec_one", VALUE)
    assert base64.b64encode(VALUE).decode() not in f"{gone.value!r} {gone.value.__cause__!r}"
    assert "does not answer" in (await nowhere.status()).key


async def test_an_entry_of_another_program_is_not_returned_as_a_value(kept: VaultCustody, vault: VaultServer) -> None:
    vault.kept["gpuaas/sec_one"] = [{"value": "not base64!"}, {"other": "field"}]
    for version in (1, 2):
        with pytest.raises(custody.Unreadable):
            await kept.get("sec_one", version)


@pytest.fixture
def settings(tmp_path: Path, database_url: str, vault: VaultServer, token_file: Path) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
        rate_limit_per_s=0,
        node_rate_limit_per_s=0,
        vault_address=vault.url,
        vault_token_file=token_file,
    )


async def test_the_platform_keeps_its_secrets_in_vault_and_takes_them_out_again(
    world: World, vault: VaultServer
) -> None:
    token, epoch, operation = await _claimed(world)
    operation_id = operation.operation_id
    before = set(vault.kept)
    body = {"epoch": epoch, "purpose": "role_join", "name": "join", "value": "the value"}
    issued = await world.call(secrets.SECRET_ISSUE, body, token=token, operation_id=operation_id)
    assert set(vault.kept) - before == {f"gpuaas/{issued.secret.secret_id}"}
    opening = {"operation_id": operation_id, "epoch": epoch}
    delivered = await world.call(secrets.DELIVERY_OPEN, opening, token=token, delivery_id=issued.delivery_id)
    assert delivered.value == "the value"
    await world.call(secrets.SECRET_REVOKE, instance_id=operation.instance_id, secret_id=issued.secret.secret_id)
    await secrets_reconcile.sweep(world.site)
    assert set(vault.kept) == before
    status = await world.call(CUSTODY_GET)
    assert (status.store, status.sealed) == ("vault", False)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_vault_that_is_down_is_an_answer_that_may_be_tried_again(world: World, vault: VaultServer) -> None:
    token, epoch, operation = await _claimed(world)
    body = {"epoch": epoch, "purpose": "role_join", "name": "join", "value": "the value"}
    vault.sealed = True
    answer = await world.send(secrets.SECRET_ISSUE, body, token=token, operation_id=operation.operation_id, key="")
    assert (answer.status_code, answer.json()["code"]) == (503, "sealed")
    vault.sealed = False
    answer = await world.send(secrets.SECRET_ISSUE, body, token=token, operation_id=operation.operation_id, key="")
    assert answer.status_code == 201


async def test_an_opening_that_vault_refused_can_be_repeated(world: World, vault: VaultServer) -> None:
    token, epoch, operation = await _claimed(world)
    operation_id = operation.operation_id
    body = {"epoch": epoch, "purpose": "role_join", "name": "join", "value": "the value"}
    issued = await world.call(secrets.SECRET_ISSUE, body, token=token, operation_id=operation_id)
    opening = {"operation_id": operation_id, "epoch": epoch}
    asked = {"token": token, "delivery_id": issued.delivery_id}
    vault.sealed = True
    with pytest.raises(errors.Sealed):
        await world.call(secrets.DELIVERY_OPEN, opening, **asked)
    vault.sealed, good, vault.token = False, vault.token, "s.another"
    with pytest.raises(errors.Unavailable):
        await world.call(secrets.DELIVERY_OPEN, opening, **asked)
    vault.token = good
    assert (await world.call(secrets.DELIVERY_OPEN, opening, **asked)).value == "the value"
    with pytest.raises(errors.SecretAlreadyDelivered):
        await world.call(secrets.DELIVERY_OPEN, opening, **asked)


async def test_the_ssh_authority_is_in_vault_and_access_waits_for_it(world: World, vault: VaultServer) -> None:
    made = await ssh_trust.authority(world.site.database.reader)
    assert made is not None
    assert list(vault.kept) == [f"gpuaas/{made.secret_id}"]
    assert ssh_public_key(await authority.signing_key(world.site)) == made.public_key
    allocation = await world.allocation("n1")
    vault.sealed = True
    with pytest.raises(errors.Sealed):
        await world.machine_access(world.token, allocation.allocation_id)
    vault.sealed, token, vault.token = False, vault.token, "s.another"
    with pytest.raises(errors.Unavailable) as refused:
        await world.machine_access(world.token, allocation.allocation_id)
    assert refused.value.retryable
    vault.token = token
    assert (await world.machine_access(world.token, allocation.allocation_id)).certificate


class TestFirstStartWithoutVault:
    @pytest.fixture
    def vault(self, vault: VaultServer) -> VaultServer:
        vault.sealed = True
        return vault

    async def test_the_authority_is_made_when_vault_is_back(self, world: World, vault: VaultServer) -> None:
        node = await world.node("n1")
        (claimed,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
        noted = await _noted(world)
        with pytest.raises(loop.Later, match="custody is not open"):
            await authority.sweep(world.site)
        assert (claimed.status, vault.kept) == ("requested", {})
        assert await _noted(world) == noted, "a long outage leaves nothing to clean up"
        vault.sealed = False
        await authority.sweep(world.site)
        await world.sweep()
        await world.finish_task(node)
        assert (await world.machine_access(world.token, claimed.allocation_id)).certificate


class TestFirstStartThatVaultRefuses:
    @pytest.fixture
    def token_file(self, token_file: Path) -> Path:
        token_file.write_text("s.wrong")
        return token_file

    async def test_the_refusal_is_reported_and_leaves_nothing_to_clean_up(
        self, world: World, vault: VaultServer, token_file: Path
    ) -> None:
        for _ in range(3):
            with pytest.raises(loop.Later, match=r"no SSH authority yet.*--vault-token-file"):
                await authority.sweep(world.site)
        assert (await _noted(world), vault.kept) == (0, {})
        _replace(token_file, vault.token)
        await authority.sweep(world.site)
        assert await authority.signing_key(world.site)

    async def test_a_caller_gets_the_refusal_of_custody_and_leaves_nothing_to_clean_up(self, world: World) -> None:
        body = {"name": "fleet", "private_key": ssh_private_key()}
        answer = await world.send(credentials.CREDENTIAL_CREATE, body)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.json()["detail"] == "The store of secrets (custody) refuses this server."
        assert await _noted(world) == 0


async def test_the_command_and_the_api_report_that_vault_refuses_and_what_to_do(
    world: World,
    vault: VaultServer,
    token_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    vault.token = "s.another"
    shown, settings = await world.call(CUSTODY_GET), world.site.settings
    assert (shown.sealed, shown.refused) == (True, True)
    where = ["--data", str(settings.data_dir), "--database", settings.database_url]
    reached = ["--vault-address", vault.url, "--vault-token-file", str(token_file)]
    monkeypatch.setattr("sys.argv", ["gpuaas-platform", "custody", "status", *where, *reached])
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main.main)
    assert not ended.value.code
    output = capsys.readouterr().out
    assert "state   refused\n" in output
    assert f"next    {shown.fix}\n" in output
    assert str(token_file) in shown.fix


async def test_a_missing_engine_is_distinguished_from_a_missing_value(vault: VaultServer, token_file: Path) -> None:
    lost = custody_at(vault.url, token_file, "elsewhere")
    for act in (lost.put("sec_one", VALUE), lost.get("sec_one", 1), lost.delete("sec_one")):
        with pytest.raises(custody.Refused, match="no KV version 2 engine at elsewhere/; see --vault-mount"):
            await act


async def test_values_that_vault_does_not_delete_are_reported_and_deleted_later(
    world: World, vault: VaultServer, token_file: Path
) -> None:
    await world.entitled_app()
    made = await world.call(credentials.CREDENTIAL_CREATE, {"name": "fleet", "private_key": ssh_private_key()})
    await world.call(credentials.CREDENTIAL_REVOKE, {"reason": "over"}, credential_id=made.credential_id)
    kept, vault.token = set(vault.kept), "s.another"
    with pytest.raises(loop.Later, match="could not be deleted from the secret store yet: Vault refuses"):
        await secrets_reconcile.sweep(world.site)
    assert set(vault.kept) == kept
    _replace(token_file, vault.token)
    await secrets_reconcile.sweep(world.site)
    assert len(vault.kept) == 1, "the SSH authority stays"


async def _noted(world: World) -> int:
    """Return how many values may be in custody and have to be deleted from it."""
    return len(await world.site.database.reader.all("SELECT secret_id FROM secrets_due"))


async def _claimed(world: World) -> tuple[str, int, Operation]:
    """A deploy in the hands of a controller: its token, its epoch and the operation."""
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim = await world.claim(token)
    assert claim.operation is not None
    return token, claim.epoch, claim.operation
