"""Mount, configure, start and stop one machine. Called by `lab.py`, which decides what to do."""

import io
import json
import os
import signal
import socket
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuaas_lab import cgroup, errors, host, image, plan, shell

BOOT_TIMEOUT_S = 60
NETWORK_TIMEOUT_S = 30
SHARED_PATH = "/shared"
SHUTDOWN_TIMEOUT_S = 20
NSPAWN_RUN_FOLDER = Path("/run/systemd/nspawn")
NSPAWN_ENVIRONMENT = {
    # Machines have cgroup version 2 only, even if the host has the hybrid layout.
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # The lab has its own lock. The lock of nspawn would not be released by a kill.
    "SYSTEMD_NSPAWN_LOCK": "0",
}
EXEC_ENVIRONMENT = {
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


@dataclass(frozen=True)
class File:
    """The content and the mode of a file to write on a machine."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Machine:
    """One machine, with its folder and cgroup on the host."""

    lab: str
    name: str
    folder: Path
    cgroup: cgroup.MachineCgroup

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def is_running(self) -> bool:
        return self.cgroup.is_populated()


def image_folder(state: Path, record: plan.MachineRecord) -> Path:
    folder = image.path(state, record.image)
    if not folder.is_dir():
        raise errors.LabError(
            f"the disk of {record.name} needs image {record.image}, which does not exist",
            f"gpuaas-lab remove {record.name}",
        )
    return folder


def mount(machine: Machine, image_folder: Path) -> None:
    """Mount the machine's own disk over the shared image."""
    if machine.root.is_mount():
        return
    for name in ("upper", "work", "root"):
        (machine.folder / name).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={image_folder},upperdir={machine.folder}/upper,workdir={machine.folder}/work"
    shell.run(["mount", "-t", "overlay", plan.unit_name(machine.lab, machine.name), "-o", layers, str(machine.root)])


def write_identity(machine: Machine, lab: plan.LabRecord, record: plan.MachineRecord) -> None:
    """Write the host name, host key, /etc/hosts, fake GPUs and shared folder of a machine. Called before each start."""
    key = "/etc/ssh/ssh_host_ed25519_key"
    in_root(machine, ["sh", "-c", f"test -s {key} || ssh-keygen -q -t ed25519 -N '' -C {machine.name} -f {key}"])
    devices = plan.gpu_devices(record.gpus)
    nodes = [f"c! /dev/nvidia{index} 0666 root root - {major}:{minor}" for index, (major, minor) in enumerate(devices)]
    gpus = [{"index": index, "type": "lab-gpu", "device": f"/dev/nvidia{index}"} for index in range(record.gpus)]
    shared = {"mounts": [{"path": SHARED_PATH, "source": f"lab:{machine.lab}", "fstype": "bind"}]}
    files = {
        "etc/hostname": File(f"{machine.name}\n".encode()),
        "etc/tmpfiles.d/gpuaas-lab-gpus.conf": File("".join(f"{node}\n" for node in nodes).encode()),
        "etc/gpuaas/facts.d/gpus.json": File((json.dumps({"gpus": gpus}, indent=1) + "\n").encode()),
        "etc/gpuaas/facts.d/shared.json": File((json.dumps(shared, indent=1) + "\n").encode()),
    }
    write_files(machine, files)
    write_hosts(machine, lab)


def write_hosts(machine: Machine, lab: plan.LabRecord) -> None:
    text = in_root(machine, ["cat", "/etc/hosts"])
    wanted = plan.hosts_text(text, lab, machine.name)
    if wanted != text:
        write_files(machine, {"etc/hosts": File(wanted.encode())})


def write_files(machine: Machine, files: Mapping[str, File]) -> None:
    """Write the files in a chroot of the machine's disk, so that a link on it cannot lead to a file of the host."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(file.content), file.mode
            tar.addfile(entry, io.BytesIO(file.content))
    in_root(machine, ["tar", "--extract", "--directory=/", "--touch"], stdin=archive.getvalue())


def in_root(machine: Machine, argv: Sequence[str], stdin: bytes = b"") -> str:
    """Run a command in a chroot of the machine's disk. This also works if the machine is stopped."""
    return shell.run(["chroot", str(machine.root), *argv], stdin=stdin, environment=EXEC_ENVIRONMENT)


def spawn(machine: Machine, packages: Path, shared: Path) -> None:
    """Start the machine and return while it boots.

    A shell waits until it is in the cgroup of the machine, and then executes nspawn. If this process is killed before
    that, the shell exits, so that `down` finds every running machine by its cgroup. If the power of the machine is cut
    here, `wait_for_ssh` reports it.
    """
    with (machine.folder / "console.log").open("wb") as console:
        process = subprocess.Popen(
            [
                "sh",
                "-c",
                'read -r go && exec "$@" </dev/null',
                "gpuaas-lab",
                *_nspawn_command(machine, packages, shared),
            ],
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **NSPAWN_ENVIRONMENT},
        )
    assert process.stdin is not None
    with suppress(ProcessLookupError, BrokenPipeError), process.stdin as gate:
        machine.cgroup.adopt(process.pid)
        gate.write(b"go\n")
    # The process keeps running on purpose; this prevents Python's warning that it was not waited for.
    process.returncode = 0


