"""Packages of roles: what is installed, from where, in which version, and recorded before."""

from pathlib import Path

import pytest
from gpuaas_sdk.failures import Permanent, Refused
from gpuaas_sdk.installs import Receipt, apt, package_changes, packages, receipts
from gpuaas_sdk.installs.package_changes import Change
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeHost
from kv_footprint import KV
from local_shell import program, run

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 17 (apt-get)"
BUNDLE = packages.Source("bundle", ("-o", "x"), {"kv-server": "3.6-1", "kv-tools": "3.6-1", "logrotate": "3.22"})


class Debian:
    """The package tools of a machine in memory. `installed`: package -> version."""

    def __init__(self, installed: dict[str, str] | None = None) -> None:
        self.installed = dict(installed or {})
        self.host = FakeHost("gpu-1", self._answer)
        self.events: list[str] = []

    def _answer(self, argv: tuple[str, ...]) -> Ran:
        words = tuple(word for word in argv if not word.startswith("-"))
        if argv[0] == "bash":
            return self._script(self.host.commands[-1].input.decode(), argv[4:])
        if argv[0] == "dpkg-query":
            shown = [f"{name} {version} installed kv\n" for name, version in self.installed.items() if "kv" in name]
            return Ran(0, "".join(shown), "")
        if "-s" in argv:
            specs = [spec.partition("=") for spec in words[words.index("install") + 1 :]]
            new = [(name, version or "3.5-1") for name, _, version in specs if self.installed.get(name) != version]
            return Ran(0, "".join(f"Inst {name} ({version} Debian)\n" for name, version in new), "")
        return Ran(0, "", "")

    def _script(self, text: str, argv: tuple[str, ...]) -> Ran:
        if packages.MISSING in text:
            return Ran(0, "".join(f"{name}\n" for name in argv if name not in self.installed), "")
        if packages.INSTALL in text:
            specs = [spec.partition("=") for spec in argv[argv.index("--no-install-recommends") + 1 :]]
            self.installed |= {name: version or "3.5-1" for name, _, version in specs}
            recorded = self.host.files.get(receipts.path_of(KV, "inst_1"), b"")
            self.events.append("installed, recorded" if b"kv-server" in recorded else "installed")
        return Ran(0, "", "")


async def test_missing_packages_are_recorded_and_then_installed_and_a_repeat_does_nothing() -> None:
    debian, receipt = Debian(), Receipt("inst_1", ["server"])
    await packages.install(Machine(debian.host), KV, receipt, ("server",), ("logrotate",))
    assert debian.events == ["installed, recorded"]
    assert receipt.packages == ["kv-server", "kv-tools", "logrotate"]
    await packages.install(Machine(debian.host), KV, receipt, ("server",), ("logrotate",))
    assert debian.events == ["installed, recorded"]


async def test_only_packages_of_the_software_get_the_version_of_the_bundle() -> None:
    assert BUNDLE.specs(KV, ("kv-server", "logrotate")) == ("kv-server=3.6-1", "logrotate")
    debian = Debian({"kv-server": "3.5-1", "kv-tools": "3.5-1"})
    await packages.install(Machine(debian.host), KV, Receipt("inst_1"), ("server",), source=BUNDLE)
    assert debian.installed == {"kv-server": "3.6-1", "kv-tools": "3.6-1"}


async def test_a_version_that_the_app_does_not_accept_is_not_installed() -> None:
    def accept(hostname: str, simulation: packages.Simulation) -> None:
        raise Permanent(f"{hostname} would get KV {simulation.versions['kv-server']}")

    debian = Debian()
    with pytest.raises(Permanent, match=r"gpu-1 would get KV 3\.5-1"):
        await packages.install(Machine(debian.host), KV, Receipt("inst_1"), ("server",), accept=accept)
    assert (debian.installed, debian.host.files) == ({}, {})


async def test_packages_that_should_be_present_are_named_if_they_are_not() -> None:
    with pytest.raises(Permanent, match="gpu-1 lacks packages that `packages: present` expects: kv-server, kv-tools"):
        await packages.install(Machine(Debian().host), KV, Receipt("inst_1"), ("server",), source=packages.PRESENT)


async def test_an_installation_adds_the_dependencies_that_an_interrupted_one_had_not_unpacked() -> None:
    def answer(argv: tuple[str, ...]) -> Ran:
        unfinished = argv.count("kv-server") == 2  # REPAIR, with the receipt and the wanted ones
        return Ran(1 if unfinished else 0, "kv-server\n", "dependency problems")

    host = FakeHost("gpu-2", answer)
    await packages.install(Machine(host), KV, Receipt("inst_1", ["server"], ["kv-server"]), ("server",))
    fixed = [argv for argv in host.ran if "--fix-broken" in argv]
    assert [argv[-4:] for argv in fixed] == [("--no-remove", "--fix-broken", "install", "--no-install-recommends")]


