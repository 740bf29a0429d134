"""An allocation on a real machine: entered with a user's own key, used without limits, released with evidence.

An artifact that was placed there is removed with it. Then released with the machine cut off: the release fails, and
succeeds as soon as the machine responds again."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import machine_state
import placing_app
import pytest
from gpuaas_contract import capacity, identity, ssh_keys
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from local_cloud import LAB, NODES, PORT, LocalCloud

pytestmark = pytest.mark.machines

MACHINE = "gpu-3"
SESSION_ENDS_WITHIN_S = 5
"""What the platform promises, from the moment the key is withdrawn."""
PREPARED_AGAIN = ("active", "provisioning")
MESS = """
set -eu
mkdir -p ~/.ssh ~/work && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id && cp ~/.ssh/id.pub ~/.ssh/authorized_keys
touch ~/work/result /tmp/mine /dev/shm/mine && mkdir -p /var/tmp/mine/deep && touch /var/tmp/mine/deep/file
sudo -n install -d -o "$USER" /opt/mine && touch /opt/mine/tool
sudo -n install -o "$USER" -m 600 /dev/null "/var/mail/$USER"
setsid sleep 4711 >/dev/null 2>&1 </dev/null &
sudo -n setsid sleep 4712 >/dev/null 2>&1 </dev/null &
sudo -n systemd-run --quiet --uid="$USER" --unit=mine --property=Restart=always sleep 4713
"""


READING = (
    "systemctl is-active ssh",
    "df /",
    "cat /etc/os-release",
    "ps aux",
    "ip addr",
    "systemctl status --no-pager ssh",
    "journalctl --version",
)
CHANGING = (
    "sudo -n true",
    "su -c true",
    "systemctl stop ssh",
    "systemctl restart ssh",
    "systemctl disable ssh",
    "systemctl daemon-reload",
    "systemd-run true",
    "loginctl enable-linger",
    "kill -9 1",
    "pkill -KILL -u root",
    "touch ~/mine",
    "touch /etc/mine",
    "touch /var/mine",
    "touch /var/lib/mine",
    "touch /usr/local/bin/mine",
    "touch /home/mine",
    "touch /root/mine",
    "touch /boot/mine",
    "touch /opt/mine",
    "echo x >>/etc/passwd",
    "echo x >/etc/gpuaas/ssh/principals/$(id -un)",
    "cat /etc/shadow",
    "mount -t tmpfs none /mnt",
    "useradd mine",
    "usermod -aG sudo $(id -un)",
    "passwd -d root",
    "chown $(id -un) /etc/passwd",
    "chmod 777 /etc",
    "echo '* * * * * true' | crontab -",
    "echo true | at now",
    "dd if=/dev/null of=/dev/mem",
    "ip link add mine type dummy",
    "ip link set lo down",
    "sysctl -w kernel.domainname=mine",
    "hostnamectl set-hostname mine",
    "hostname mine",
    "reboot",
    "apt-get -y install hello",
    "dpkg --purge bash",
    "date -s 2020-01-01",
    "swapoff -a",
    "unshare -m true",
)
"""Each must fail. What they would have changed is compared, too."""


class Owner:
    """A project admin of the lab's only project."""

    def __init__(self, client: Client, project_id: str, token: str) -> None:
        self._client, self._project_id, self._token = client, project_id, token

    def placing_app(self) -> placing_app.PlacingApp:
        return placing_app.PlacingApp(self._client, self._project_id, self._token)

    async def allocation(self) -> capacity.Allocation:
        """The newest on the machine."""
        pages = self._client.pages(capacity.ALLOCATION_LIST, project_id=self._project_id)
        return [item async for item in pages if item.node_name == MACHINE][-1]

    async def claim(self) -> capacity.Allocation:
        body = capacity.CreateAllocation(node_name=MACHINE)
        await self._client.call(capacity.ALLOCATION_CREATE, body, project_id=self._project_id)
        return await self.until("active")

    async def reach_active(self) -> capacity.Allocation:
        allocation = await self.allocation()
        return allocation if allocation.status == "active" else await self.claim()

    async def reach_released(self) -> None:
        if (await self.allocation()).status != "released":
            await self.release()
            await self.until("released")

    async def release(self) -> None:
        allocation_id = (await self.allocation()).allocation_id
        await self._client.call(capacity.ALLOCATION_RELEASE, project_id=self._project_id, allocation_id=allocation_id)

    async def until(self, status: str) -> capacity.Allocation:
        allocation_id = (await self.allocation()).allocation_id
        async for event in self._client.events(self._project_id):
            if event.payload.get("allocation_id") == allocation_id:
                allocation = await self.allocation()
                if allocation.status == status:
                    return allocation
        raise AssertionError("events have no end")

    async def until_prepared_again(self, allocation_id: str) -> None:
        """Wait until it has moved from active back to provisioning."""
        async for event in self._client.events(self._project_id):
            seen = event.payload
            if seen.get("allocation_id") == allocation_id and (seen.get("was"), seen.get("status")) == PREPARED_AGAIN:
                return

    async def host_key(self) -> str:
        return (await self._client.call(capacity.NODE_LIST, query={"name": MACHINE})).items[0].ssh_host_public_key

    async def register(self, public_key: str) -> ssh_keys.SshKey:
        return await self._client.call(ssh_keys.SSH_KEY_CREATE, ssh_keys.AddSshKey(public_key=public_key))

    async def choose_me(self) -> None:
        me = await self._client.call(identity.ME)
        body = ssh_keys.SetAllocationPeople(user_ids=[me.actor_id])
        allocation_id = (await self.allocation()).allocation_id
        await self._client.call(
            ssh_keys.ALLOCATION_KEYS_SET, body, project_id=self._project_id, allocation_id=allocation_id
        )

    async def withdraw(self, key: ssh_keys.SshKey) -> None:
        await self._client.call(ssh_keys.SSH_KEY_DELETE, ssh_key_id=key.ssh_key_id)

    async def until_installed(self, *fingerprints: str) -> None:
        async for event in self._client.events(self._project_id):
            if event.type == "capacity.allocation.keys_installed" and {*event.payload["installed"]} == {*fingerprints}:
                return


