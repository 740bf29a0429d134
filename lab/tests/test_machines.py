"""Real machines start, survive faults, keep their disks, and leave nothing on the host. Needs root on Linux."""

import json
import os
import pty
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gpuaas_lab.enrolment import UNIT_PATH
from gpuaas_lab.lab import Lab
from gpuaas_lab.snapshot import host_snapshot
from gpuaas_sdk.testing import free_port
from lab_tool import LabTool

pytestmark = pytest.mark.machines

LAB = LabTool("labtest")
STATE = Path(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"))
command, run, lab, on, states = LAB.command, LAB.run, LAB.do, LAB.on, LAB.states


def write_agent(path: Path, program: str, description: str = "an agent") -> None:
    """Write an agent file as the lab expects it: a program and its unit in one archive."""
    start = "[Service]\nExecStart=/usr/bin/python3 /opt/gpuaas/agent.pyz\n[Install]\nWantedBy=multi-user.target\n"
    unit = f"[Unit]\nDescription={description}\n{start}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", program)
        archive.writestr("gpuaas-agent.service", unit)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def read_to_end(terminal: int) -> str:
    """Read a terminal until its other side is closed, which Linux reports as an error."""
    seen = b""
    try:
        while block := os.read(terminal, 4096):
            seen += block
    except OSError:
        return seen.decode(errors="replace")
    return seen.decode(errors="replace")


@pytest.fixture(scope="module")
def before() -> Iterator[set[str]]:
    with LAB.absent() as snapshot:
        yield snapshot


@pytest.fixture
def three_machines(before: set[str]) -> None:
    lab("up", "--nodes", "3")


@pytest.mark.usefixtures("three_machines")
def test_three_machines_come_up_with_their_own_names() -> None:
    names = ["gpu-1", "gpu-2", "gpu-3"]
    assert states() == dict.fromkeys(names, "running")
    assert [on(name, "hostname").strip() for name in names] == names


@pytest.mark.usefixtures("three_machines")
def test_other_users_of_the_host_cannot_read_a_disk() -> None:
    programs = "/var/lib/gpuaas/lab/labs/labtest/machines/gpu-1/root/usr/bin"
    assert [subprocess.run(["test", "-x", programs], user=user).returncode for user in ("root", "nobody")] == [0, 1]


@pytest.mark.usefixtures("three_machines")
def test_a_second_up_starts_nothing() -> None:
    boots = on("gpu-1", "cat", "/proc/1/stat")
    assert "started" not in lab("up", "--nodes", "3")
    assert on("gpu-1", "cat", "/proc/1/stat").split()[21] == boots.split()[21], "process 1 has the same start time"


@pytest.mark.usefixtures("three_machines")
def test_two_ups_at_once_do_not_race() -> None:
    lab("down")
    first, second = (subprocess.Popen(command("up", "--nodes", "3"), stdout=subprocess.DEVNULL) for _ in range(2))
    assert (first.wait(), second.wait()) == (0, 0)
    assert set(states().values()) == {"running"}


