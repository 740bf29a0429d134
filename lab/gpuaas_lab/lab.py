"""One lab: start it, change it, stop it. Called by `main.py`. The record is saved before anything is changed."""

import dataclasses
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuaas_lab import cgroup, enrolment, errors, host, image, machine, network, plan, repository, shell, state

START_PARALLEL = 4


@dataclass(frozen=True)
class Network:
    """The network of a lab. Machines reach servers on the host at the gateway address."""

    bridge: str
    gateway: str
    subnet: str


@dataclass(frozen=True)
class MachineStatus:
    """One machine in the output of `gpuaas-lab status`."""

    name: str
    address: str
    state: str
    network: str
    gpus: int


class Lab:
    """One lab on this host. Methods that make or remove machines hold the lab's lock, so that two calls never race.

    Simulated faults (kill, freeze, cut) do not take the lock, so that they also work while `up` runs.
    """

    def __init__(self, state_folder: Path, name: str) -> None:
        self.store = state.Store(state_folder, plan.check_lab_name(name))
        self.name = name
        self.layout = cgroup.host_layout()

    def build(self, packages: Sequence[str] | None, *, toolchain: bool) -> tuple[str, str | None]:
        """Build the image and, for packages, the offline repository, unless they exist. Return their keys."""
        image_key = image.ensure(self.store.state, toolchain=toolchain)
        if packages is None:
            return image_key, None
        return image_key, repository.ensure(self.store.state, image_key, packages)

    def ensure_network(self) -> Network:
        with self.store.locked():
            return self._ensure_network(self._record())

    def up(
        self,
        count: int,
        gpus: int,
        packages: Sequence[str] | None,
        agent: enrolment.Enrolment | None,
        *,
        toolchain: bool = False,
    ) -> None:
        """Make at least `count` nodes, and start, thaw and connect every machine of the lab."""
        toolchain = toolchain or self._has_toolchain()
        image_key, packages_key = self.build(packages, toolchain=toolchain)
        with self.store.locked():
            record = dataclasses.replace(self._record(), toolchain=toolchain)
            record = plan.add_machines(record, plan.node_names(count), gpus=gpus, image=image_key)
            if toolchain and (others := plan.machines_without(record, image_key)):
                shell.progress(f"{', '.join(others)}: the disk is from an image without the toolchain and is kept")
            if packages_key:
                record = plan.set_packages(record, packages_key)
            self._save_and_start(record, list(record.machines), agent)

    def add(self, names: Sequence[str], count: int, gpus: int, agent: enrolment.Enrolment | None) -> list[str]:
        """Make and start machines with these names, or `count` new machines."""
        image_key, _ = self.build(None, toolchain=self._has_toolchain())
        with self.store.locked():
            record = self._record()
            wanted = list(names) or plan.next_node_names(record.machines, count)
            self._save_and_start(plan.add_machines(record, wanted, gpus=gpus, image=image_key), wanted, agent)
            return wanted

    def start(self, names: Sequence[str]) -> None:
        with self.store.locked():
            record = self._record()
            self._require_known(record, names)
            self._save_and_start(record, names, None)

    def remove(self, names: Sequence[str]) -> None:
        """Destroy machines and their disks."""
        with self.store.locked():
            record = self._record()
            self._require_known(record, names)
            for name in names:
                shell.progress(f"removing {name}")
                self._destroy(name, record)
            record = plan.remove_machines(record, names)
            self.store.save(record)
            self._refresh_hosts(record, names)

    def reinstall(self, name: str, agent: enrolment.Enrolment) -> None:
        """Replace the disk of a machine by an empty one and start it with this agent. The address stays."""
        with self.store.locked():
            record = self._record()
            self._require_known(record, [name])
            shell.progress(f"reinstalling {name}")
            self._destroy(name, record)
            self._save_and_start(record, [name], agent)

    def down(self, *, purge: bool, images: bool) -> list[str]:
        """Stop all machines and remove everything but the disks from the host, including machines without a record."""
        with self.store.locked():
            record = self.store.load() or plan.LabRecord(self.name, "0.0.0.0/24")
            names = self._names_on_host(record)
            if running := [name for name in names if self._machine(name).is_running()]:
                shell.progress(f"stopping {plan.counted(len(running))}")
            with ThreadPoolExecutor(START_PARALLEL) as pool:
                list(pool.map(lambda name: machine.shut_down(self._machine(name)), names))
            for name in names:
                self._release(name, record)
            self._release_lab()
            self.store.empty_trash()
            if purge:
                self.store.delete(self.store.folder)
            if images:
                self._remove_unused_images()
        return names

    def kill(self, names: Sequence[str]) -> None:
        """Cut the power. The link is cut first, because a kernel closes the connections of processes that it kills,
        and a machine without power sends nothing."""
        record = self._record_of(names)
        for target in self._existing(names):
            if target.is_running():
                network.cut(self.name, record.machines[target.name].host_number)
            target.cgroup.kill()

    def set_frozen(self, names: Sequence[str], frozen: bool) -> None:
        for target in self._existing(names):
            self._require_running(target)
            target.cgroup.set_frozen(frozen)

    def set_cut(self, names: Sequence[str], is_cut: bool) -> None:
        record = self._record_of(names)
        for name in names:
            self._require_running(self._machine(name))
            (network.cut if is_cut else network.heal)(self.name, record.machines[name].host_number)
        for name in () if is_cut else names:
            machine.wait_for_network(self._machine(name), record.address(record.machines[name]))

    def exec_command(self, name: str, argv: Sequence[str]) -> list[str]:
        (target,) = self._existing([name])
        return machine.enter_command(target, argv)

    def console_command(self, name: str) -> list[str]:
        (target,) = self._existing([name])
        return machine.console_command(target)

    def console_log(self, name: str) -> str:
        (target,) = self._existing([name])
        return machine.console_log(target)

    def address(self, name: str) -> str:
        record = self._record_of([name])
        return record.address(record.machines[name])

    def status(self) -> list[MachineStatus]:
        record = self.store.load()
        if record is None:
            return []
        links_cut = network.links_cut(self.name)
        return [self._status(record, entry, links_cut) for entry in record.machines.values()]

    def _save_and_start(self, record: plan.LabRecord, names: Sequence[str], agent: enrolment.Enrolment | None) -> None:
        """Save the record, then start the machines. So `down` finds every machine in the record after a crash."""
        self.store.save(record)
        host.make_private(self.store.machines)
        self._ensure_shared()
        host.allow_many_machines()
        self._ensure_network(record)
        self._publish_packages(record)
        to_start = [name for name in names if not self._machine(name).is_running()]
        if to_start:
            shell.progress(f"starting {plan.counted(len(to_start))}")
        with network.locked():
            for name in to_start:
                self._machine(name).cgroup.create_new()
                network.connect(record, record.machines[name])
        with ThreadPoolExecutor(START_PARALLEL) as pool:
            list(pool.map(lambda name: self._boot(record, name, agent), to_start))
            running = [name for name in names if name not in to_start]
            list(pool.map(lambda name: self._refresh(record, name, agent), running))
        self._refresh_hosts(record, names)
        for name in names:
            address = record.address(record.machines[name])
            machine.wait_for_ssh(self._machine(name), address)
            print(f"{name}  {address}  {'started' if name in to_start else 'running'}", flush=True)

    def _boot(self, record: plan.LabRecord, name: str, agent: enrolment.Enrolment | None) -> None:
        target = self._machine(name)
        machine.mount(target, machine.image_folder(self.store.state, record.machines[name]))
        machine.write_identity(target, record, record.machines[name])
        if agent:
            enrolment.apply(target, agent)
        machine.spawn(target, self.store.packages, self.store.shared)

    def _refresh(self, record: plan.LabRecord, name: str, agent: enrolment.Enrolment | None) -> None:
        target = self._machine(name)
        if target.cgroup.is_frozen():
            shell.progress(f"thawing {name}")
            target.cgroup.set_frozen(False)
        host_number = record.machines[name].host_number
        if plan.veth_name(self.name, host_number) in network.links_cut(self.name):
            shell.progress(f"reconnecting {name}")
            network.heal(self.name, host_number)
        if agent and enrolment.apply(target, agent):
            enrolment.restart_agent(target)

    def _refresh_hosts(self, record: plan.LabRecord, just_written: Collection[str]) -> None:
        """Update /etc/hosts on running machines after machines were added or removed."""
        for name in record.machines:
            target = self._machine(name)
            if name not in just_written and target.is_running() and not target.cgroup.is_frozen():
                machine.write_hosts(target, record)

    def _publish_packages(self, record: plan.LabRecord) -> None:
        source = repository.path(self.store.state, record.packages) if record.packages else None
        if source and not source.is_dir():
            raise errors.LabError(
                f"the package repository {record.packages} no longer exists", "gpuaas-lab up --packages FILE"
            )
        repository.publish(source, self.store.packages)

    def _ensure_shared(self) -> None:
        """Make the shared folder of the lab. Every user of a machine can enter it, but of the host only root."""
        host.make_private(self.store.shared.parent)
        self.store.shared.mkdir(exist_ok=True)
        self.store.shared.chmod(0o755)

    def _ensure_network(self, record: plan.LabRecord) -> Network:
        with network.locked():
            network.create_bridge(record)
        return Network(plan.bridge_name(self.name), record.gateway, record.subnet)

    def _record(self) -> plan.LabRecord:
        """Return the record of the lab. For a new lab, choose a free subnet and save the record."""
        stored = self.store.load()
        if stored:
            return stored
        with network.locked():
            used = [other.subnet for other in self.store.other_labs()] + network.used_subnets()
            record = plan.LabRecord(self.name, plan.choose_subnet(self.name, used))
            self.store.save(record)
        return record

    def _has_toolchain(self) -> bool:
        """Return whether new machines of the lab get the toolchain, because an earlier `up` asked for it."""
        record = self.store.load()
        return record is not None and record.toolchain

    def _record_of(self, names: Sequence[str]) -> plan.LabRecord:
        record = self.store.load() or plan.LabRecord(self.name, "0.0.0.0/24")
        self._require_known(record, names)
        return record

    def _existing(self, names: Sequence[str]) -> list[machine.Machine]:
        self._record_of(names)
        return [self._machine(name) for name in names]

    def _require_known(self, record: plan.LabRecord, names: Sequence[str]) -> None:
        if unknown := [name for name in names if name not in record.machines]:
            raise errors.NotFound(
                f"lab {self.name} has no machine {unknown[0]}", f"gpuaas-lab status --lab {self.name}"
            )

    def _require_running(self, target: machine.Machine) -> None:
        if not target.is_running():
            raise errors.LabError(f"{target.name} is not running", f"gpuaas-lab start --lab {self.name} {target.name}")

    def _machine(self, name: str) -> machine.Machine:
        group = cgroup.MachineCgroup(self.layout, self.name, name)
        return machine.Machine(self.name, name, self.store.machine_folder(name), group)

    def _names_on_host(self, record: plan.LabRecord) -> list[str]:
        by_name = {*record.machines, *self.store.machine_folders(), *network.machines_with_namespace(self.name)}
        return sorted(by_name | set(cgroup.machines_of(self.layout, self.name)))

    def _release(self, name: str, record: plan.LabRecord) -> None:
        entry = record.machines.get(name)
        network.disconnect(self.name, name, entry.host_number if entry else None)
        machine.release(self._machine(name))

    def _destroy(self, name: str, record: plan.LabRecord) -> None:
        """Cut the power of a machine and delete its disk. It does not shut down: nothing on it may run any more."""
        self._machine(name).cgroup.kill()
        self._release(name, record)
        self.store.delete(self.store.machine_folder(name))

    def _release_lab(self) -> None:
        cgroup.remove_lab(self.layout, self.name)
        with network.locked():
            network.delete_leftovers(self.name)
            network.delete_bridge(self.name)
            network.release_namespace_folder()

    def _remove_unused_images(self) -> None:
        records = [*self.store.other_labs(), *filter(None, [self.store.load()])]
        images_used = {entry.image for record in records for entry in record.machines.values()}
        packages_used = {record.packages for record in records}
        with image.locked(self.store.state):
            for kind, used in (("images", images_used), ("repos", packages_used)):
                for folder in (self.store.state / kind).glob("*"):
                    if folder.name in used:
                        shell.progress(f"keeping {folder}, because machines of a lab use it")
                    else:
                        self.store.delete(folder)
            host.remove_tree(image.downloads(self.store.state))

    def _status(self, record: plan.LabRecord, entry: plan.MachineRecord, links_cut: Collection[str]) -> MachineStatus:
        target = self._machine(entry.name)
        running = target.is_running()
        power = "frozen" if running and target.cgroup.is_frozen() else "running" if running else "stopped"
        is_cut = plan.veth_name(self.name, entry.host_number) in links_cut
        connection = "-" if not running else "cut" if is_cut else "connected"
        return MachineStatus(entry.name, record.address(entry), power, connection, entry.gpus)


def as_json(items: Sequence[MachineStatus]) -> list[dict[str, object]]:
    return [asdict(item) for item in items]
