"""A removal: the order of its parts, what an app adds to it, and what it states afterwards."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import Undo, acts, receipts, removals, undo, uninstall
from gpuaas_sdk.installs.acts import Acts
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeHost
from kv_footprint import KV, receipt_of
from local_shell import printed, program, run

ENDING_SLOWLY = 'echo "$@" >>"$0.calls"; [ "$(wc -l <"$0.calls")" -lt 15 ]'
"""pkill finds the process fourteen times."""
USERDEL = '[ "$(wc -l <"${0%/*}/pkill.calls")" = 15 ] && touch "$0.done"'
LAST = Undo(stop_units=("kv",), packages=("kv-server",), paths=("/etc/kv", "/etc/kv/kv.conf"), last=True)
SCRIPTS = {
    uninstall.STOP: "stop",
    uninstall.END_PROCESSES: "end processes",
    uninstall.REMOVE_USERS: "remove users",
    uninstall.REMOVE_PATHS: "remove paths",
    uninstall.DELETE_RECEIPT: "delete the receipt",
}


async def _silent(message: str) -> None:
    pass


class _Recorded(Acts):
    """Acts that note when they run, and what was on the machine then."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def before_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        self.log.append("before stop")

    async def after_stop(self, machine: Machine, plan: Undo, role: str) -> None:
        self.log.append("after stop")

    async def before_users(self, machine: Machine, plan: Undo) -> None:
        self.log.append("before users")

    async def before_paths(self, machine: Machine, plan: Undo) -> None:
        self.log.append("before paths")

    async def after_role(self, machine: Machine, staying: Sequence[str]) -> None:
        self.log.append(f"after role, {', '.join(staying)} stays")

    def removed(self, plan: Undo, role: str) -> Iterable[tuple[str, Sequence[str]]]:
        return [("databases", ("accounts",))]

    def left(self, plan: Undo, present: set[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        return [("snapshots", "they are on a shared folder")]


def _host(log: list[str]) -> FakeHost:
    def scripts(text: str) -> Ran | None:
        log.extend(name for script, name in SCRIPTS.items() if script in text)
        return None

    return FakeHost("gpu-1", scripts=scripts)


async def test_the_acts_of_the_app_run_at_their_moments_and_the_receipt_is_deleted_last() -> None:
    log: list[str] = []
    host = _host(log)
    await receipts.write(Machine(host), KV, receipt_of("server"))
    await uninstall.remove_role(Machine(host), KV, "inst_1", "server", _silent, acts=_Recorded(log))
    moments = ["before stop", "stop", "after stop", "end processes", "before users", "remove users"]
    assert log == [*moments, "before paths", "remove paths", "delete the receipt"]


async def test_while_another_role_stays_the_receipt_stays_without_the_role() -> None:
    log: list[str] = []
    machine = Machine(_host(log))
    await receipts.write(machine, KV, receipt_of("server", "proxy"))
    await uninstall.remove_role(machine, KV, "inst_1", "proxy", _silent, acts=_Recorded(log))
    receipt = await receipts.read(machine, KV, "inst_1")
    assert receipt is not None
    assert receipt.roles == ["server"]
    assert log[-1] == "after role, server stays"
    assert "delete the receipt" not in log


async def test_a_role_that_no_member_has_any_more_does_not_keep_the_app_on_the_machine() -> None:
    log: list[str] = []
    machine = Machine(_host(log))
    await receipts.write(machine, KV, receipt_of("server", "proxy"))

    async def no_roles() -> frozenset[str]:
        return frozenset()

    await uninstall.remove_role(machine, KV, "inst_1", "proxy", _silent, acts=_Recorded(log), roles_beside=no_roles)
    assert log[-1] == "delete the receipt"


async def test_a_role_of_another_member_stays() -> None:
    log: list[str] = []
    machine = Machine(_host(log))
    await receipts.write(machine, KV, receipt_of("server", "proxy"))

    async def server() -> frozenset[str]:
        return frozenset({"server"})

    await uninstall.remove_role(machine, KV, "inst_1", "proxy", _silent, acts=_Recorded(log), roles_beside=server)
    assert "after role, server stays" in log


async def test_a_role_that_is_not_on_the_machine_is_not_removed() -> None:
    host = _host([])
    await uninstall.remove_role(Machine(host), KV, "inst_1", "server", _silent)
    await receipts.write(Machine(host), KV, receipt_of("server"))
    await uninstall.remove_role(Machine(host), KV, "inst_1", "proxy", _silent)
    assert host.commands == []


async def test_the_statement_is_reported_before_the_receipt_is_deleted() -> None:
    log: list[str] = []
    machine = Machine(_host(log))
    await receipts.write(machine, KV, receipt_of("server"))

    async def report(removal: removals.Removal) -> None:
        log.append("reported")

    await uninstall.remove_role(machine, KV, "inst_1", "server", _silent, report=report)
    assert log[-2:] == ["reported", "delete the receipt"]


async def test_what_an_instance_has_left_is_removed_and_a_machine_that_is_used_is_refused() -> None:
    log: list[str] = []
    path = receipts.path_of(KV, "inst_1")
    host = FakeHost("gpu-1", lambda argv: Ran(0, f"{path}\n" if argv[0] == "find" else "", ""))
    machine = Machine(host)
    await receipts.write(machine, KV, receipt_of("server"))

    async def used(instance_id: str) -> bool:
        return True

    async def unused(instance_id: str) -> bool:
        return False

    with pytest.raises(Refused, match="gpu-1 already belongs to another KV instance: inst_1"):
        await uninstall.take_over(machine, KV, "inst_2", used, _silent)
    assert [argv[0] for argv in host.ran] == ["find"], "nothing was touched"
    await uninstall.take_over(machine, KV, "inst_2", unused, _silent, acts=_Recorded(log))
    assert log[0] == "before stop"


def test_what_is_still_there_after_the_removal_is_stated_as_left() -> None:
    present = {("path", "/etc/kv"), ("unit", "kv")}
    removal = removals.observed(KV, LAST, "server", present, (), acts.NONE)
    assert dict(removal.left) == {
        "unit kv": removals.NOT_REMOVED,
        "path /etc/kv": removals.NOT_REMOVED,
        removals.PACKAGE_RECORDS[0]: removals.PACKAGE_RECORDS[1],
    }
    assert removal.removed == (
        "packages (1): kv-server",
        "files and folders that do not exist now, as before (1): /etc/kv/kv.conf",
    )


def test_services_of_roles_that_the_machine_never_had_are_not_stated_as_removed() -> None:
    plan = undo.undo(KV, receipt_of("server"), "server")
    assert {"gpuaas-kv-health", "kv-proxy", "kv"} == set(plan.stop_units)
    removal = removals.observed(KV, plan, "server", set(), (), acts.NONE)
    assert removal.removed[0] == "services that do not run now (2): gpuaas-kv-health, kv"


def test_a_service_of_another_role_that_still_runs_is_stated_as_left() -> None:
    plan = undo.undo(KV, receipt_of("server"), "server")
    removal = removals.observed(KV, plan, "server", {("unit", "kv-proxy")}, (), acts.NONE)
    assert dict(removal.left)["unit kv-proxy"] == removals.NOT_REMOVED


def test_what_the_app_itself_removed_and_left_is_in_the_statement() -> None:
    removal = removals.observed(KV, LAST, "server", set(), (), _Recorded([]))
    assert "databases (1): accounts" in removal.removed
    assert ("snapshots", "they are on a shared folder") in removal.left


def test_packages_from_before_the_app_and_those_that_others_need_are_stated_as_left() -> None:
    plan = Undo(stop_units=("kv",), last=True)
    before = removals.observed(KV, plan, "server", {("package", "kv-tools")}, (), acts.NONE)
    assert dict(before.left) == {"packages (1): kv-tools": "they were installed before the app"}
    kept = removals.observed(KV, LAST, "server", {("package", "kv-server")}, ("kv-server",), acts.NONE)
    assert dict(kept.left)["packages (1): kv-server"] == "other software on the machine needs them"


def test_the_first_of_two_roles_to_leave_states_that_the_other_one_stays() -> None:
    plan = Undo(stop_units=("kv-proxy",), roles_staying=("server",))
    removal = removals.observed(KV, plan, "proxy", set(), (), acts.NONE)
    assert removal.removed == ("services that do not run now (1): kv-proxy",)
    assert "server" in dict(removal.left)["packages, users and files of KV"]


def test_a_machine_shows_only_what_is_really_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    asked = [
        *("path", f"{tmp_path}/full/file", "path", f"{tmp_path}/gone"),
        *("content", f"{tmp_path}/empty", "content", f"{tmp_path}/full"),
        *("user", "root", "user", "no-such-user", "group", "no-such-group", "package", "no-such-package"),
    ]
    shown = printed(removals.STILL_THERE, *asked)
    assert shown == [f"path {tmp_path}/full/file", f"content {tmp_path}/full", "user root"]


def test_a_user_is_removed_after_its_last_process_has_ended(tmp_path: Path) -> None:
    program(tmp_path / "getent", "echo ada:x:2001:2001::/nonexistent:/bin/bash")
    program(tmp_path / "pkill", ENDING_SLOWLY)
    program(tmp_path / "userdel", USERDEL)
    assert run(uninstall.REMOVE_USERS, "ada", programs=tmp_path) == 0
    assert (tmp_path / "userdel.done").exists()


def test_a_lock_of_the_user_tools_is_removed_if_its_process_has_ended(tmp_path: Path) -> None:
    (tmp_path / "useradd").symlink_to("/bin/sleep")
    ended = subprocess.Popen(["true"])
    ended.wait()
    with subprocess.Popen([tmp_path / "useradd", "60"]) as runs, subprocess.Popen(["sleep", "60"]) as other:
        for name in ("gshadow", "subuid"):
            for pid in (runs.pid, other.pid, ended.pid):
                (tmp_path / f"{name}.{pid}").touch()
        (tmp_path / "passwd.backup").touch()
        status = run(uninstall.REMOVE_LOCKS.replace("/etc/", f"{tmp_path}/"), programs=tmp_path)
        runs.kill()
        other.kill()
    kept = {f"gshadow.{runs.pid}", f"subuid.{runs.pid}", "passwd.backup", "useradd"}
    assert (status, {path.name for path in tmp_path.iterdir()}) == (0, kept)


def test_what_a_power_cut_left_of_a_new_content_is_removed_with_its_file(tmp_path: Path) -> None:
    of_the_file = (".gpuaas.kv.conf.0aB9zZ01", ".gpuaas.1625.kv.conf", ".gpuaas.0aB9zZ01.kv.conf")
    of_others = (".gpuaas.my.kv.conf.0aB9zZ01", ".gpuaas.kv.conf.d.0aB9zZ01", ".gpuaas.1625.my.kv.conf", "kv.conf.d")
    for name in ("kv.conf", *of_the_file, *of_others):
        (tmp_path / name).touch()
    assert run(uninstall.REMOVE_PATHS, f"{tmp_path}/kv.conf", programs=tmp_path) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(of_others)


def test_the_last_receipt_takes_the_folders_of_receipts_with_it_and_others_stay(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    program(programs / "systemctl", "exit 0")
    program(programs / "rmdir", 'case "$*" in *systemd*) exit 0 ;; esac; exec /bin/rmdir "$@"')  # not on this host
    apps = tmp_path / "apps"
    for app, name in (("kv", "inst_1"), ("kv", "inst_2"), ("other", "inst_3")):
        (apps / app).mkdir(parents=True, exist_ok=True)
        (apps / app / f"{name}.json").touch()

    def delete(receipt: str) -> list[str]:
        assert run(uninstall.DELETE_RECEIPT, f"{apps}/{receipt}", programs=programs) == 0
        return sorted(str(path.relative_to(apps)) for path in apps.rglob("*.json")) if apps.exists() else []

    assert delete("kv/inst_1.json") == ["kv/inst_2.json", "other/inst_3.json"]
    assert delete("kv/inst_2.json") == ["other/inst_3.json"]
    assert not (apps / "kv").exists()
    assert delete("other/inst_3.json") == []
    assert not apps.exists()