def wait_for_ssh(machine: Machine, address: str) -> None:
    if shell.wait_until(lambda: _answers_ssh(address) or not machine.is_running(), BOOT_TIMEOUT_S):
        if machine.is_running():
            return
        raise errors.LabError(f"{machine.name} stopped while booting:\n{_console_tail(machine)}")
    raise errors.LabError(
        f"{machine.name} does not answer on {address} port 22 after {BOOT_TIMEOUT_S} s:\n{_console_tail(machine)}",
        f"gpuaas-lab exec --lab {machine.lab} {machine.name} -- systemctl --failed",
    )


def wait_for_network(machine: Machine, address: str) -> None:
    """Wait until the host reaches the machine. A frozen machine counts too: its kernel accepts the connection.

    After a cut, the host may be about to give up its search for the machine's hardware address. A connection of that
    moment fails with "no route to host", although the link is up again.
    """
    if not shell.wait_until(lambda: _is_reachable(address) or not machine.is_running(), NETWORK_TIMEOUT_S):
        raise errors.LabError(
            f"{machine.name} cannot be reached on {address} {NETWORK_TIMEOUT_S} s after its link was connected",
            f"gpuaas-lab exec --lab {machine.lab} {machine.name} -- ip address",
        )


def shut_down(machine: Machine) -> None:
    """Shut the machine down; cut its power if it does not stop in time."""
    if machine.cgroup.is_frozen():
        with suppress(errors.LabError):  # it is stopping just now, or cannot be thawed
            machine.cgroup.set_frozen(False)
    supervisor = machine.cgroup.supervisor()
    if supervisor is not None and machine.cgroup.leader() is not None:
        try:
            os.kill(supervisor, signal.SIGTERM)
        except ProcessLookupError:
            shell.progress(f"{machine.name} has already stopped")
        if not shell.wait_until(lambda: not machine.is_running(), SHUTDOWN_TIMEOUT_S):
            shell.progress(f"{machine.name} did not power off within {SHUTDOWN_TIMEOUT_S} s: cutting its power")
    machine.cgroup.kill()


def release(machine: Machine) -> None:
    """Remove the run files, mounts and cgroups of a stopped machine from the host. Its disk is kept."""
    unit = plan.unit_name(machine.lab, machine.name)
    for kind in ("propagate", "unix-export"):
        host.remove_tree(NSPAWN_RUN_FOLDER / kind / unit)
    host.unmount(host.mounts_under(machine.root))
    # Lab names are unique on the host, so a mount with this name belongs to this lab, even in another state folder.
    host.unmount(host.mounts_from(unit))
    machine.cgroup.remove()


def enter_command(machine: Machine, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` inside a running machine.

    The shell stays in the process namespace of the host; only its child is in that of the machine. When the machine
    powers off, it stops all its processes with SIGSTOP. Without the shell, nsenter would stop too and never end.
    """
    leader = machine.cgroup.leader()
    if leader is None:
        raise errors.LabError(f"{machine.name} is not running", f"gpuaas-lab start --lab {machine.lab} {machine.name}")
    return ["nsenter", "--target", str(leader), "--all", "--no-fork", "--", "sh", "-c", '"$@"; exit', "sh", *argv]


def console_command(machine: Machine) -> list[str]:
    """Return the command line of a root shell on the machine, with its own terminal."""
    return enter_command(machine, ["script", "--quiet", "--return", "--command", "bash --login", "/dev/null"])


def console_log(machine: Machine) -> str:
    """Return the console output since the machine's last start."""
    try:
        return (machine.folder / "console.log").read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _nspawn_command(machine: Machine, packages: Path, shared: Path) -> list[str]:
    unit = plan.unit_name(machine.lab, machine.name)
    return [
        "systemd-nspawn",
        "--quiet",
        f"--directory={machine.root}",
        f"--machine={unit}",
        f"--hostname={machine.name}",
        "--boot",
        # The host may have no systemd at which the machine could be registered.
        "--register=no",
        "--keep-unit",
        # Made by the lab before the boot, so that the address exists. One command on its link cuts the network.
        f"--network-namespace-path=/run/netns/{unit}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        f"--bind-ro={packages}:/srv/packages",
        # Machines have no user namespace of their own, so a file has the same owner on all of them.
        f"--bind={shared}:{SHARED_PATH}",
        # As on a real machine, root may change its own network and load cgroup device filters.
        "--capability=CAP_NET_ADMIN,CAP_BPF,CAP_PERFMON",
        "--system-call-filter=bpf",
        "systemd.log_target=journal",
        "systemd.show_status=false",
    ]


def _answers_ssh(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _is_reachable(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _console_tail(machine: Machine) -> str:
    return "\n".join(f"    {line}" for line in console_log(machine).splitlines()[-15:])