@contextlib.asynccontextmanager
async def owner_of(cloud: LocalCloud) -> AsyncIterator[Owner]:
    context = json.loads((cloud.home / "config.json").read_text())["contexts"][LAB]
    async with Client(f"http://127.0.0.1:{PORT}", BearerToken(context["token"])) as client:
        yield Owner(client, context["project_id"], context["token"])


@pytest.fixture
async def owner(cloud: LocalCloud) -> AsyncIterator[Owner]:
    async with owner_of(cloud) as owner:
        yield owner


@pytest.fixture(scope="module")
def before(cloud: LocalCloud) -> dict[str, Any]:
    """The machine without an allocation."""

    async def release() -> None:
        async with owner_of(cloud) as owner:
            await owner.reach_released()

    asyncio.run(release())
    return machine_state.capture(LAB, MACHINE)


async def test_a_person_enters_with_their_own_key_for_as_long_as_it_is_registered(owner: Owner, tmp_path: Path) -> None:
    key_file, other_file = _new_key(tmp_path, "id"), _new_key(tmp_path, "other")
    allocation = await owner.reach_active()
    (tmp_path / "known").write_text(f"{allocation.address} {await owner.host_key()}\n")
    assert _ssh(allocation, key_file) == (255, "")
    key, other = [await owner.register(file.with_suffix(".pub").read_text()) for file in (key_file, other_file)]
    await owner.choose_me()
    await owner.until_installed(key.fingerprint, other.fingerprint)
    assert _ssh(allocation, key_file) == (0, allocation.username_on_node)
    with _session(allocation, key_file) as session, _session(allocation, other_file) as other_session:
        await owner.withdraw(key)
        assert session.wait(SESSION_ENDS_WITHIN_S) == 255
        assert _ssh(allocation, key_file) == (255, "")
        assert (_ssh(allocation, other_file), other_session.poll()) == ((0, allocation.username_on_node), None)
        await owner.withdraw(other)
        await owner.until_installed()


async def test_a_key_in_the_home_folder_opens_nothing(cloud: LocalCloud, owner: Owner, tmp_path: Path) -> None:
    key_file, allocation = _new_key(tmp_path, "id"), await owner.reach_active()
    (tmp_path / "known").write_text(f"{allocation.address} {await owner.host_key()}\n")
    public_key = key_file.with_suffix(".pub").read_text().strip()
    command = f"umask 077 && mkdir -p ~/.ssh && echo '{public_key}' >~/.ssh/authorized_keys"
    cloud.gpuaas("ssh", MACHINE, "--root", "--", "sh", "-c", command)
    assert _ssh(allocation, key_file) == (255, "")


async def test_a_release_removes_everything_that_a_user_did_on_a_machine(
    cloud: LocalCloud, owner: Owner, before: dict[str, Any]
) -> None:
    allocation = await owner.reach_active()
    cloud.gpuaas("ssh", MACHINE, "--root", "--", "bash", "-c", MESS)
    assert machine_state.difference(before, machine_state.capture(LAB, MACHINE))
    await owner.release()
    released = await owner.until("released")
    assert machine_state.difference(before, machine_state.capture(LAB, MACHINE)) == []
    assert _nobodys_files(cloud) == ""
    _check_evidence(released, allocation.username_on_node)


