"""What a release removes and reports, as far as a folder can show it; tests on machines show the rest."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import commands, errors
from gpuaas_agent.handlers import allocation
from gpuaas_agent.host import accounts, units
from gpuaas_agent.host.ssh import paths

MINE = os.getuid()
ENDS_BY_ITSELF = """#!/bin/sh
if [ "$1" = show ]; then
  [ -e "$0.gone" ] || printf 'Id=mine.service\\nUser=alice\\n'
  touch "$0.gone"
else
  echo "Unit $2 not loaded." >&2
  exit 5
fi
"""
"""A systemctl that lists a unit once and no longer has it when it is to be stopped."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that replaces the node's file systems, with a home in it."""
    (tmp_path / "home/alice/.ssh").mkdir(parents=True)
    (tmp_path / "opt/tool").mkdir(parents=True)
    (tmp_path / "opt/tool/binary").write_text("x")
    monkeypatch.setattr(accounts, "FILE_SYSTEMS", (tmp_path / "opt", tmp_path / "absent"))
    monkeypatch.setattr(accounts, "home_of", lambda user: tmp_path / "home" / user)
    monkeypatch.setattr(accounts, "_personal_files", lambda _: [])
    return tmp_path


def nest(folder: Path, depth: int) -> None:
    """Make a folder in a folder in a folder…, deeper than the length of a path allows."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_files_anywhere_on_the_nodes_disk_are_removed(disk: Path) -> None:
    assert accounts.left_behind({"alice": MINE}, [disk / "home/alice"]) == [
        str(disk / "opt/tool"),
        str(disk / "opt/tool/binary"),
    ]
    assert sorted(accounts.remove_leftovers({"alice": MINE}, [disk / "home/alice"])) == [
        str(disk / "opt/tool"),
        str(disk / "opt/tool/binary"),
    ]
    assert accounts.left_behind({"alice": MINE}, [disk / "home/alice"]) == []


@pytest.fixture
def disk_for_deep_folders(disk: Path) -> Iterator[Path]:
    """The disk, emptied at the end: pytest could not remove what a test that fails leaves."""
    yield disk
    commands.run(["rm", "-rf", str(disk / "opt"), str(disk / "home")])


def test_folders_that_are_nested_deeper_than_python_recurses_are_removed(disk_for_deep_folders: Path) -> None:
    disk = disk_for_deep_folders
    depth = sys.getrecursionlimit() + 200
    nest(disk / "opt/tool", depth)
    removed = accounts.remove_leftovers({"alice": MINE}, [])
    assert (len(removed), os.listdir(disk / "opt")) == (depth + 2, [])
    assert max(len(path) for path in removed) < 2 * accounts.PATH_SHOWN_MAX
    nest(disk / "home/alice", depth)
    accounts.remove_tree(disk / "home/alice")
    assert os.listdir(disk / "home") == []


def test_a_folder_that_is_moved_away_during_the_scan_ends_it_with_an_error(disk: Path) -> None:
    (disk / "opt/tool/folder").mkdir()
    (disk / "opt/tool/folder/file").write_text("x")
    scan = accounts._owned(disk / "opt", {MINE})
    entry = next(entry for entry in scan if entry.name == "file")
    (disk / "opt/tool/folder").rename(disk / "moved")
    with pytest.raises(errors.TaskFailed, match=r"moved out of .*opt/tool"):
        list(scan)
    assert entry.shown == str(disk / "opt/tool/folder/file")


def test_files_of_other_users_stay_and_are_not_reported(disk: Path) -> None:
    assert accounts.remove_leftovers({"alice": MINE + 1}, [disk / "home/alice"]) == []
    assert accounts.left_behind({"alice": MINE + 1}, [disk / "home/alice"]) == []
    assert (disk / "opt/tool/binary").exists()


def test_the_home_is_not_reported_file_by_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "FILE_SYSTEMS", (disk / "home",))
    (disk / "home/alice/notes").write_text("x")
    assert accounts.remove_leftovers({"alice": MINE}, [disk / "home/alice"]) == []
    assert (disk / "home/alice/notes").exists()


def test_a_folder_that_cannot_be_emptied_is_left_behind(disk: Path) -> None:
    if MINE != 0:
        pytest.skip("only root can put a file of another user into a folder")
    os.chown(disk / "opt/tool", 4711, 4711)
    assert accounts.remove_leftovers({"alice": 4711}, [disk / "home/alice"]) == []
    assert accounts.left_behind({"alice": 4711}, [disk / "home/alice"]) == [str(disk / "opt/tool")]


def test_a_folder_that_becomes_a_file_during_the_scan_is_reported_by_the_next_scan(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def become_a_file(path: str, *more: Any, **named: Any) -> int:
        if path == "tool":
            (disk / "opt/tool").rename(disk / "moved")
            (disk / "opt/tool").write_text("x")
        return real_open(path, *more, **named)

    with monkeypatch.context() as changing:
        changing.setattr(os, "open", become_a_file)
        assert accounts.remove_leftovers({"alice": MINE}, [disk / "home/alice"]) == []
    assert accounts.left_behind({"alice": MINE}, [disk / "home/alice"]) == [str(disk / "opt/tool")]


def test_another_file_system_is_not_scanned(disk: Path) -> None:
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == disk.stat().st_dev:
        pytest.skip("this host has one file system only")
    (disk / "opt/elsewhere").symlink_to("/dev/shm")
    assert str(disk / "opt/elsewhere") in accounts.left_behind({"alice": MINE}, [disk / "home/alice"])
    assert not any(path.startswith("/dev/shm") for path in accounts.left_behind({"alice": MINE}, [disk / "home/alice"]))


def test_removed_paths_are_reported_by_kind() -> None:
    principal, authority = str(paths.PRINCIPALS / "alice"), str(paths.USER_CA)
    keys = [authority, str(paths.KEYS / "alice"), "/home/alice/.ssh/authorized_keys"]
    reported = allocation.by_kind([principal, *keys, "/etc/sudoers.d/x"])
    assert reported == {
        "principals": [principal],
        "keys": keys,
        "files": ["/etc/sudoers.d/x"],
    }
    assert len(allocation.by_kind([f"/tmp/{number}" for number in range(500)])["files"]) == 100


def test_the_units_of_a_user_are_read_from_systemctl_show() -> None:
    shown = (
        "User=\nId=ssh.service\n\nUser=alice\nId=b.service\n\nUser=alice2\nId=c.service\n\nId=a.service\nUser=alice\n"
    )
    assert units.of_user(shown, "alice") == ["a.service", "b.service"]


def test_a_unit_that_ends_by_itself_before_it_is_stopped_does_not_fail_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(ENDS_BY_ITSELF)
    program.chmod(0o755)
    path = f"{tmp_path}:{commands.ENVIRONMENT['PATH']}"
    monkeypatch.setattr(commands, "ENVIRONMENT", {**commands.ENVIRONMENT, "PATH": path})
    assert units.stop_all("alice") == ["mine.service"]
    assert units.loaded("alice") == []
