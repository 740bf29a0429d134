"""What a release takes away and what it says of it, as far as a folder can show it; machines show the rest."""

import os
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import commands
from gpuaas_agent.handlers import accounts, allocation, ssh_files, units

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
"""A systemctl that shows a unit once, and knows nothing of it when it is to be stopped."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for all the node's file systems, and a home in it."""
    (tmp_path / "home/alice/.ssh").mkdir(parents=True)
    (tmp_path / "opt/tool").mkdir(parents=True)
    (tmp_path / "opt/tool/binary").write_text("x")
    monkeypatch.setattr(accounts, "FILE_SYSTEMS", (tmp_path / "opt", tmp_path / "absent"))
    monkeypatch.setattr(accounts, "home_of", lambda user: tmp_path / "home" / user)
    monkeypatch.setattr(accounts, "_personal_files", lambda _: [])
    return tmp_path


def test_files_anywhere_on_the_nodes_disk_go_and_looking_again_finds_none(disk: Path) -> None:
    assert accounts.left_behind("alice", MINE) == [str(disk / "opt/tool"), str(disk / "opt/tool/binary")]
    assert sorted(accounts.remove_leftovers("alice", MINE)) == [str(disk / "opt/tool"), str(disk / "opt/tool/binary")]
    assert accounts.left_behind("alice", MINE) == []


def test_what_others_own_stays_and_is_nobodys_leftover(disk: Path) -> None:
    assert accounts.remove_leftovers("alice", MINE + 1) == []
    assert accounts.left_behind("alice", MINE + 1) == []
    assert (disk / "opt/tool/binary").exists()


def test_the_home_is_not_told_file_by_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "FILE_SYSTEMS", (disk / "home",))
    (disk / "home/alice/notes").write_text("x")
    assert accounts.remove_leftovers("alice", MINE) == []
    assert (disk / "home/alice/notes").exists()


def test_a_folder_that_cannot_be_emptied_is_left_behind(disk: Path) -> None:
    if MINE != 0:
        pytest.skip("only root can put a file of another user into a folder")
    os.chown(disk / "opt/tool", 4711, 4711)
    assert accounts.remove_leftovers("alice", 4711) == []
    assert accounts.left_behind("alice", 4711) == [str(disk / "opt/tool")]


def test_a_folder_that_becomes_a_file_as_it_is_looked_into_is_found_the_next_time(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def become_a_file(path: str, *more: Any, **named: Any) -> int:
        if path == "tool":
            (disk / "opt/tool").rename(disk / "moved")
            (disk / "opt/tool").write_text("x")
        return opened(path, *more, **named)

    with monkeypatch.context() as changing:
        changing.setattr(os, "open", become_a_file)
        assert accounts.remove_leftovers("alice", MINE) == []
    assert accounts.left_behind("alice", MINE) == [str(disk / "opt/tool")]


def test_another_file_system_is_left_alone(disk: Path) -> None:
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == disk.stat().st_dev:
        pytest.skip("this host has one file system only")
    (disk / "opt/elsewhere").symlink_to("/dev/shm")
    assert str(disk / "opt/elsewhere") in accounts.left_behind("alice", MINE)
    assert not any(path.startswith("/dev/shm") for path in accounts.left_behind("alice", MINE))


def test_what_went_is_told_by_what_it_was() -> None:
    principal, authority = str(ssh_files.PRINCIPALS / "alice"), str(ssh_files.USER_CA)
    keys = [authority, str(ssh_files.KEYS / "alice"), "/home/alice/.ssh/authorized_keys"]
    told = allocation.sorted_out([principal, *keys, "/etc/sudoers.d/x"])
    assert told == {
        "principals": [principal],
        "keys": keys,
        "files": ["/etc/sudoers.d/x"],
    }
    assert len(allocation.sorted_out([f"/tmp/{number}" for number in range(500)])["files"]) == 100


def test_the_units_that_run_as_a_user_are_found_by_what_systemd_says() -> None:
    shown = (
        "User=\nId=ssh.service\n\nUser=alice\nId=b.service\n\nUser=alice2\nId=c.service\n\nId=a.service\nUser=alice\n"
    )
    assert units.of_user(shown, "alice") == ["a.service", "b.service"]


def test_a_unit_that_ends_by_itself_before_it_is_stopped_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(ENDS_BY_ITSELF)
    program.chmod(0o755)
    path = f"{tmp_path}:{commands.ENVIRONMENT['PATH']}"
    monkeypatch.setattr(commands, "ENVIRONMENT", {**commands.ENVIRONMENT, "PATH": path})
    assert units.stop_all("alice") == ["mine.service"]
    assert units.loaded("alice") == []
