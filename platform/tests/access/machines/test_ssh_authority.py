"""The SSH authority: one forever, its private key in custody only, wherever a process dies while it moves there."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate
from gpuaas_contract import audit, capacity, errors
from gpuaas_platform import server
from gpuaas_platform.access.machines import authority
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.call import Site
from gpuaas_platform.custody import key_files
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import KeyRing
from gpuaas_platform.kit import keys
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.ssh_trust import Authority
from platform_world import FakeClock, World, ssh_public_key


async def known(site: Site) -> Authority:
    authority_on_record = await ssh_trust.authority(site.database.reader)
    assert authority_on_record is not None
    return authority_on_record


async def values_kept(site: Site, clock: FakeClock) -> list[str]:
    """What stays in custody once everything that was put there by accident has been taken out."""
    clock.forward(61)
    await secrets_reconcile.sweep(site)
    return [row[0] for row in await site.database.reader.all("SELECT ref FROM custody ORDER BY ref")]


async def test_the_first_start_makes_one_and_later_starts_leave_it_alone(site: Site, clock: FakeClock) -> None:
    await authority.start(site)
    made = await known(site)
    assert ssh_public_key(await authority.signing_key(site)) == made.public_key
    for again in (authority.start, authority.sweep, authority.ensure):
        await again(site)
    assert await known(site) == made
    assert await values_kept(site, clock) == [made.secret_id]
    assert [path.name for path in (site.settings.data_dir / "keys").glob("ssh*")] == []


async def test_commands_that_open_the_store_make_none(settings: Settings, clock: FakeClock) -> None:
    """They do not receive the server's choice of custody."""
    async with server.open_site(settings, clock) as site:
        assert await ssh_trust.authority(site.database.reader) is None
    assert not list(settings.data_dir.rglob("custody*"))


async def test_machines_trust_it_and_certificates_are_signed_by_it(world: World) -> None:
    node = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    task = await world.next_task(node)
    assert task is not None
    public_key = (await known(world.site)).public_key
    assert task["params"]["user_ca_public_keys"] == [public_key]
    await world.finish_task(node)
    granted = await world.machine_access(world.token, made.allocation_id)
    certificate = load_ssh_public_identity(granted.certificate.encode())
    assert isinstance(certificate, SSHCertificate)
    certificate.verify_cert_signature()
    assert certificate.signature_key() == (await authority.signing_key(world.site)).public_key()


async def test_it_is_on_the_audit_trail_by_its_public_half(world: World) -> None:
    (row,) = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"action": "access.authority.keep"})).items
    made = await known(world.site)
    assert (row.target, row.actor_id, row.details) == (made.secret_id, "platform", {"public_key": made.public_key})


async def test_a_rotation_of_custodys_key_covers_it(site: Site) -> None:
    await authority.start(site)
    embedded = EmbeddedCustody.opened(site.settings, site.database)
    before = (await embedded.counted()).present
    async for _ in embedded.rotate():
        assert ssh_public_key(await authority.signing_key(site)) == (await known(site)).public_key
    counted = await embedded.counted()
    assert (counted.present != before, counted.values_by_key) == (True, {counted.present: 1})


class Killed(Exception):
    """The process died here."""


class DyingCustody(EmbeddedCustody):
    """The custody of a process that dies before or after it has put a value."""

    def __init__(self, site: Site, *, before: bool) -> None:
        super().__init__(site.database, KeyRing(key_files.chosen(site.settings)))
        self._before = before

    async def put(self, ref: str, value: bytes) -> int:
        if not self._before:
            await super().put(ref, value)
        raise Killed


class MeetingCustody(EmbeddedCustody):
    """The custody of a process that puts a value at the same moment as another."""

    def __init__(self, site: Site, barrier: asyncio.Barrier) -> None:
        super().__init__(site.database, KeyRing(key_files.chosen(site.settings)))
        self._barrier = barrier

    async def put(self, ref: str, value: bytes) -> int:
        version = await super().put(ref, value)
        await self._barrier.wait()
        return version


@pytest.fixture
def left(settings: Settings) -> Ed25519PrivateKey:
    """The key of an earlier release, in its file."""
    key = Ed25519PrivateKey.generate()
    file = settings.data_dir / "keys" / "ssh-authority.pem"
    file.parent.mkdir(parents=True)
    keys.write_private(file, keys.private_pem(key))
    return key