async def test_a_placed_artifact_runs_the_observer_changes_nothing_and_all_is_gone_after_the_release(
    cloud: LocalCloud, owner: Owner, tmp_path: Path, before: dict[str, Any]
) -> None:
    allocation, app = await owner.reach_active(), owner.placing_app()
    await app.publish_tool()
    async with app.controller(tmp_path):
        instance_id, deployed = await app.deploy(allocation.allocation_id)
        assert deployed.status == "succeeded", deployed.error
        assert app.output == f"the tool runs on {MACHINE}\n"
        digest = cloud.lab("exec", MACHINE, "--", "sha256sum", app.path).split()[0]
        assert (f"sha256:{digest}", allocation.allocation_id in app.path) == (placing_app.DIGEST, True)
        await _check_observer(app, allocation.username_on_node)
        assert (await app.decommission(instance_id)).status == "succeeded"
    await owner.release()
    released = await owner.until("released")
    assert released.release_evidence is not None
    assert app.path in released.release_evidence.files
    assert machine_state.difference(before, machine_state.capture(LAB, MACHINE)) == []


async def test_a_release_with_the_machine_cut_off_fails_and_heals_by_itself(
    cloud: LocalCloud, owner: Owner, before: dict[str, Any]
) -> None:
    await owner.reach_active()
    cloud.lab("cut", MACHINE)
    try:
        await owner.release()
        stuck = await owner.until("release_failed")
        assert "did not answer" in stuck.status_reason
    finally:
        cloud.lab("heal", MACHINE)
    healed = await owner.until("released")
    assert healed.release_attempts > 1
    assert machine_state.difference(before, machine_state.capture(LAB, MACHINE)) == []


async def test_the_machine_can_be_claimed_again(owner: Owner) -> None:
    await owner.reach_released()
    assert (await owner.claim()).status == "active"


async def test_a_machine_that_is_installed_again_can_be_entered_as_before(cloud: LocalCloud, owner: Owner) -> None:
    former = await owner.reach_active()
    cloud.lab("remove", MACHINE)
    cloud.up(NODES)
    await owner.until_prepared_again(former.allocation_id)
    present = await owner.until("active")
    assert (present.allocation_id, present.username_on_node) == (former.allocation_id, former.username_on_node)
    assert cloud.gpuaas("ssh", MACHINE, "--root", "--", "id", "-un").stdout.strip() == former.username_on_node
    assert cloud.gpuaas("ssh", MACHINE, "--", "id", "-un").stdout.strip() == "admin"


def _new_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder / name


def _ssh(allocation: capacity.Allocation, key_file: Path) -> tuple[int, str]:
    """Exit code and user name there."""
    done = subprocess.run(_ssh_command(allocation, key_file, "id", "-un"), capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


@contextlib.contextmanager
def _session(allocation: capacity.Allocation, key_file: Path) -> Iterator[subprocess.Popen[str]]:
    """One that is open and would stay so for long."""
    command = _ssh_command(allocation, key_file, "echo", "here", "&&", "sleep", "4711")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as session:
        try:
            assert session.stdout is not None
            assert session.stdout.readline() == "here\n"
            yield session
        finally:
            session.kill()


def _ssh_command(allocation: capacity.Allocation, key_file: Path, *words: str) -> list[str]:
    """OpenSSH's own client with nothing but this key."""
    options = ["-F", "none", "-i", str(key_file), "-o", f"UserKnownHostsFile={key_file.with_name('known')}"]
    options += ["-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
    return ["ssh", *options, f"{allocation.username_on_node}@{allocation.address}", *words]


async def _check_observer(app: placing_app.PlacingApp, user: str) -> None:
    """Between operations the app's controller reads everything that every user can read, and changes nothing."""
    ready = await app.observe("id -un", "id -Gn", "tty", *READING)
    assert [ready[line].stdout.strip() for line in ("id -un", "id -Gn", "tty")] == [f"{user}-ro"] * 2 + ["not a tty"]
    assert {line: ran.stderr for line, ran in ready.items() if line in READING and ran.exit_status != 0} == {}
    before = machine_state.capture(LAB, MACHINE)
    tried = await app.observe(*CHANGING)
    assert [line for line, ran in tried.items() if ran.exit_status == 0] == []
    assert machine_state.difference(before, machine_state.capture(LAB, MACHINE)) == []


def _nobodys_files(cloud: LocalCloud) -> str:
    places = ("/", "/tmp", "/var/tmp", "/dev/shm")
    return cloud.lab("exec", MACHINE, "--", "find", *places, "-xdev", "-nouser")


def _check_evidence(released: capacity.Allocation, user: str) -> None:
    evidence = released.release_evidence
    assert evidence is not None
    assert (evidence.user, evidence.home, evidence.left_behind) == (user, f"/home/{user}", [])
    assert evidence.units == ["mine.service"]
    assert evidence.processes_ended >= 2
    names = (user, f"{user}-ro", "admin")
    assert sorted(evidence.principals) == sorted(f"/etc/gpuaas/ssh/principals/{name}" for name in names)
    assert sorted(evidence.keys) == ["/etc/gpuaas/ssh/user_ca.pub", f"/home/{user}/.ssh/authorized_keys"]
    assert {"/opt/mine", "/tmp/mine", "/dev/shm/mine", f"/var/mail/{user}"} <= set(evidence.files)
