"""Machines without Slurm, in memory. The app's scripts and commands change them as they change real ones: packages,
files, units. A node registers with Slurm when the slurmd of its machine starts."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import (
    accounting,
    accounting_backups,
    backup,
    config,
    containers,
    facts,
    footprint,
    home,
    job_records,
    keys,
    moves,
    reporter,
    rest,
    slurm,
    users,
)
from gpuaas_sdk.installs import apt, bundle, packages, receipts, removals, uninstall
from gpuaas_sdk.machine import Command, Completed, Ran
from gpuaas_sdk.testing import FakeMachines, FakePlatform
from gpuaas_sdk.testing.machines import FakeHost

from gpuaas_app_slurm_conformance.fake_slurm import (
    CLUSTER_NAME,
    FACTS,
    OK,
    SETTINGS,
    Cluster,
    FakeJob,
    FakeSlurm,
    running,
)

QUICK = dataclasses.replace(SETTINGS, accounting_start_s=0.2, conversion_s=0.2, controller_start_s=0.2, accounts_s=0.2)
VERSION = "24.11.5"


@dataclass
class Faults:
    """What does not work on the machines."""

    broken_units: set[str] = field(default_factory=set)
    """Units that do not start: `gpu-2 slurmd`. Those of the controller end right after their start."""
    kernel_lacks: Mapping[str, str] = field(default_factory=dict)
    """Machine -> what its kernel does not have: `nfsd`."""
    backup_damage: str = ""
    """What is wrong with the backup from before an upgrade."""
    is_shared: bool = True
    """Whether every machine has the files of the shared folder."""
    owner_elsewhere: str = "20001:20002"
    """The owner of a file of 20001:20002, as other machines show it."""
    cannot_write: str = ""
    """What the check of a shared folder prints if it cannot write there."""
    owners: str = ""
    """Homes of users in the shared folder, with their numbers, as another cluster made them."""
    people_mounted: str = ""
    """What is mounted at /home/people before the app."""
    failing_script: str = ""
    """A script that fails before it changes anything."""
    package_locks: int = 0
    """How often another program has the lock of the package tools."""
    packaged_version: str = VERSION
    needed_by_others: tuple[str, ...] = ()
    """Packages of other software that need those of the app."""
    users_cannot_ping: bool = False
    lost_after_restart: set[str] = field(default_factory=set)
    """Machines whose slurmd does not find another slurmctld than that of gpu-1."""
    without_containers: set[str] = field(default_factory=set)
    """Machines whose kernel does not allow normal users to run containers."""
    silent_nodes: set[str] = field(default_factory=set)
    """Machines whose slurmd starts and does not register."""
    converting: str = ""
    """The version of a slurmdbd that runs and does not answer, because it converts the database of an older one."""


class FreshHost(FakeHost):
    """A machine of the fake cluster. `files`, `installed` and `active` show what the app did to it."""

    def __init__(self, name: str, slurm: FakeSlurm, faults: Faults) -> None:
        super().__init__(name, self._answer_command)
        self.installed: set[str] = set()
        self.active: set[str] = set()
        self.started: list[str] = []
        """The units that were started, in order, with the installed version: `slurmd 24.11.5`."""
        self.slurm_version = f"{VERSION}-4"
        """The version of the installed packages of Slurm."""
        self.saved: dict[str, bytes] = {}
        """The files of the app as it remembered them."""
        self.hangs_after: int | None = None
        """After so many commands, each one hangs before it does anything, so that its controller can be killed."""
        self.hangs = asyncio.Event()
        self.conf_server = ""
        """Where the running slurmd gets its configuration."""
        self.queue_on_disk: list[FakeJob] | None = None
        """The queue in the state folder, after it was packed or unpacked here. slurmctld reads it when it starts."""
        self._slurm, self._faults = slurm, faults

    def version_of(self, package: str) -> str:
        """Return the installed version of a package."""
        return self.slurm_version if package.startswith("slurm") else "1"

    def join(self, slurm: FakeSlurm) -> None:
        """Belong to another Slurm from now on. The machine has nothing of the last one."""
        self._slurm, self.saved, self.queue_on_disk = slurm, {}, None

    def keys_of_controller(self) -> set[bytes]:
        """Return the key and the key set of the machine if slurmctld runs here."""
        paths = (keys.SLURM_KEY, keys.KEY_SET) if "slurmctld" in self.active else ()
        return {self.files[path] for path in paths if path in self.files}

    async def execute(self, command: Command) -> Completed:
        if command.parts:
            return await super().execute(command)
        if self.hangs_after == 0:
            self.hangs.set()
            await asyncio.Event().wait()
        elif self.hangs_after is not None:
            self.hangs_after -= 1
        if self.reachable and command.argv[:2] == ("bash", "-seuo"):
            self.commands.append(command)
            ran = self._answer_script(command.input.decode(), command.argv[4:])
        elif self.reachable and command.as_user and self._faults.users_cannot_ping:
            ran = Ran(1, "", "slurm_ping: Permission denied")
        else:
            return await super().execute(command)
        return Completed(ran.exit_status, ran.stdout.encode(), ran.stderr.encode())

    def _answer_command(self, argv: tuple[str, ...]) -> Ran:
        match argv:
            case ("systemctl", "restart", unit):
                return self._start(unit)
            case ("systemctl", "start", "mariadb" as unit):
                return OK if unit in self.active else self._start(unit)
            case ("systemctl", "disable", "-q", "--now", *units):
                return self._stop(units)
            case ("systemctl", "stop", unit):
                return self._stop([unit])
            case ("rm", "-rf", "--one-file-system", *paths):
                self._delete(paths)
                return OK
            case ("systemctl", "is-active", "-q", unit):
                return OK if unit in self.active else Ran(3, "", "")
            case ("systemctl", "is-active", unit):
                return Ran(0, "active\n", "") if unit in self.active else Ran(3, "inactive\n", "")
            case ("tail", *_, path):
                return Ran(0, f"fatal: the last line of {path}\n", "")
            case ("timeout", "5", "sacctmgr", *_) if not self._has_accounting():
                return Ran(1, "", "sacctmgr: error: Connection refused")
            case ("timeout", "10", "scontrol", "ping") if not self._finds_slurmctld():
                return Ran(1, "", "Slurmctld(primary) at gpu-1 is DOWN")
            case ("timeout", "10", "scontrol", "ping") if not self._slurm.keys.is_accepted(self.hostname):
                return Ran(1, "", "slurm_ping: Protocol authentication error")
            case ("scontrol", "show", "config") if self._slurm.is_up:
                numbers = f"SLURM_VERSION = {self._slurm.version}\nNEXT_JOB_ID = {self._slurm.next_job_id}\n"
                return Ran(0, f"{numbers}{self._slurm.shown_config()}", "")
            case ("scontrol", "reconfigure") if self._slurm.is_up:
                return self._slurm.load(self._slurm_conf())
            case ("dpkg-query", "-W", "-f", "${Version}", name):
                return Ran(0, self.slurm_version, "") if name in self.installed else Ran(1, "", "no packages found")
            case ("dpkg-query", "-W", "-f", _, "slurm*", *_):
                names = sorted(name for name in self.installed if name.startswith("slurm"))
                return Ran(0, "".join(f"{name} {self.slurm_version} installed slurm-wlm\n" for name in names), "")
            case ("dpkg-query", "-W", "-f", _, *names):
                return Ran(0, "".join(f"{name} installed\n" for name in names if name in self.installed), "")
            case ("sh", "-c", containers.CHECK, _, text):
                return self._run_container(text)
            case ("find", *_):
                return Ran(0, "\n".join(path for path in self.files if path.startswith(footprint.SLURM.folder)), "")
        if argv[: len(apt.APT)] == apt.APT:
            return self._apt(argv[len(apt.APT) :])
        return self._slurm.answer(argv)

    def _start(self, unit: str) -> Ran:
        if f"{self.hostname} {unit}" in self._faults.broken_units:
            return Ran(1, "", f"Job for {unit}.service failed") if unit == "slurmd" else OK
        self.active.add(unit)
        self._slurm.keys.start(self.hostname, unit, self.files)
        version = self.slurm_version.split("-")[0]
        self.started.append(f"{unit} {version}")
        if unit == "slurmd":
            unit_file = self.files.get(config.SLURMD_UNIT_PATH, b"").decode()
            match = re.search(r"--conf-server (\S+)", unit_file)
            self.conf_server = match[1] if match else ""
            feature = re.search(r"Feature=(\w+)", unit_file)
        if unit == "slurmd" and self._is_lost():
            self._slurm.nodes[self.hostname] = ["IDLE", "NOT_RESPONDING"]
        elif unit == "slurmd" and self.hostname not in self._faults.silent_nodes:
            self._slurm.register(self.hostname, feature[1] if feature else "worker")
            self._slurm.versions[self.hostname] = version
        if unit == "slurmctld":
            self._slurm.is_up, self._slurm.version = True, version
            self._slurm.controllers.add(self.hostname)
            assert self._slurm.controllers == {self.hostname}, "two machines run slurmctld"
            if self.queue_on_disk is not None:
                self._slurm.jobs, self.queue_on_disk = self.queue_on_disk, None
            self._slurm.load(self._slurm_conf())
        return OK

    def _run_container(self, text: str) -> Ran:
        if "crun" not in self.installed:
            return Ran(127, "", "sh: 1: crun: not found")
        if self.hostname in self._faults.without_containers:
            return Ran(1, "", "clone: Operation not permitted")
        return Ran(0, f"{text}\n", "")

    def _stop(self, units: Sequence[str]) -> Ran:
        self.active.difference_update(units)
        self._slurm.keys.stop(self.hostname, units)
        self._slurm.changes += [f"stop {unit} on {self.hostname}" for unit in units]
        if "slurmctld" in units:
            self._slurm.controllers.discard(self.hostname)
            self._slurm.is_up = bool(self._slurm.controllers)
        return OK

    def _has_accounting(self) -> bool:
        converts = self._faults.converting and self.slurm_version.startswith(self._faults.converting)
        return "slurmdbd" in self.active and not converts

    def _start_slurmdbd(self) -> None:
        """Start slurmdbd unless the installed one runs."""
        present = [each for each in self.started if each.startswith("slurmdbd ")]
        if "slurmdbd" not in self.active or present[-1] != f"slurmdbd {self.slurm_version.split('-')[0]}":
            self._start("slurmdbd")

    def _is_lost(self) -> bool:
        return self.hostname in self._faults.lost_after_restart and self.conf_server != "gpu-1:6817"

    def _finds_slurmctld(self) -> bool:
        """A machine with a slurm.conf asks the host that it names; the others have a slurmd for that."""
        host = re.search(r"^SlurmctldHost=([^(]+)", self._slurm_conf(), re.MULTILINE)
        is_there = host is None or host[1] in self._slurm.controllers
        return self._slurm.is_up and is_there

    def _pack(self, argv: tuple[str, ...]) -> str:
        out = argv[0]
        if f"{out}/done" not in self.files:
            if "slurmctld" in self.active:
                self.queue_on_disk = list(self._slurm.jobs)
            self._stop(["slurmctld", "slurmdbd"])
            jobs = [dataclasses.asdict(job) for job in self.queue_on_disk or []]
            self.files |= {f"{out}/parts/aa": json.dumps(jobs).encode(), f"{out}/parts/ab": b"", f"{out}/done": b""}
        return "digest aa ab"

    def _unpack(self, argv: tuple[str, ...]) -> None:
        if f"{argv[0]}/done" not in self.files:
            jobs = json.loads(self.files[f"{argv[0]}/parts/aa"])
            self.queue_on_disk = [FakeJob(**job) for job in jobs]
            self.files[f"{argv[0]}/done"] = b""

    def _end(self, units: Sequence[str]) -> None:
        """Stop units for good, as their removal does."""
        self.active.difference_update(units)
        self._slurm.keys.stop(self.hostname, units)
        if "slurmctld" in units:
            self._slurm.controllers.discard(self.hostname)

    def _back_up(self, argv: tuple[str, ...]) -> None:
        if f"{argv[0]}/done" in self.files:
            return
        self._slurm.backed_up = list(self._slurm.jobs)
        self._slurm.nodes_backed_up = dict(self._slurm.nodes), dict(self._slurm.reasons)
        self._stop(["slurmctld", "slurmdbd"])
        self.files[f"{argv[0]}/done"] = b""

    def _restore_backup(self) -> None:
        self._stop(["slurmctld", "slurmdbd"])
        self._slurm.jobs = list(self._slurm.backed_up)
        nodes, reasons = self._slurm.nodes_backed_up
        self._slurm.nodes, self._slurm.reasons = dict(nodes), dict(reasons)

    def _slurm_conf(self) -> str:
        return self.files.get(config.SLURM_CONF, b"").decode()

    def _changed(self) -> list[str]:
        return [path for path, content in self.saved.items() if self.files.get(path) != content]

    def _save(self, argv: tuple[str, ...]) -> None:
        listed, _, *paths = argv
        self.saved = {path: self.files[path] for path in paths if path in self.files}
        lines = (f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in self.saved.items())
        self.files[listed] = "".join(lines).encode()

    def _restore(self, paths: Sequence[str]) -> str:
        changed = [path for path in paths if path in self._changed()]
        self.files |= {path: self.saved[path] for path in changed}
        return "changed" if changed else ""

    def _apt(self, argv: tuple[str, ...]) -> Ran:
        while argv[0] == "-o":
            argv = argv[2:]
        match argv:
            case ("install", "-s", *words):
                specs = [word.partition("=") for word in words if not word.startswith("--")]
                return Ran(0, "".join(self._simulated(name, version) for name, _, version in specs), "")
            case ("purge", "-s", *names):
                removed = [*names, *self._faults.needed_by_others]
                return Ran(0, "".join(f"Purg {name} [{VERSION}]\n" for name in removed), "")
            case ("purge", *names):
                self.installed -= set(names)
        return OK

    def _answer_script(self, text: str, argv: tuple[str, ...]) -> Ran:
        """Do what the script does on a machine, as far as the app can see it."""
        if self._faults.failing_script and self._faults.failing_script in text:
            return Ran(1, "", "ERROR 2002 (HY000): Can't connect to local server")
        for script, effect in self._effects().items():
            if script in text:
                return Ran(0, effect(argv) or "", "")
        if moves.RUNS_WITH in text:
            return OK if "slurmd" in self.active and self.conf_server == argv[0] else Ran(1, "", "")
        if accounting_backups.STAGE in text and f"{argv[0]}/{argv[1]}" not in self.files:
            return Ran(accounting_backups.NOT_A_BACKUP, "", "there is no such file")
        if apt.REPAIR in text and self._faults.package_locks:
            self._faults.package_locks -= 1
            return Ran(apt.LOCKED_STATUS, "", "dpkg: error: dpkg frontend lock is locked by process 17")
        return OK

    def _effects(self) -> Mapping[str, Any]:
        return {
            facts.SCRIPT: lambda argv: self._facts(),
            job_records.READ: lambda argv: self._slurm.accounting_rows(*map(int, argv)).stdout,
            receipts.INSPECT: lambda argv: "".join(
                f"absent {name}\n" for kind, name in zip(argv[::2], argv[1::2], strict=True) if kind == "path"
            ),
            packages.MISSING: lambda argv: "".join(f"{name}\n" for name in argv if name not in self.installed),
            packages.INSTALL: self._install,
            keys.MAKE: lambda argv: self.files.setdefault(argv[0], b"key made on " + self.hostname.encode()) and "",
            keys.DROP_SET: lambda argv: "removed" if self.files.pop(argv[0], None) is not None else "",
            users.USERS: lambda argv: self._slurm.accounting.ensure(argv, self.hostname).stdout,
            users.OWNERS: lambda argv: self._faults.owners,
            users.LIST: lambda argv: "\n".join(self._slurm.accounting.listed(self.hostname)),
            reporter.SAVE: self._save,
            reporter.RESTORE: lambda argv: self._restore(tuple(self.saved)),
            reporter.RESTORE_ONE: lambda argv: self._restore(argv[1:]),
            reporter.CHANGED: lambda argv: "".join(f"{path}\n" for path in self._changed()),
            bundle.UNPACK: lambda argv: self._slurm.bundles[argv[1]],
            rest.START: lambda argv: self._start(argv[0]) and "" if argv[1] in self.files else "",
            rest.STOP: lambda argv: self._stop([argv[0]]) and "" if argv[1] in self.files else "",
            rest.ANSWERS: lambda argv: "it does not listen" if self._lacks_rest(argv) else "",
            slurm.MPI: lambda argv: "pmi2" if self.slurm_version.startswith("26") else "pmix",
            accounting.START: lambda argv: self._start_slurmdbd(),
            accounting.PROCESS: lambda argv: "17\n" if "slurmdbd" in self.active else "0\n",
            backup.SAVE: self._back_up,
            backup.DAMAGE: lambda argv: self._faults.backup_damage,
            backup.RESTORE: lambda argv: self._restore_backup(),
            home.WRITE_PROBE: self._write_probe,
            home.READ_PROBE: self._read_probe,
            home.KERNEL_CAN: lambda argv: "\n".join(
                name for name in argv if name == self._faults.kernel_lacks.get(self.hostname)
            ),
            home.PEOPLE_BUSY: lambda argv: self._faults.people_mounted,
            home.UNMOUNT: lambda argv: self._delete(argv[2:]),
            uninstall.STOP: self._end,
            moves.PACK: self._pack,
            moves.UNPACK: self._unpack,
            uninstall.REMOVE_PATHS: self._delete,
            uninstall.DELETE_RECEIPT: self._delete,
            removals.STILL_THERE: self._still_there,
            accounting_backups.BACK_UP: lambda argv: self.files.setdefault(f"{argv[0]}/{argv[1]}", b"dump") and "",
            accounting_backups.LIST: lambda argv: "".join(
                f"{path.rsplit('/', 1)[1]} 4 1790000000 {'a' * 64}\n" for path in self.files if path.endswith(".sql.gz")
            ),
            accounting_backups.EXCHANGE: lambda argv: self.active.update(("slurmdbd", "slurmctld")),
        }

    def _lacks_rest(self, argv: tuple[str, ...]) -> bool:
        return argv[1] in self.files and argv[0] not in self.active

    def _facts(self) -> str:
        """Return the facts as the script prints them; processor counts only with slurmd, which prints them."""
        lines = FACTS.replace("hostname=gpu", f"hostname={self.hostname}").splitlines(keepends=True)
        return "".join(line for line in lines if "slurmd" in self.installed or not line.startswith("slurmd="))

    def _simulated(self, name: str, version: str) -> str:
        wanted = version or f"{self._faults.packaged_version}-4"
        if name not in self.installed:
            return f"Inst {name} ({wanted} Debian)\n"
        changes = name.startswith("slurm") and wanted != self.slurm_version
        return f"Inst {name} [{self.slurm_version}] ({wanted} Debian)\n" if changes else ""

    def _install(self, argv: tuple[str, ...]) -> None:
        specs = [spec.partition("=") for spec in argv[argv.index("--no-install-recommends") + 1 :]]
        self.installed |= {name for name, _, _ in specs}
        newest = f"{self._faults.packaged_version}-4"
        versions = [version or newest for name, _, version in specs if name.startswith("slurm")]
        self.slurm_version = next(iter(versions), self.slurm_version)

    def _write_probe(self, argv: tuple[str, ...]) -> str:
        folder, name, token = argv
        if self._faults.cannot_write:
            return self._faults.cannot_write
        self._slurm.probes[f"{folder}/{name}"] = token
        return f"written {folder}/{name}"

    def _read_probe(self, argv: tuple[str, ...]) -> str:
        token = self._slurm.probes.get(argv[0]) if self._faults.is_shared else None
        return f"read {token} {self._faults.owner_elsewhere}" if token else "missing"

    def _still_there(self, argv: tuple[str, ...]) -> str:
        asked = zip(argv[::2], argv[1::2], strict=True)
        return "".join(f"{kind} {name}\n" for kind, name in asked if self._has(kind, name))

    def _has(self, kind: str, name: str) -> bool:
        if kind in ("path", "content"):
            return any(file == name or file.startswith(f"{name}/") for file in self.files)
        return name in {"unit": self.active, "package": self.installed}.get(kind, ())

    def _delete(self, paths: Sequence[str]) -> None:
        gone = [file for file in self.files for path in paths if file == path or file.startswith(f"{path}/")]
        for file in gone:
            self.files.pop(file, None)


class FreshMachines(FakeMachines):
    """Machines that have nothing of Slurm yet."""

    def __init__(self, slurm: FakeSlurm, faults: Faults) -> None:
        super().__init__()
        self._slurm, self._faults = slurm, faults

    def host(self, name: str) -> FreshHost:
        present = self.by_host.setdefault(name, FreshHost(name, self._slurm, self._faults))
        assert isinstance(present, FreshHost)
        return present


@dataclass
class NewCluster(Cluster):
    """An instance that is not deployed yet."""

    faults: Faults = field(default_factory=Faults)

    def host(self, name: str) -> FreshHost:
        host = self.machines.host(name)
        assert isinstance(host, FreshHost)
        return host


@contextlib.asynccontextmanager
async def new_cluster(
    members: Mapping[str, Sequence[str]],
    *,
    topology: str = "split",
    settings: Settings = QUICK,
    **inputs: Any,
) -> AsyncIterator[NewCluster]:
    slurm, faults = FakeSlurm(is_up=False), Faults()
    platform = FakePlatform("slurm", steward=controller.app.manifest.steward)
    machines = FreshMachines(slurm, faults)
    form = {"cluster_name": CLUSTER_NAME, "controller_allocation_id": f"alloc_{members['controller'][0]}"} | inputs
    instance = platform.add_instance(members, topology=topology, inputs=form)
    cluster = NewCluster(slurm, platform, machines, instance, faults=faults)
    async with running(controller.build(settings), cluster):
        yield cluster


async def hangs_or_ends(cluster: NewCluster, name: str, operation_id: str) -> bool:
    """Return whether a command on this machine hung before the operation ended."""
    hangs = asyncio.create_task(cluster.host(name).hangs.wait())
    ends = asyncio.create_task(cluster.platform.ended(operation_id))
    done, pending = await asyncio.wait({hangs, ends}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return hangs in done
