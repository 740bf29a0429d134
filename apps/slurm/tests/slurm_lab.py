"""Real machines and a fake platform for the app's tests; the handlers run as in production."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncssh
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_sdk.controller import Instance, Member, RunnerSettings
from gpuaas_sdk.machine import Machine, MachineTarget, connect
from gpuaas_sdk.testing import FakePlatform

NAMES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
SHARED_HOME = "shared:/shared/home"

# Files that package tools and daemons of the base system rewrite at any time are left out, and units that run at the
# first start of a machine only.
SNAPSHOT = r"""
find / -ignore_readdir_race -xdev \( -path /proc -o -path /sys -o -path /run/systemd -o -path /var/cache/apt \
  -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /tmp -o -path /var/log/apt -o -path /var/log/journal \
  -o -path /root \) -prune -o -printf 'file %p %y %m %u:%g %l\n' |
  grep -v -E '^file (/var/log/(dpkg|alternatives).log|/etc/ld.so.cache|/var/cache/ldconfig/aux-cache) '
find /run /dev -ignore_readdir_race -xdev \( -path /run/systemd -o -path /run/log -o -path /run/user \
  -o -path /run/udev -o -path /dev/pts \) -prune -o -printf 'file %p %y %m %u:%g\n'
find /etc /usr/local /opt -ignore_readdir_race -xdev -type f ! -name ld.so.cache ! -name '*-' -exec sha256sum {} +
sed 's/^/user /' /etc/passwd; sed 's/^/group /' /etc/group
dpkg-query -W -f 'package ${Package} ${db:Status-Abbrev}\n'
apt-mark showmanual | sed 's/^/manual /'
systemctl list-unit-files --no-legend --no-pager | sed 's/^/unit file /'
systemctl list-units --all --no-legend --plain --no-pager |
  awk '{print "unit", $1, $2, $3}' | grep -v -E ' (session-|user@|user-|run-|ssh)' |
  grep -v -E ' (ldconfig|systemd-journal-catalog-update|systemd-sysusers|systemd-update-done).service '
ps -eo user,comm --no-headers | grep -E 'slurm|maria|munge|researcher' | sed 's/^/process /' || true
"""


PREINSTALL = r"""
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
rm /usr/sbin/policy-rc.d
"""


# sshd answers while other services still start, so wait for those before the first snapshot.
ADMIT = r"""
systemctl is-system-running --wait >/dev/null
mkdir -p -m 700 /root/.ssh; echo "$1" > /root/.ssh/authorized_keys; cat /etc/ssh/*ed25519_key.pub
"""


class Lab:
    """Four bare machines, with root access by a key of this test run."""

    def __init__(self, state: str, name: str = "slurmapp") -> None:
        self.environment = os.environ | {"GPUAAS_LAB": name, "GPUAAS_LAB_STATE": state}
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.addresses: dict[str, str] = {}
        self.host_keys: dict[str, str] = {}

    def command(self, *argv: str) -> str:
        lab = (sys.executable, "-m", "gpuaas_lab.main")
        result = subprocess.run((*lab, *argv), env=self.environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{argv}: {result.stderr[-2000:]}"
        return result.stdout

    def up(self, *options: str, packages: Sequence[str] = controller.app.packages, nodes: int = len(NAMES)) -> None:
        """Start the machines. Their only package source has these packages and what they need."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            listed.write("\n".join(packages))
            listed.flush()
            offered = ("--packages", listed.name) if packages else ()
            self.command("up", "--nodes", str(nodes), *offered, *options)
        for row in json.loads(self.command("status", "-o", "json")):
            name = row["name"]
            self.addresses[name] = row["address"]
            public = self.key.export_public_key().decode().strip()
            self.host_keys[name] = self.command("exec", name, "--", "sh", "-c", ADMIT, "sh", public).strip()

    def target(self, name: str) -> MachineTarget:
        return MachineTarget(
            host=self.addresses[name],
            port=22,
            user="root",
            host_public_key=self.host_keys[name],
            private_key=self.key.export_private_key("openssh").decode(),
        )

    @contextlib.asynccontextmanager
    async def connect(self, target: MachineTarget) -> AsyncIterator[Machine]:
        """Connect to the real machine with the name that the fake platform gave."""
        async with connect(self.target(target.host)) as machine:
            yield machine

    async def run(self, name: str, *argv: str, as_user: str | None = None) -> str:
        async with connect(self.target(name)) as machine:
            return (await machine.run(*argv, as_user=as_user)).stdout

    async def script(self, name: str, text: str, as_user: str) -> str:
        """Run a script as a user in a login shell, as people do, and return its output."""
        async with connect(self.target(name)) as machine:
            return (await machine.run("bash", "-lec", text, as_user=as_user, timeout_s=300)).stdout

    async def preinstall(self, name: str, packages: Sequence[str]) -> None:
        """Install packages without starting their daemons, as if the machine's image had them."""
        async with connect(self.target(name)) as machine:
            await machine.script(PREINSTALL, *packages)

    async def snapshot(self, name: str) -> set[str]:
        async with connect(self.target(name)) as machine:
            return set((await machine.script(SNAPSHOT)).stdout.splitlines())


class Cloud:
    """A fake platform, and the app's controller that works on it."""

    def __init__(self, lab: Lab, settings: Settings) -> None:
        self.lab = lab
        self.app = controller.build(settings)
        self.platform = FakePlatform("slurm")

    @contextlib.asynccontextmanager
    async def controller(self) -> AsyncIterator[None]:
        async with self.platform.serve() as client:
            settings = RunnerSettings(claim_wait_s=1)
            runner = self.app.runner(
                client, self.platform.project_id, "test", settings=settings, connect=self.lab.connect
            )
            running = asyncio.create_task(runner.run())
            try:
                yield
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    def instance(self, controller: str, workers: Sequence[str], **inputs: Any) -> Instance:
        form = {
            "cluster_name": "lab",
            "controller_allocation_id": f"alloc_{controller}",
            "worker_allocation_ids": [f"alloc_{name}" for name in workers],
        }
        members = {"controller": [controller], "worker": list(workers)}
        return self.platform.add_instance(members, topology="split", inputs=form | inputs)

    async def perform(self, instance: Instance, kind: Any, names: Sequence[str] = (), **options: Any) -> Any:
        await self.free(instance)
        operation = self.request(instance, kind, names, **options)
        return await self.platform.ended(operation.operation_id, timeout_s=300)

    async def free(self, instance: Instance) -> None:
        """Wait until no operation runs. The app may repair a member; the platform refuses another request beside it."""
        async with asyncio.timeout(300):
            while self.platform.records.open_operations(instance.instance_id):  # noqa: ASYNC110 - no event for this
                await asyncio.sleep(0.1)

    def request(self, instance: Instance, kind: Any, names: Sequence[str] = (), **options: Any) -> Any:
        role = options.pop("role", "worker")
        targets = [self.member(instance, name, role) for name in names] if names else None
        return self.platform.request(instance, kind, targets, component_key=role if names else "", **options)

    def worker(self, instance: Instance, name: str) -> Member:
        return self.member(instance, name, "worker")

    def member(self, instance: Instance, name: str, role: str) -> Member:
        members = [member for member in self.platform.members(instance) if member.component_key == role]
        return next(member for member in members if member.node_name == name)
