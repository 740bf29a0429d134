"""The complete set of people's keys on a machine: what sshd reads, and which sessions end."""

import os
import stat
from pathlib import Path

import pytest
from gpuaas_agent import errors, handlers, parameters
from gpuaas_agent.handlers import authorized_keys
from gpuaas_agent.host.ssh import keys, paths

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g ada"
OTHER = KEY.replace("AAAAIAEC", "AAAAIAED").replace("ada", "bea")


@pytest.fixture(autouse=True)
def keys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "KEYS", tmp_path)
    return tmp_path


def test_the_file_holds_exactly_the_set_and_only_root_changes_it(keys_folder: Path) -> None:
    keys.put("alice", [KEY, OTHER])
    keys.put("alice", [OTHER])
    file = keys_folder / "alice"
    assert file.read_text() == OTHER + "\n"
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o644, os.getuid())


def test_an_empty_set_leaves_no_file(keys_folder: Path) -> None:
    keys.put("alice", [KEY])
    keys.put("alice", [])
    keys.put("alice", [])
    assert list(keys_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("opener", "ends"),
    [
        ("alice/" + KEY.split()[1], False),
        ("alice/" + OTHER.split()[1], True),
        ("bob/" + OTHER.split()[1], False),
        ("4711", False),
    ],
    ids=["a key of the set", "a removed key", "another user's", "a certificate's serial"],
)
def test_sessions_end_with_the_key_that_opened_them(opener: str, ends: bool) -> None:
    assert keys.is_removed(opener, "alice", [KEY]) == ends


def mismatch(public_keys: object) -> str | None:
    params = {"allocation_id": "alloc_1", "user": "gpu-1", "public_keys": public_keys}
    return parameters.mismatch(handlers.HANDLERS["allocation.install_authorized_keys"].params, params)


@pytest.mark.parametrize("public_keys", [[], [KEY, OTHER]], ids=["empty", "two keys"])
def test_a_set_of_public_keys_is_accepted(public_keys: list[str]) -> None:
    assert mismatch(public_keys) is None


@pytest.mark.parametrize(
    "public_keys",
    [[f'command="x" {KEY}'], [KEY + "\nssh-rsa x"], KEY, [7]],
    ids=["options", "two lines", "no list", "a number"],
)
def test_anything_but_a_set_of_public_keys_is_refused(public_keys: object) -> None:
    assert mismatch(public_keys) is not None


def test_keys_for_an_allocation_that_is_not_here_are_refused() -> None:
    params = {"allocation_id": "alloc_none", "user": "gpu-none", "public_keys": [KEY]}
    with pytest.raises(errors.TaskFailed, match="not on this node"):
        authorized_keys.install(params)
