"""Certificates on a real sshd: the right one gets in, every other is refused, and what ends takes live sessions along.

The tests run in order on two machines; each test leaves the machines as it found them, the last one gives one back."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import access_lab
import asyncssh
import pytest
from access_lab import Entrance, Held, Machines, certificate_by, enter, lab
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, bindings, capacity, catalog, identity, posix
from server_process import Cloud

pytestmark = pytest.mark.machines
ENDS_WITHIN_S = 5


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with access_lab.machines(tmp_path_factory.mktemp("access")) as machines:
        yield machines


@pytest.fixture
async def cloud(machines: Machines) -> AsyncIterator[Cloud]:
    async with machines.cloud() as cloud:
        yield cloud


@pytest.fixture
async def entrance(cloud: Cloud, tmp_path: Path) -> Entrance:
    """A person's, to gpu-1."""
    return await enter(cloud, tmp_path, (await access_lab.allocations(cloud))["gpu-1"].allocation_id)


async def _revoke(cloud: Cloud, entrance: Entrance) -> None:
    await cloud.call(access.GRANT_REVOKE, {"reason": "test"}, grant_id=entrance.granted.grant_id)


async def test_a_service_account_enters_its_machine_and_runs_a_command(cloud: Cloud, tmp_path: Path) -> None:
    allocation_id = (await access_lab.allocations(cloud))["gpu-1"].allocation_id
    held = await access_lab.take_up(cloud, "first")
    entrance = await enter(cloud, tmp_path, allocation_id, token=held.token, **held.body())
    async with asyncssh.connect(**entrance.options()) as connection:
        assert (await connection.run("hostname", check=True)).stdout == "gpu-1\n"
    assert access_lab.ssh_answer(entrance, "sudo", "-n", "id", "-u") == (0, "0\n")


async def test_every_other_certificate_is_refused_by_asyncssh_and_by_openssh(
    cloud: Cloud, machines: Machines, entrance: Entrance
) -> None:
    ours, foreign = await machines.authority(), Ed25519PrivateKey.generate()
    other = (await access_lab.allocations(cloud))["gpu-2"].allocation_id
    bad = {
        "expired": certificate_by(ours, entrance, from_s=-600, to_s=-60),
        "not yet": certificate_by(ours, entrance, from_s=300, to_s=600),
        "foreign authority": certificate_by(foreign, entrance),
        "wrong principal": certificate_by(ours, entrance, principal="root"),
        "another allocation": certificate_by(ours, entrance, principal=other),
        "wrong source": certificate_by(ours, entrance, source="192.0.2.1"),
    }
    refused = {name: await access_lab.is_refused_by_both(entrance.with_certificate(text)) for name, text in bad.items()}
    assert refused == dict.fromkeys(bad, True)
    good = entrance.with_certificate(certificate_by(ours, entrance))
    assert access_lab.ssh_answer(good, "true")[0] == 0, "the check of the check"
    async with asyncssh.connect(**entrance.options()):
        pass


async def test_a_good_certificate_is_refused_from_another_machine_and_for_another_user(
    cloud: Cloud, entrance: Entrance
) -> None:
    command = entrance.ssh("true")
    for path in (entrance.folder / name for name in ("id", "id-cert.pub", "hosts")):
        script = f"umask 077; mkdir -p /tmp/stolen; cat > /tmp/stolen/{path.name}"
        await asyncio.to_thread(lab, "exec", "gpu-2", "--", "sh", "-c", script, given=path.read_text())
    there = [part.replace(str(entrance.folder), "/tmp/stolen") for part in command]
    as_root = [part.replace(f"{entrance.granted.user}@", "root@") for part in command]
    for attempt in (access_lab.lab_command("exec", "gpu-2", "--", *there), as_root):
        ended = await asyncio.to_thread(subprocess.run, attempt, capture_output=True, text=True)
        assert (ended.returncode, "Permission denied" in ended.stderr) == (255, True)
    await asyncio.to_thread(lab, "exec", "gpu-2", "--", "rm", "-r", "/tmp/stolen")


async def test_another_host_key_is_not_trusted(entrance: Entrance) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    hosts = asyncssh.import_known_hosts(f"{entrance.granted.host} {other}\n")
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await asyncssh.connect(**{**entrance.options(), "known_hosts": hosts})


