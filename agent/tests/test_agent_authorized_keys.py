"""The complete set of people's keys on a machine: written whole, into the user's home, through no link."""

import os
import stat
from pathlib import Path

import pytest
from gpuaas_agent import handlers
from gpuaas_agent.handlers import authorized_keys, spec

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ada"
OTHER = KEY.replace("ada", "bea")


def put(home: Path, *keys: str) -> None:
    authorized_keys.put(home, os.getuid(), os.getgid(), list(keys))


def test_the_file_holds_exactly_the_set_and_sshd_will_read_it(tmp_path: Path) -> None:
    put(tmp_path, KEY, OTHER)
    put(tmp_path, OTHER)
    file = tmp_path / ".ssh/authorized_keys"
    assert file.read_text().splitlines()[1:] == [OTHER]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / ".ssh").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / ".ssh").iterdir()] == ["authorized_keys"]


def test_an_empty_set_leaves_no_file(tmp_path: Path) -> None:
    put(tmp_path, KEY)
    put(tmp_path)
    put(tmp_path)
    assert list((tmp_path / ".ssh").iterdir()) == []


def test_a_draft_of_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/.authorized_keys.new").write_text("half")
    put(tmp_path, KEY)
    assert KEY in (tmp_path / ".ssh/authorized_keys").read_text()


def test_no_link_leads_out_of_the_home(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / ".ssh").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"directory|links"):
        put(home, KEY)
    assert list(elsewhere.iterdir()) == []
    (home / ".ssh").unlink()
    (home / ".ssh").mkdir()
    (home / ".ssh/authorized_keys").symlink_to(elsewhere / "victim")
    put(home, KEY)
    assert list(elsewhere.iterdir()) == []


def test_a_set_has_public_keys_only_and_may_be_empty() -> None:
    expected = handlers.HANDLERS["allocation.install_authorized_keys"].params
    given = {"allocation_id": "alloc_1", "user": "gpu-1"}
    assert spec.mismatch(expected, {**given, "public_keys": []}) is None
    assert spec.mismatch(expected, {**given, "public_keys": [KEY, OTHER]}) is None
    for wrong in ([f'command="x" {KEY}'], [KEY + "\nssh-rsa x"], KEY, [7]):
        assert spec.mismatch(expected, {**given, "public_keys": wrong}) is not None


def test_keys_for_an_allocation_that_is_not_here_are_refused() -> None:
    params = {"allocation_id": "alloc_none", "user": "gpu-none", "public_keys": [KEY]}
    with pytest.raises(spec.HandlerError, match="not on this node"):
        authorized_keys.install(params)
