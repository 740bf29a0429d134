"""The complete set of people's keys on a machine: what sshd is told, and whose sessions end."""

import os
import stat
from pathlib import Path

import pytest
from gpuaas_agent import handlers
from gpuaas_agent.handlers import authorized_keys, spec, ssh_files, ssh_keys

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ada"
OTHER = KEY.replace("AAAAIAEC", "AAAAIAED").replace("ada", "bea")


@pytest.fixture(autouse=True)
def keys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ssh_files, "KEYS", tmp_path)
    return tmp_path


def test_the_file_holds_exactly_the_set_and_only_root_changes_it(keys_folder: Path) -> None:
    ssh_keys.put("alice", [KEY, OTHER])
    ssh_keys.put("alice", [OTHER])
    file = keys_folder / "alice"
    assert file.read_text() == OTHER + "\n"
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o644, os.getuid())


def test_an_empty_set_leaves_no_file(keys_folder: Path) -> None:
    ssh_keys.put("alice", [KEY])
    ssh_keys.put("alice", [])
    ssh_keys.put("alice", [])
    assert list(keys_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("opener", "ends"),
    [
        ("alice/" + KEY.split()[1], False),
        ("alice/" + OTHER.split()[1], True),
        ("bob/" + OTHER.split()[1], False),
        ("4711", False),
    ],
    ids=["a key of the set", "a key that went", "another user's", "a certificate's serial"],
)
def test_sessions_end_with_the_key_that_opened_them(opener: str, ends: bool) -> None:
    assert ssh_keys.is_over(opener, "alice", [KEY]) == ends


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