async def test_a_revoked_certificate_is_refused_and_others_still_work(
    cloud: Cloud, entrance: Entrance, tmp_path: Path
) -> None:
    other = await enter(cloud, tmp_path, (await access_lab.allocations(cloud))["gpu-1"].allocation_id)
    await _revoke(cloud, entrance)
    await access_lab.until_enforced(cloud, entrance.granted.grant_id)
    assert await access_lab.is_refused_by_both(entrance)
    assert access_lab.ssh_answer(other, "true")[0] == 0
    revoked = await asyncio.to_thread(lab, "exec", "gpu-1", "--", "cat", "/etc/gpuaas/ssh/revoked_serials")
    assert entrance.granted.serial in revoked.split()


async def test_revoking_ends_live_sessions_of_both_clients_and_all_that_runs_in_them(
    cloud: Cloud, entrance: Entrance, tmp_path: Path
) -> None:
    other = await enter(cloud, tmp_path, (await access_lab.allocations(cloud))["gpu-1"].allocation_id)
    async with asyncssh.connect(**other.options()) as kept, asyncssh.connect(**entrance.options()) as connection:
        process = await connection.create_process("echo started; sudo -n sleep 7777 & setsid -f sleep 7776; sleep 7778")
        assert await process.stdout.readline() == "started\n"
        openssh = await asyncio.create_subprocess_exec(
            *entrance.ssh("echo started; sleep 7779"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert openssh.stdout is not None
        assert await openssh.stdout.readline() == b"started\n"
        await _revoke(cloud, entrance)
        async with asyncio.timeout(ENDS_WITHIN_S):
            await connection.wait_closed()
            await openssh.wait()
        assert openssh.returncode == 255
        assert (await kept.run("echo still here", check=True)).stdout == "still here\n"
    await access_lab.until_enforced(cloud, entrance.granted.grant_id)
    running = await asyncio.to_thread(lab, "exec", "gpu-1", "--", "ps", "-eo", "args")
    assert [line for line in running.splitlines() if "sleep 777" in line] == []


async def _newer_claim(cloud: Cloud, _: Held) -> None:
    await access_lab.take_up(cloud, "newer")


async def _account_disabled(cloud: Cloud, held: Held) -> None:
    await cloud.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=held.account_id)


async def _entitlement_gone(cloud: Cloud, _: Held) -> None:
    await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": False}, app_slug="toy")


@pytest.mark.parametrize("happens", [_newer_claim, _account_disabled, _entitlement_gone])
async def test_a_controllers_live_session_ends_when_it_may_no_longer_work(
    cloud: Cloud, tmp_path: Path, happens: Callable[[Cloud, Held], Awaitable[None]]
) -> None:
    allocation_id = (await access_lab.allocations(cloud))["gpu-1"].allocation_id
    held = await access_lab.take_up(cloud, happens.__name__.strip("_"))
    entrance = await enter(cloud, tmp_path, allocation_id, token=held.token, **held.body())
    async with asyncssh.connect(**entrance.options()) as connection:
        process = await connection.create_process("echo started; sleep 7780")
        assert await process.stdout.readline() == "started\n"
        await happens(cloud, held)
        async with asyncio.timeout(ENDS_WITHIN_S):
            await connection.wait_closed()
    again = {"public_key": entrance.key.export_public_key().decode().strip(), **held.body()}
    answer = await cloud.send(access.MACHINE_ACCESS, again, token=held.token, allocation_id=allocation_id)
    assert answer.json()["code"] in ("lease_lost", "insufficient_permissions", "token_invalid", "not_entitled")
    await access_lab.until_enforced(cloud, entrance.granted.grant_id)
    assert await access_lab.is_refused_by_both(entrance)


async def test_a_node_that_was_cut_off_ends_the_session_when_it_is_back(cloud: Cloud, entrance: Entrance) -> None:
    async with asyncssh.connect(**entrance.options()) as connection:
        process = await connection.create_process("echo started; sleep 7781")
        assert await process.stdout.readline() == "started\n"
        await asyncio.to_thread(lab, "cut", "gpu-1")
        await _revoke(cloud, entrance)
        await asyncio.to_thread(lab, "heal", "gpu-1")
        await access_lab.until_enforced(cloud, entrance.granted.grant_id)
        async with asyncio.timeout(ENDS_WITHIN_S):
            await connection.wait_closed()
    assert await access_lab.is_refused_by_both(entrance)


ACCOUNTS = "getent passwd | awk -F: '$3 >= 20000 && $3 < 60000 {print $1, $3, $4, $6}'; getent group gpuaas-people"


async def test_people_have_accounts_of_their_own_and_lose_them_with_the_role(cloud: Cloud, tmp_path: Path) -> None:
    allocation_id = (await access_lab.allocations(cloud))["gpu-2"].allocation_id
    ada_id, ada, role = await access_lab.person(cloud, "ada")
    bea_id, bea, _ = await access_lab.person(cloud, "bea", "project_admin")
    people = {item.login: item for item in (await cloud.call(posix.POSIX_PEOPLE)).items}
    hers = await access_lab.enter_as_person(cloud, tmp_path, allocation_id, ada)
    assert (hers.granted.user, hers.granted.principal) == ("ada", f"{allocation_id}/{ada_id}")
    identity_there = f"{people['ada'].uid} {people['ada'].gid} /home/people/ada\n"
    assert access_lab.ssh_answer(hers, "echo $(id -u) $(id -g) $HOME") == (0, identity_there)
    assert access_lab.ssh_answer(hers, "sudo", "-n", "true")[0] == 1
    made = await asyncio.to_thread(lab, "exec", "gpu-2", "--", "sh", "-c", ACCOUNTS)
    for login in ("admin", "ada", "bea"):
        assert f"{login} {people[login].uid} {people[login].gid} /home/people/{login}\n" in made
    folder = tmp_path / "bea"
    folder.mkdir()
    other = await access_lab.enter_as_person(cloud, folder, allocation_id, bea)
    swapped = hers.with_certificate(other.granted.certificate)
    assert access_lab.ssh_answer(swapped, "true")[0] == 255, "one person's certificate opens no other account"
    async with asyncssh.connect(**hers.options()) as connection, asyncssh.connect(**other.options()) as kept:
        line = "echo x >~/thesis; setsid -f sleep 7790; echo started; sleep 7791"
        process = await connection.create_process(line)
        assert await process.stdout.readline() == "started\n"
        job = f"systemd-run --quiet --uid={people['ada'].uid} --unit=job-7 sleep 7792"
        await asyncio.to_thread(lab, "exec", "gpu-2", "--", "sh", "-c", job)
        await cloud.call(bindings.PROJECT_BINDING_DELETE, binding_id=role)
        async with asyncio.timeout(2 * ENDS_WITHIN_S):
            await connection.wait_closed()
        assert (await kept.run("echo still here", check=True)).stdout == "still here\n"
    await access_lab.until_enforced(cloud, hers.granted.grant_id)
    assert await access_lab.is_refused_by_both(hers)
    await _until_gone("gpu-2", "sleep 779[01]")
    left = await asyncio.to_thread(lab, "exec", "gpu-2", "--", "sh", "-c", "pgrep -f 'sleep 7792$'; cat ~ada/thesis")
    assert left.split()[-1] == "x"
    assert len(left.split()) == 2, "the job of a scheduler continues"
    assert bea_id in {item.user_id for item in (await cloud.call(posix.POSIX_PEOPLE)).items if item.state == "active"}


async def _until_gone(machine: str, pattern: str) -> None:
    """Wait until no process has these words."""
    async with asyncio.timeout(access_lab.READY_S):
        listing = ("exec", machine, "--", "sh", "-c", f"pgrep -af '^{pattern}' || true")
        while await asyncio.to_thread(lab, *listing):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.1)


async def test_a_released_allocation_ends_its_sessions_and_leaves_no_trust_behind(cloud: Cloud, tmp_path: Path) -> None:
    allocation_id = (await access_lab.allocations(cloud))["gpu-2"].allocation_id
    entrance = await enter(cloud, tmp_path, allocation_id)
    async with asyncssh.connect(**entrance.options()) as connection:
        process = await connection.create_process("echo started; sleep 7782")
        assert await process.stdout.readline() == "started\n"
        await cloud.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation_id)
        async with asyncio.timeout(ENDS_WITHIN_S):
            await connection.wait_closed()
    await access_lab.until_enforced(cloud, entrance.granted.grant_id)
    assert await access_lab.is_refused_by_both(entrance)
    left = "ls /etc/gpuaas/ssh /run/gpuaas /etc/ssh/sshd_config.d/50-gpuaas.conf /etc/gpuaas/people /home/people"
    left = f"{left} 2>/dev/null; {ACCOUNTS}; pgrep -f 'sleep 7792$'; true"
    assert await asyncio.to_thread(lab, "exec", "gpu-2", "--", "sh", "-c", left) == ""