async def test_an_upgrade_first_finishes_an_installation_that_a_power_cut_interrupted() -> None:
    fixed = ("--no-remove", "--fix-broken", "install", "--no-install-recommends")

    def answer(argv: tuple[str, ...]) -> Ran:
        is_fixed = any(ran[-4:] == fixed for ran in host.ran[:-1])
        if argv[0] == "bash" and "kv-server" in argv and not is_fixed:  # REPAIR
            return Ran(1, "", "kv-plugins depends on libkv; however: not installed")
        if argv[0] == "dpkg-query":
            return Ran(0, "kv-server 3.5-1 installed kv\n" if is_fixed else "", "")
        return Ran(0, "Inst kv-server [3.5-1] (3.6-1 localhost [amd64])\n", "")

    host = FakeHost("gpu-2", answer)
    source = packages.Source("bundle", versions={"kv-server": "3.6-1", "kv-tools": "3.6-1"})
    change = await package_changes.plan(Machine(host), KV, (), source)
    assert (change.before, change.after, change.specs) == ("3.5-1", "3.6-1", ("kv-server=3.6-1",))


async def test_an_upgrade_changes_all_packages_of_the_software_and_runs_its_preparation_first() -> None:
    debian = Debian({"kv-server": "3.5-1", "libkv": "3.5-1"})
    source = packages.Source("bundle", (), {"kv-server": "3.6-1", "libkv": "3.6-1", "logrotate": "3.22"})

    async def stop() -> None:
        debian.events.append("stopped")

    change = await package_changes.plan(Machine(debian.host), KV, (), source)
    assert (change.before, change.after) == ("3.5-1", "3.6-1")
    for _ in range(2):
        await package_changes.install(Machine(debian.host), KV, "inst_1", (), source, before=stop)
    assert debian.installed == {"kv-server": "3.6-1", "libkv": "3.6-1"}
    assert debian.events == ["stopped", "installed"], "the repeat changes nothing, so it stops nothing"


@pytest.mark.parametrize(
    ("source", "version", "spec"),
    [(BUNDLE, "", "kv-server=3.6-1"), (packages.DISTRIBUTION, "3.6-1", "kv-server=3.6-1"), (BUNDLE, "", "kv-proxy")],
)
async def test_a_package_of_a_role_that_a_repair_removed_is_installed_by_a_change(
    source: packages.Source, version: str, spec: str
) -> None:
    debian = Debian({"kv-tools": "3.6-1"})
    role = "proxy" if spec == "kv-proxy" else "server"
    change = await package_changes.plan(Machine(debian.host), KV, (role,), source, version)
    assert (change.before, change.specs) == ("3.6-1", ("kv-tools=3.6-1", spec))
    await package_changes.install(Machine(debian.host), KV, "inst_1", (role,), source, version)
    assert set(debian.installed) == {"kv-tools", spec.partition("=")[0]}


async def test_systemd_reads_the_units_of_packages_that_an_interrupted_installation_left_unfinished() -> None:
    debian = Debian({"kv-server": "3.6-1", "kv-tools": "3.6-1"})
    await package_changes.install(Machine(debian.host), KV, "inst_1", ("server",), BUNDLE)
    assert (debian.events, debian.host.ran[-1]) == ([], ("systemctl", "daemon-reload"))


def test_machines_that_would_get_different_versions_are_refused() -> None:
    package_changes.refuse_mixed(KV, {"gpu-1": Change("3.5-1", "3.6-1"), "gpu-2": Change("3.4-1", "3.6-1")})
    with pytest.raises(Refused, match=r"different versions of KV: gpu-1 3\.6-1, gpu-2 3\.7-1"):
        package_changes.refuse_mixed(KV, {"gpu-1": Change("3.5-1", "3.6-1"), "gpu-2": Change("3.5-1", "3.7-1")})


def test_a_simulation_separates_new_packages_from_upgraded_ones() -> None:
    text = (
        "Reading package lists...\nInst libc6 [2.40-1] (2.41-12 Debian:13 [amd64])\n"
        "Inst kv-server (3.5-1 Debian:13/stable [amd64])\nConf kv-server (3.5-1 Debian:13/stable [amd64])\n"
    )
    simulation = packages.parse_simulation(text)
    assert simulation == packages.Simulation(("kv-server",), {"libc6": "2.41-12", "kv-server": "3.5-1"})


def test_an_update_reports_that_another_program_holds_the_lock_of_the_lists(tmp_path: Path) -> None:
    apt_get = program(tmp_path / "apt-get", f'echo "{LOCKED}" >&2; exit 100')
    assert run(packages.UPDATE, str(apt_get), "update", programs=tmp_path) == apt.LOCKED_STATUS


def test_without_a_network_the_existing_package_lists_are_used(tmp_path: Path) -> None:
    apt_get = program(tmp_path / "apt-get", 'echo "E: Failed to fetch, blocked by a proxy" >&2; exit 100')
    assert run(packages.UPDATE, str(apt_get), "update", programs=tmp_path) == 0
