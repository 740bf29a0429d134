"""The health reporter of a machine: what it reports about units, disks, files, the key and the package."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuaas_app_slurm.workload import observed, reporter_program

PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> "{folder}/calls"
cat "{folder}/$(basename "$0").out" 2>/dev/null
"""


class TheMachine:
    """A machine in a folder, with recorded answers of its commands."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("systemctl", "scontrol", "dpkg-query"):
            (folder / name).write_text(PROGRAM.format(folder=folder))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        monkeypatch.setattr(reporter_program, "REPORT", str(folder / "run" / "health.json"))
        monkeypatch.setattr(reporter_program, "FILES", str(folder / "files"))
        monkeypatch.setattr(reporter_program, "KEYS", (str(folder / "slurm.key"), str(folder / "munge.key")))
        monkeypatch.setattr(reporter_program, "DISKS", (str(folder), str(folder / "none")))
        monkeypatch.setattr(reporter_program, "PACKAGE", {})
        self.answer("dpkg-query", "24.11.5-4")
        self.unit("slurmd", ActiveState="active", SubState="running")
        (folder / "files").write_text("")

    def answer(self, program: str, text: str) -> None:
        (self.folder / f"{program}.out").write_text(text)

    def unit(self, name: str, **fields: object) -> None:
        lines = {"Id": f"{name}.service", "NRestarts": 0} | fields
        self.answer("systemctl", "".join(f"{key}={value}\n" for key, value in lines.items()))

    def calls(self, program: str) -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(f"{program} ")]

    def wrote(self, name: str, content: str) -> Path:
        """Write a file and list it as one that the app wrote."""
        path = self.folder / name
        path.write_text(content)
        digest = hashlib.sha256(content.encode()).hexdigest()
        with (self.folder / "files").open("a") as listed:
            listed.write(f"{digest}  {path}\n")
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TheMachine:
    return TheMachine(tmp_path, monkeypatch)


def collected() -> observed.Report:
    """Return the report as the app reads it."""
    report = reporter_program.collect(["slurmd"])
    read = observed.parse_direct(f"==report==\n{json.dumps(report)}\n==ping==\n==units==\n==end==\n").report
    assert read is not None
    return read


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"ActiveState": "active", "SubState": "running"}, ("active", 0)),
        ({"ActiveState": "failed", "SubState": "failed", "NRestarts": 2}, ("failed", 2)),
        ({"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": 4}, ("restarting", 4)),
        ({"ActiveState": "activating", "SubState": "start", "StateChangeTimestampMonotonic": 1}, ("stuck", 0)),
    ],
    ids=["running", "failed", "restarting", "stuck"],
)
def test_the_state_of_a_unit_is_what_a_person_would_call_it(
    machine: TheMachine, fields: dict[str, object], state: tuple[str, int]
) -> None:
    machine.unit("slurmd", **fields)
    assert collected().units == {"slurmd": state}


def test_a_unit_that_began_to_start_just_now_is_not_stuck(machine: TheMachine) -> None:
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    machine.unit("slurmd", ActiveState="activating", SubState="start", StateChangeTimestampMonotonic=now_us)
    assert collected().units == {"slurmd": ("activating", 0)}


@pytest.mark.parametrize(("free", "inodes_free", "shown"), [(50, 50, None), (4, 50, 4), (50, 1, 1)])
def test_a_disk_is_full_if_it_has_few_bytes_or_few_files_left(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch, free: int, inodes_free: int, shown: int | None
) -> None:
    real = os.statvfs(machine.folder)
    fields = [*real][:10]
    fields[2], fields[4] = 100, free  # blocks, available blocks
    fields[5], fields[7] = 100, inodes_free  # files, available files
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    assert collected().full == ({} if shown is None else {str(machine.folder): shown})


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "that of /"])
def test_a_full_file_system_of_the_database_is_named_if_it_is_its_own(
    monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    free = {"/var/lib/mysql": 1, "/": 50 if is_own else 1}

    def stat(path: str) -> SimpleNamespace:
        return SimpleNamespace(st_dev=int(is_own and path == "/var/lib/mysql"))

    def statvfs(path: str) -> SimpleNamespace:
        return SimpleNamespace(f_blocks=100, f_files=0, f_bavail=free.get(path, 50))

    monkeypatch.setattr(reporter_program, "os", SimpleNamespace(stat=stat, statvfs=statvfs))
    assert reporter_program.full_disks() == {"/var/lib/mysql" if is_own else "/": 1}


def test_a_file_that_was_edited_or_deleted_is_named(machine: TheMachine) -> None:
    machine.wrote("same.conf", "a\n")
    edited, deleted = machine.wrote("edited.conf", "a\n"), machine.wrote("deleted.conf", "a\n")
    edited.write_text("b\n")
    deleted.unlink()
    assert collected().drift == (str(edited), str(deleted))


def test_without_the_list_of_files_the_list_itself_is_named(machine: TheMachine) -> None:
    (machine.folder / "files").unlink()
    assert collected().drift == (str(machine.folder / "files"),)


def test_two_keys_have_different_digits_and_no_key_has_none(machine: TheMachine) -> None:
    assert collected().key == ""
    (machine.folder / "munge.key").write_bytes(b"one")
    first = collected().key
    (machine.folder / "munge.key").write_bytes(b"two")
    assert (len(first), collected().key != first) == (8, True)


def test_the_version_of_the_package_is_read_again_only_after_packages_changed(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_at = [1.0]
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        if path != "/var/lib/dpkg/status":
            return real(path, **options)
        fields = list(real("/"))
        fields[8] = changed_at[0]
        return os.stat_result(fields)

    monkeypatch.setattr(os, "stat", stat)
    assert [collected().package for _ in range(3)] == ["24.11.5-4"] * 3
    assert len(machine.calls("dpkg-query")) == 1
    machine.answer("dpkg-query", "25.05.1-1")
    changed_at[0] = 2.0
    assert collected().package == "25.05.1-1"


def test_a_report_is_written_for_local_users_and_stored_in_slurm_under_the_name_of_the_node(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run_once(monkeypatch, "gpu-2")
    written = json.loads((machine.folder / "run" / "health.json").read_text())
    assert written["units"] == {"slurmd": ["active", 0]}
    (stored,) = machine.calls("scontrol")
    assert stored.startswith("scontrol update nodename=gpu-2 extra={")
    assert json.loads(stored.split("extra=", 1)[1]) == written


def test_a_machine_without_slurmd_stores_nothing_in_slurm(machine: TheMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_once(monkeypatch, "")
    assert (machine.folder / "run" / "health.json").exists()
    assert machine.calls("scontrol") == []


def test_a_report_is_still_written_if_slurm_does_not_answer(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    _run_once(monkeypatch, "gpu-2")
    assert (machine.folder / "run" / "health.json").exists()


def test_a_report_that_cannot_be_written_is_logged_and_still_stored_in_slurm(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.folder / "run" / "health.json.new").mkdir(parents=True)
    _run_once(monkeypatch, "gpu-2")
    assert "cannot write" in capsys.readouterr().err
    assert len(machine.calls("scontrol")) == 1


def test_the_program_needs_the_standard_library_only() -> None:
    source = Path(reporter_program.__file__)
    imported = [line.split()[1] for line in source.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def _run_once(monkeypatch: pytest.MonkeyPatch, node_name: str) -> None:
    class Enough(Exception):
        pass

    def sleep(_: float) -> None:
        raise Enough

    monkeypatch.setattr(sys, "argv", ["health.py", node_name, "slurmd"])
    monkeypatch.setattr(reporter_program, "time", SimpleNamespace(**vars(time) | {"sleep": sleep}))
    with pytest.raises(Enough):
        reporter_program.main()


def test_the_programs_of_a_machine_are_those_that_the_app_wrote_not_an_edit_of_someone(
    machine: TheMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert collected().programs == ""
    monkeypatch.setattr(
        reporter_program, "PROGRAMS", (str(machine.folder / "health.py"), str(machine.folder / "check"))
    )
    machine.wrote("check", "check of this release")
    program = machine.wrote("health.py", "program of this release")
    first = collected().programs
    program.write_text("an edit")
    assert (collected().programs, len(collected().drift)) == (first, 1)
    (machine.folder / "files").write_text("")
    machine.wrote("check", "check of this release")
    machine.wrote("health.py", "program of the next release")
    assert len({"", first, collected().programs}) == 3