@pytest.mark.usefixtures("three_machines")
def test_exec_passes_the_exit_code_through() -> None:
    assert run("exec", "gpu-1", "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.usefixtures("three_machines")
def test_a_command_ends_with_the_machine_it_runs_on() -> None:
    """A machine that powers off stops every process before it kills them; the command outside must not stop too."""
    running = [subprocess.Popen(command("exec", "gpu-3", "--", "sleep", "4711")) for _ in range(8)]
    wait_until(lambda: run("exec", "gpu-3", "--", "pgrep", "-c", "-x", "sleep").stdout == "8\n")
    lab("down")
    assert all(process.wait(60) for process in running), "each of them has failed"


@pytest.mark.usefixtures("three_machines")
def test_a_console_is_a_root_shell_on_a_terminal_of_the_machine() -> None:
    terminal, device = pty.openpty()
    with subprocess.Popen(command("console", "gpu-1"), stdin=device, stdout=device, stderr=device) as process:
        os.close(device)
        os.write(terminal, b"echo at=$(hostname) as=$(id -un) on=$(tty); exit 7\n")
        seen = read_to_end(terminal)
    os.close(terminal)
    assert "at=gpu-1 as=root on=/dev/pts/" in seen
    assert process.returncode == 7


@pytest.mark.usefixtures("three_machines")
def test_a_console_needs_a_terminal_and_its_log_does_not() -> None:
    refused = run("console", "gpu-1")
    assert (refused.returncode, "gpuaas-lab exec --lab labtest gpu-1" in refused.stderr) == (64, True)
    assert "systemd" in lab("console", "gpu-1", "--log")


@pytest.mark.usefixtures("three_machines")
def test_machines_reach_each_other_and_have_their_own_host_keys() -> None:
    on("gpu-1", "ping", "-c1", "-w60", "gpu-2")
    keys = {on(name, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1] for name in ("gpu-1", "gpu-2", "gpu-3")}
    assert len(keys) == 3


@pytest.mark.usefixtures("three_machines")
def test_fake_gpus_are_devices_and_facts() -> None:
    gpus = json.loads(on("gpu-1", "cat", "/etc/gpuaas/facts.d/gpus.json"))["gpus"]
    assert [gpu["device"] for gpu in gpus] == ["/dev/nvidia0", "/dev/nvidia1"]
    for gpu in gpus:
        on("gpu-1", "test", "-c", gpu["device"])


@pytest.mark.usefixtures("three_machines")
def test_all_machines_see_one_shared_folder_with_the_same_owners_also_after_a_power_cut() -> None:
    on(
        "gpu-1",
        "sh",
        "-c",
        "mkdir -p /shared/work && echo result > /shared/work/file && chown 20001:20002 /shared/work/file",
    )
    lab("kill", "gpu-2")
    lab("start", "gpu-2")
    for name in ("gpu-2", "gpu-3"):
        assert on(name, "sh", "-c", "cat /shared/work/file; stat -c %u:%g /shared/work/file") == "result\n20001:20002\n"
    declared = json.loads(on("gpu-3", "cat", "/etc/gpuaas/facts.d/shared.json"))
    assert declared == {"mounts": [{"path": "/shared", "source": "lab:labtest", "fstype": "bind"}]}


@pytest.mark.usefixtures("three_machines")
def test_other_users_of_the_host_cannot_read_the_shared_folder() -> None:
    folder = "/var/lib/gpuaas/lab/labs/labtest/shared/files"
    assert [subprocess.run(["test", "-r", folder], user=user).returncode for user in ("root", "nobody")] == [0, 1]


@pytest.mark.usefixtures("three_machines")
def test_a_machine_whose_power_was_cut_starts_again_and_runs_services() -> None:
    lab("kill", "gpu-2")
    assert states()["gpu-2"] == "stopped"
    lab("start", "gpu-2")
    on("gpu-2", "systemd-run", "--wait", "--quiet", "true")


@pytest.mark.usefixtures("three_machines")
def test_a_machine_whose_power_was_cut_sends_nothing() -> None:
    address = lab("address", "gpu-2").strip()
    with socket.create_connection((address, 22), timeout=5) as connection:
        assert connection.recv(64).startswith(b"SSH-")
        lab("kill", "gpu-2")
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.recv(64)
    with pytest.raises(OSError) as no_answer:
        socket.create_connection((address, 22), timeout=5)
    assert not isinstance(no_answer.value, ConnectionRefusedError)
    lab("start", "gpu-2")
    assert on("gpu-2", "hostname").strip() == "gpu-2"


@pytest.mark.usefixtures("three_machines")
def test_a_machine_powered_off_from_inside_is_shown_as_stopped() -> None:
    run("exec", "gpu-3", "--", "systemctl", "poweroff")
    wait_until(lambda: states()["gpu-3"] == "stopped")
    lab("up", "--nodes", "3")
    assert states()["gpu-3"] == "running"


@pytest.mark.usefixtures("three_machines")
def test_a_cut_machine_is_unreachable_until_it_is_healed() -> None:
    lab("cut", "gpu-2")
    assert LAB.status("network")["gpu-2"] == "cut"
    assert run("exec", "gpu-1", "--", "ping", "-c1", "-W1", "gpu-2").returncode != 0
    lab("heal", "gpu-2")
    assert LAB.status("network")["gpu-2"] == "connected"
    on("gpu-1", "ping", "-c1", "-w60", "gpu-2")


@pytest.mark.usefixtures("three_machines")
def test_a_healed_machine_can_be_reached_at_once_although_the_host_has_almost_given_it_up() -> None:
    address, machines = lab("address", "gpu-2").strip(), Lab(STATE, LAB.name)
    machines.set_cut(["gpu-2"], True)
    subprocess.run(["ip", "neigh", "flush", "to", address], check=True)
    wait_until(lambda: is_last_search(address))
    machines.set_cut(["gpu-2"], False)
    socket.create_connection((address, 22), timeout=60).close()


def is_last_search(address: str) -> bool:
    """Let the host search for the hardware address. Return whether it now waits for the answer to its last question,
    before it reports `no route to host` to every connection of this moment."""
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.connect_ex((address, 22))
        shown = subprocess.run(["ip", "-json", "-s", "neigh", "show", "to", address], capture_output=True, check=True)
    neighbours = [entry for entry in json.loads(shown.stdout or "[]") if entry.get("state") == ["INCOMPLETE"]]
    return any(entry["probes"] >= 6 for entry in neighbours)  # the kernel counts three more than it sends


@pytest.mark.usefixtures("three_machines")
def test_a_frozen_machine_hangs_until_it_is_thawed() -> None:
    clock = "while sleep 0.1; do date +%s%N > /run/clock; done"
    on("gpu-1", "systemd-run", "--quiet", "--unit=clock", "sh", "-c", clock)
    wait_until(lambda: run("exec", "gpu-1", "--", "test", "-s", "/run/clock").returncode == 0)
    lab("freeze", "gpu-1")
    assert states()["gpu-1"] == "frozen"
    stopped_at = on("gpu-1", "cat", "/run/clock")
    assert on("gpu-1", "sh", "-c", "sleep 0.5; cat /run/clock") == stopped_at
    lab("thaw", "gpu-1")
    assert states()["gpu-1"] == "running"
    wait_until(lambda: on("gpu-1", "cat", "/run/clock") != stopped_at)
    on("gpu-1", "systemctl", "stop", "clock")


@pytest.mark.usefixtures("three_machines")
def test_up_thaws_and_heals() -> None:
    lab("freeze", "gpu-1")
    lab("cut", "gpu-2")
    assert states()["gpu-1"] == "frozen"
    lab("up", "--nodes", "3")
    assert set(states().values()) == {"running"}
    on("gpu-1", "ping", "-c1", "-w60", "gpu-2")


@pytest.mark.usefixtures("three_machines")
def test_files_and_host_key_survive_down_and_up() -> None:
    key = on("gpu-1", "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    on("gpu-1", "sh", "-c", "echo kept > /var/lib/kept")
    address = lab("address", "gpu-1")
    lab("down")
    lab("up", "--nodes", "3")
    assert on("gpu-1", "cat", "/var/lib/kept") == "kept\n"
    assert on("gpu-1", "cat", "/etc/ssh/ssh_host_ed25519_key.pub") == key
    assert lab("address", "gpu-1") == address


@pytest.mark.usefixtures("three_machines")
def test_a_machine_can_be_added_and_removed() -> None:
    assert "started" in lab("add", "login")
    on("gpu-1", "ping", "-c1", "-w60", "login")
    assert "running" in lab("add", "login"), "adding it again changes nothing"
    lab("remove", "login")
    assert "login" not in states()
    assert run("exec", "login", "--", "true").returncode == 4


@pytest.mark.usefixtures("three_machines")
def test_an_enrolled_machine_runs_the_agent_and_keeps_its_config(tmp_path: Path) -> None:
    agent, enrol = tmp_path / "agent.pyz", tmp_path / "enrol.json"
    write_agent(agent, "import time\ntime.sleep(3600)\n")
    enrol.write_text(json.dumps({"server": "https://gateway:7443", "ca_sha256": "00", "tokens": {"gpu-1": "first"}}))
    lab("up", "--nodes", "3", "--agent", str(agent), "--enrol", str(enrol))
    wait_until(lambda: run("exec", "gpu-1", "--", "systemctl", "is-active", "gpuaas-agent").returncode == 0)
    assert on("gpu-1", "stat", "-c", "%a", "/etc/gpuaas/agent.json") == "600\n"
    assert run("exec", "gpu-2", "--", "test", "-e", "/etc/gpuaas/agent.json").returncode == 1

    write_agent(agent, "import time\ntime.sleep(7200)\n")
    enrol.write_text(enrol.read_text().replace("first", "second"))
    lab("up", "--nodes", "3", "--agent", str(agent), "--enrol", str(enrol))
    assert json.loads(on("gpu-1", "cat", "/etc/gpuaas/agent.json"))["token"] == "first"
    on("gpu-1", "grep", "-q", "7200", "/opt/gpuaas/agent.pyz")


@pytest.mark.usefixtures("three_machines")
def test_a_unit_of_another_release_reaches_machines_that_are_enrolled_and_restarts_the_agent_once(
    tmp_path: Path,
) -> None:
    agent, enrol = tmp_path / "agent.pyz", tmp_path / "enrol.json"
    enrol.write_text(json.dumps({"server": "https://gateway:7443", "ca_sha256": "00", "tokens": {"gpu-3": "first"}}))
    enrolled = ("up", "--nodes", "3", "--agent", str(agent), "--enrol", str(enrol))

    def shown(name: str) -> str:
        return on("gpu-3", "systemctl", "show", "--value", f"--property={name}", "gpuaas-agent").strip()

    write_agent(agent, "import time\ntime.sleep(3600)\n", "an older agent")
    lab(*enrolled)
    wait_until(lambda: shown("ActiveState") == "active")
    first = shown("MainPID")
    lab(*enrolled)
    assert shown("MainPID") == first, "the same again restarts nothing"
    write_agent(agent, "import time\ntime.sleep(3600)\n", "a newer agent")
    lab(*enrolled)
    assert (shown("Description"), shown("MainPID") == first) == ("a newer agent", False)
    on("gpu-3", "sed", "-i", "s/a newer agent/a changed agent/", "/etc/systemd/system/gpuaas-agent.service")
    lab(*enrolled)
    assert shown("Description") == "a newer agent", "even if the agent is the same"


@pytest.mark.usefixtures("three_machines")
def test_an_upgraded_agent_is_kept_and_reported(tmp_path: Path) -> None:
    agent, enrol = tmp_path / "agent.pyz", tmp_path / "enrol.json"
    enrol.write_text(json.dumps({"server": "https://gateway:7443", "ca_sha256": "00", "tokens": {"gpu-2": "first"}}))
    enrolled = ("up", "--nodes", "3", "--agent", str(agent), "--enrol", str(enrol))
    write_agent(agent, "import time\ntime.sleep(3600)\n")
    lab(*enrolled)
    on("gpu-2", "sh", "-c", "echo released > /opt/gpuaas/next && mv /opt/gpuaas/next /opt/gpuaas/agent.pyz")
    assert "gpuaas agent upgrade gpu-2" in run(*enrolled).stderr
    lab("kill", "gpu-2")
    assert "gpuaas agent upgrade gpu-2" in run(*enrolled).stderr, "even if the machine is only started"
    assert on("gpu-2", "cat", "/opt/gpuaas/agent.pyz") == "released\n"


@pytest.fixture
def provisioner(tmp_path: Path) -> Iterator[Callable[..., tuple[int, Any]]]:
    """A provisioner of the lab; returns the status and the answer of a request to it."""
    agent, token, port = tmp_path / "agent.pyz", tmp_path / "token", free_port()
    write_agent(agent, "import time\ntime.sleep(3600)\n")
    token.write_text("secret")
    options = ("--agent", str(agent), "--token-file", str(token), "--server", "https://gateway:7443")
    process = subprocess.Popen(command("provisioner", *options, "--listen", f"127.0.0.1:{port}"))

    def send(path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        headers = {"Authorization": "Bearer secret"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        request.data = json.dumps(body).encode() if body else None
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def answers() -> bool:
        with suppress(OSError):
            return send("/none")[0] == 404
        return False

    wait_until(answers)
    yield send
    process.terminate()
    process.wait()


@pytest.mark.usefixtures("three_machines")
def test_a_machine_that_the_provisioner_reinstalled_has_an_empty_disk_and_the_new_token(
    provisioner: Callable[..., tuple[int, Any]],
) -> None:
    key, address = on("gpu-2", "cat", "/etc/ssh/ssh_host_ed25519_key.pub"), lab("address", "gpu-2")
    on("gpu-2", "sh", "-c", f"echo implant > /usr/local/sbin/implant && ln -sf /dev/null {UNIT_PATH}")
    on("gpu-1", "sh", "-c", "echo kept > /var/lib/kept")
    on("gpu-2", "sh", "-c", "echo kept > /shared/kept")
    order = {"attempt_id": "a1", "node_name": "gpu-2", "enrolment": {"token": "enrol_1", "ca_sha256": "00"}}
    assert provisioner("/", order) == (202, {"state": "pending"})
    wait_until(lambda: provisioner("/a1")[1]["state"] != "pending")
    assert provisioner("/a1") == (200, {"state": "done"})
    assert run("exec", "gpu-2", "--", "test", "-e", "/usr/local/sbin/implant").returncode == 1
    assert json.loads(on("gpu-2", "cat", "/etc/gpuaas/agent.json"))["token"] == "enrol_1"
    wait_until(lambda: run("exec", "gpu-2", "--", "systemctl", "is-active", "gpuaas-agent").returncode == 0)
    assert on("gpu-2", "cat", "/etc/ssh/ssh_host_ed25519_key.pub") != key
    assert (lab("address", "gpu-2"), on("gpu-1", "cat", "/var/lib/kept")) == (address, "kept\n")
    assert on("gpu-2", "cat", "/shared/kept") == "kept\n", "the shared folder belongs to the lab, not to the disk"


def test_packages_install_without_a_network(before: set[str], tmp_path: Path) -> None:
    listed = tmp_path / "packages.txt"
    listed.write_text("tree # small\n")
    lab("up", "--nodes", "1", "--packages", str(listed))
    on("gpu-1", "sh", "-c", "apt-get -qq update && apt-get -qq -y install tree && tree --version")


def test_down_leaves_nothing_after_every_fault(before: set[str]) -> None:
    lab("up", "--nodes", "3")
    lab("freeze", "gpu-1")
    lab("cut", "gpu-2")
    lab("kill", "gpu-3")
    lab("down")
    assert host_snapshot(LAB.name) - before == set()


def test_purge_deletes_the_disks(before: set[str]) -> None:
    lab("up", "--nodes", "1")
    lab("down", "--purge")
    assert states() == {}
    assert host_snapshot(LAB.name) - before == set()
    assert not Path("/var/lib/gpuaas/lab/labs/labtest").exists()