async def test_a_key_in_a_file_is_taken_over_and_the_file_removed(left: Ed25519PrivateKey, site: Site) -> None:
    assert await ssh_trust.public_keys(site.database.reader, site) == [ssh_public_key(left)], "trusted all along"
    await authority.start(site)
    assert (await known(site)).public_key == ssh_public_key(left)
    assert (await authority.signing_key(site)).private_bytes_raw() == left.private_bytes_raw()
    assert not ssh_trust.file(site).exists()


async def _dies_before_the_value_is_kept(site: Site) -> None:
    await _die(dataclasses.replace(site, custody=DyingCustody(site, before=True)))


async def _dies_before_it_is_on_record(site: Site) -> None:
    await _die(dataclasses.replace(site, custody=DyingCustody(site, before=False)))


async def _dies_before_the_file_is_removed(site: Site) -> None:
    content = ssh_trust.file(site).read_bytes()
    await authority.ensure(site)
    keys.write_private(ssh_trust.file(site), content)


async def _die(site: Site) -> None:
    with pytest.raises(Killed):
        await authority.ensure(site)
    assert ssh_trust.file(site).exists()


@pytest.mark.parametrize(
    "dies", [_dies_before_the_value_is_kept, _dies_before_it_is_on_record, _dies_before_the_file_is_removed]
)
async def test_a_takeover_that_dies_anywhere_is_finished_by_the_next_start(
    left: Ed25519PrivateKey, site: Site, clock: FakeClock, dies: Callable[[Site], Awaitable[None]]
) -> None:
    await dies(site)
    assert await ssh_trust.public_keys(site.database.reader, site) == [ssh_public_key(left)]
    await authority.start(site)
    made = await known(site)
    assert made.public_key == ssh_public_key(left)
    assert not ssh_trust.file(site).exists()
    assert await values_kept(site, clock) == [made.secret_id]
    assert (await authority.signing_key(site)).private_bytes_raw() == left.private_bytes_raw()


async def test_a_file_with_another_key_is_never_removed(site: Site) -> None:
    await authority.start(site)
    made, file = await known(site), ssh_trust.file(site)
    keys.write_private(file, keys.private_pem(Ed25519PrivateKey.generate()))
    content = file.read_bytes()
    await authority.start(site)
    assert (await known(site), file.read_bytes()) == (made, content)
    assert ssh_public_key(await authority.signing_key(site)) == made.public_key


async def test_of_two_processes_that_make_one_at_once_both_get_the_same(settings: Settings, clock: FakeClock) -> None:
    barrier = asyncio.Barrier(2)
    async with server.open_site(settings, clock) as here, server.open_site(settings, clock) as there:
        racing = [dataclasses.replace(site, custody=MeetingCustody(site, barrier)) for site in (here, there)]
        await asyncio.gather(*(authority.ensure(site) for site in racing))
        made = await known(here)
        assert await known(there) == made
        for site in (here, there):
            assert ssh_public_key(await authority.signing_key(site)) == made.public_key
        assert await values_kept(here, clock) == [made.secret_id]


async def test_two_processes_that_take_over_the_file_at_once_get_the_same_key(
    left: Ed25519PrivateKey, settings: Settings, clock: FakeClock
) -> None:
    async with server.open_site(settings, clock) as here, server.open_site(settings, clock) as there:
        await asyncio.gather(authority.ensure(here), authority.ensure(there))
        assert [(await known(site)).public_key for site in (here, there)] == [ssh_public_key(left)] * 2
    assert not ssh_trust.file(here).exists()


async def test_a_key_that_custody_lost_is_reported_and_never_replaced(world: World) -> None:
    allocation = await world.allocation("n1")
    made = await known(world.site)
    await world.site.custody.delete(made.secret_id)
    with pytest.raises(errors.Unavailable, match="not in this custody") as refused:
        await world.machine_access(world.token, allocation.allocation_id)
    assert made.secret_id in refused.value.fix
    await authority.start(world.site)
    assert await known(world.site) == made


async def test_a_store_whose_custody_key_is_lost_still_starts(site: Site, settings: Settings, clock: FakeClock) -> None:
    await site.custody.put("sec_one", b"value")
    (settings.data_dir / key_files.PLAIN).rename(settings.data_dir / "lost")
    async with server.open_site(settings, clock) as restarted:
        await authority.start(restarted)
        assert await ssh_trust.authority(restarted.database.reader) is None
