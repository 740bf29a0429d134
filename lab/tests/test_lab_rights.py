"""Users who are not root go through sudo, and other users cannot read images and disks."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from gpuaas_lab import errors, host, image, plan
from gpuaas_lab.state import Store

AS_USER = "import os; os.geteuid = lambda: 1000; from gpuaas_lab import main; main.main()"
SUDO = '#!/bin/sh\n[ "$2" = true ] || printf "%s\\n" "$*"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the search path."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_sudo_passes_only_the_settings_of_the_lab() -> None:
    environment = {"GPUAAS_LAB": "mine", "GPUAAS_LAB_STATE": "/srv/lab", "PYTHONPATH": "/tmp/evil"}
    command = plan.as_root("/venv/bin/python", ["exec", "gpu-1", "--", "id"], environment)
    assert command[:5] == ["sudo", "-n", "env", "GPUAAS_LAB=mine", "GPUAAS_LAB_STATE=/srv/lab"]
    assert command[5:] == ["/venv/bin/python", "-I", "-B", "-m", "gpuaas_lab.main", "exec", "gpu-1", "--", "id"]


def test_a_user_with_sudo_runs_the_same_command_again_as_root(programs: Path) -> None:
    _program(programs / "sudo", SUDO)
    result = subprocess.run(
        [sys.executable, "-c", AS_USER, "kill", "gpu-1"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"-n env {sys.executable} -I -B -m gpuaas_lab.main kill gpu-1\n"


@pytest.mark.parametrize("sudo", ["", "#!/bin/sh\nexit 1\n"], ids=["missing", "asks for a password"])
def test_without_sudo_the_error_names_the_next_step(programs: Path, monkeypatch: pytest.MonkeyPatch, sudo: str) -> None:
    if sudo:
        _program(programs / "sudo", sudo)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(errors.HostNotUsable) as refused:
        host.require_root()
    assert refused.value.next_step == "run sudo -v, then repeat the command"


def test_images_are_closed_to_other_users_even_those_of_an_older_lab(tmp_path: Path) -> None:
    image.path(tmp_path, image.key()).mkdir(parents=True)
    image.ensure(tmp_path)
    assert _mode(tmp_path / "images") == 0o700


def test_a_disk_that_is_being_deleted_is_closed_to_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "remove_tree", lambda folder: None)
    store = Store(tmp_path, "mine")
    store.machine_folder("gpu-1").mkdir(parents=True)
    store.delete(store.machine_folder("gpu-1"))
    assert _mode(tmp_path / "trash" / "mine") == 0o700


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_image_with_the_toolchain_is_another_one() -> None:
    assert image.key(toolchain=True) != image.key()
