"""Deleted folders disappear in one step, and a lock is held until the commands of a killed holder have ended."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpuaas_lab.state import Store

HOLDER = """
import sys
from pathlib import Path
from gpuaas_lab import shell
with shell.locked(Path(sys.argv[1]), "a test"):
    shell.run(["sh", "-c", 'echo > "$0"; read -r line < "$1"', *sys.argv[2:]])
"""


def test_a_deletion_also_removes_what_an_interrupted_one_left(tmp_path: Path) -> None:
    store = Store(tmp_path, "mine")
    left, wanted = tmp_path / "trash/mine/gpu-1/upper", store.machine_folder("gpu-2")
    for folder in (left, wanted):
        folder.mkdir(parents=True)
    store.delete(wanted)
    assert not left.exists()
    assert not wanted.exists()


def test_a_deletion_leaves_the_trash_of_other_labs_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "trash/theirs/gpu-1"
    theirs.mkdir(parents=True)
    Store(tmp_path, "mine").empty_trash()
    assert theirs.exists()


def test_a_lock_lasts_until_the_commands_of_a_killed_holder_have_ended(tmp_path: Path) -> None:
    lock, started, release = (tmp_path / name for name in ("lock", "started", "release"))
    for path in (started, release):
        os.mkfifo(path)
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock, started, release]) as holder:
        started.read_text()
        holder.kill()
    with lock.open() as descriptor:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        release.write_text("\n")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
