"""The package tools of a machine: locks, interrupted installations, and exact purges."""

from pathlib import Path

import pytest
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.installs import apt, packages
from gpuaas_sdk.machine import Machine, Ran, shell
from gpuaas_sdk.testing import FakeHost
from kv_footprint import KV
from local_shell import program, run


@pytest.mark.parametrize(
    ("error", "status"),
    [("", 0), ("dpkg: error: dpkg frontend lock is locked by process 17", apt.LOCKED_STATUS), ("broken", 1)],
)
def test_a_repair_distinguishes_a_locked_dpkg_from_a_broken_one(tmp_path: Path, error: str, status: int) -> None:
    program(tmp_path / "dpkg", f'[ -z "{error}" ] || {{ echo "{error}" >&2; exit 2; }}')
    assert run(apt.REPAIR, programs=tmp_path) == status


@pytest.mark.parametrize("left", ["half-installed ok", "half-installed reinstreq", "unpacked reinstreq"])
def test_a_package_whose_removal_was_interrupted_is_removed_before_the_others_are_configured(
    tmp_path: Path, left: str
) -> None:
    program(
        tmp_path / "dpkg-query",
        f"case $* in *kv-server) echo unpacked ok ;; *plugins) echo {left} ;; *) exit 1; esac",
    )
    program(tmp_path / "dpkg", 'echo "$@" >>"$0.calls"')
    assert run(apt.REPAIR, "kv-server", "plugins", "absent", programs=tmp_path) == 0
    removed = "--force-depends --force-remove-reinstreq --remove plugins"
    assert (tmp_path / "dpkg.calls").read_text().splitlines() == [removed, "--configure -a"]


@pytest.mark.parametrize(
    ("owner", "dpkg", "pgrep", "is_kept"),
    [
        ("# gpuaas", "exit 0", "exit 1", False),
        ("# by people", "exit 0", "exit 1", True),
        ("# gpuaas", "exit 2", "exit 1", True),
        ("# gpuaas", "exit 0", "echo 17", True),
    ],
)
def test_a_repair_removes_the_policy_that_an_interrupted_installation_left(
    tmp_path: Path, owner: str, dpkg: str, pgrep: str, is_kept: bool
) -> None:
    program(tmp_path / "pgrep", pgrep)
    policy = program(tmp_path / "policy-rc.d", f"{owner}\nexit 101")
    program(tmp_path / "dpkg", f"[ -e {policy} ] || exit 3; {dpkg}")
    run(apt.REPAIR.replace(apt.POLICY, str(policy)), programs=tmp_path)
    assert policy.exists() is is_kept


async def test_a_purge_takes_off_packages_that_dpkg_cannot_configure() -> None:
    def answer(argv: tuple[str, ...]) -> Ran:
        if argv[0] == "bash":
            return Ran(1, "", "kv-server depends on kv-tools; however: not installed")
        return Ran(0, "kv-server unpacked\n" if argv[0] == "dpkg-query" else "", "")

    host = FakeHost("gpu-2", answer)
    assert await apt.purge(Machine(host), ("kv-server",)) == ()
    assert host.ran[-1][-2:] == ("purge", "kv-server")


async def test_a_purge_repairs_dpkg_before_it_reads_what_is_installed() -> None:
    host = FakeHost("gpu-2")
    await apt.purge(Machine(host), ("kv-server",))
    assert [host.commands[0].input, host.ran[1][0]] == [shell.grouped(apt.REPAIR).encode(), "dpkg-query"]


async def test_a_purge_waits_while_another_installation_runs() -> None:
    host = FakeHost("gpu-2", lambda argv: Ran(apt.LOCKED_STATUS, "", "locked by process 17"))
    with pytest.raises(Temporary, match="another installation of packages runs on gpu-2: locked by process 17"):
        await apt.purge(Machine(host), ("kv-server",))


@pytest.mark.parametrize(("needed", "purged"), [("libkv", ("kv-server",)), ("kv-server", ())])
async def test_packages_that_other_software_needs_are_kept_and_the_daemons_go_if_they_can(
    needed: str, purged: tuple[str, ...]
) -> None:
    def answer(argv: tuple[str, ...]) -> Ran:
        if argv[0] == "dpkg-query":
            return Ran(0, "kv-server installed\nlibkv installed\n", "")
        words = [*argv, "their-portal"] if needed in argv else list(argv)
        return Ran(0, "".join(f"Purg {word} [1.0]\n" for word in words if "-s" in argv and word[0] in "klt"), "")

    host = FakeHost("gpu-2", answer)
    kept = await apt.purge(Machine(host), ("kv-server", "libkv"), ("kv-server", "kv-tools"))
    assert kept == tuple(name for name in ("kv-server", "libkv") if name not in purged)
    assert [argv[-1:] for argv in host.ran if "purge" in argv and "-s" not in argv] == ([purged] if purged else [])


async def test_packages_that_cannot_be_listed_are_not_taken_for_none() -> None:
    """Otherwise they would stay on the machine forever: the removal deletes the receipt."""

    def answer(argv: tuple[str, ...]) -> Ran:
        return Ran(2, "", "parsing file status") if argv[0] == "dpkg-query" else Ran(0, "", "")

    host = FakeHost("gpu-2", answer)
    with pytest.raises(Temporary, match="cannot read which packages gpu-2 has: parsing file status"):
        await apt.purge(Machine(host), ("kv-server",))
    with pytest.raises(Temporary, match="cannot read which packages gpu-2 has: parsing file status"):
        await packages.software_versions(Machine(host), KV)


def test_other_packages_that_a_purge_would_remove_are_returned() -> None:
    text = "Purg kv-server [24.11]\nPurg libkv [5.0]\nRemv their-portal [5.0]\n"
    assert apt.foreign_removals(text, ("kv-server", "libkv")) == ("their-portal",)
