"""Sessions are found by what sshd's program noted of them, and end with everything that runs in them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_agent import handlers
from gpuaas_agent.handlers import revocation, sessions, spec, ssh_files, ssh_keys

SERVING = (
    "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True); print(flush=True); input()"
)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ssh_files, "SESSIONS", tmp_path / "sessions")
    (tmp_path / "sessions").mkdir()
    return tmp_path / "sessions"


@pytest.fixture
def serving() -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves somebody: it has a child in a process session of its own."""
    with subprocess.Popen([sys.executable, "-c", SERVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def _note(notes: Path, pid: int, opener: str, started: str = "") -> None:
    (notes / str(pid)).write_text(f"{opener} {started or sessions.start_of(pid)}\n")


def test_a_revoked_session_ends_with_all_that_runs_in_it(notes: Path, serving: "subprocess.Popen[bytes]") -> None:
    _note(notes, serving.pid, "7")
    below = sessions.tree(sessions._parents(), serving.pid) - {serving.pid}
    assert len(below) == 1
    assert sessions.end({"7", "8"}.__contains__) == 1
    assert serving.wait(60) == -9
    assert all(sessions._is_dead(pid) for pid in below)
    assert list(notes.iterdir()) == []


def test_sessions_of_other_serials_go_on(notes: Path, serving: "subprocess.Popen[bytes]") -> None:
    _note(notes, serving.pid, "7")
    assert sessions.end({"8"}.__contains__) == 0
    assert serving.poll() is None
    assert sessions.noted() == {serving.pid: "7"}


def test_a_process_that_got_the_number_of_a_session_is_left_alone(
    notes: Path, serving: "subprocess.Popen[bytes]"
) -> None:
    _note(notes, serving.pid, "7", started="1")
    assert sessions.end({"7"}.__contains__) == 0
    assert serving.poll() is None
    assert list(notes.iterdir()) == []


def _installed(text: str, folder: Path, notes: Path) -> list[str]:
    """A program that sshd runs, over folders of the test."""
    path = folder / "program"
    path.write_text(text.replace(str(ssh_files.TRUST), str(folder)).replace("/run/gpuaas/ssh-sessions", str(notes)))
    path.chmod(0o755)
    return [str(path)]


@pytest.fixture
def program(tmp_path: Path, notes: Path) -> list[str]:
    (tmp_path / "principals").mkdir()
    (tmp_path / "principals" / "alice").write_text("alloc_1\n")
    (tmp_path / "revoked_serials").write_text("71\n8\n")
    return _installed(revocation.PROGRAM_TEXT, tmp_path, notes)


def _asked(program: list[str], user: str, serial: str) -> str:
    return subprocess.run([*program, user, serial], capture_output=True, text=True, check=False).stdout


def test_the_program_notes_who_serves_whom_and_answers_the_principal(program: list[str], notes: Path) -> None:
    assert _asked(program, "alice", "7") == "alloc_1\n"
    assert sessions.noted() == {os.getpid(): "7"}


@pytest.mark.parametrize(("user", "serial"), [("alice", "8"), ("alice", "71"), ("root", "7")])
def test_the_program_answers_nothing_for_a_revoked_serial_or_another_user(
    program: list[str], user: str, serial: str
) -> None:
    assert _asked(program, user, serial) == ""


def test_the_program_answers_nothing_when_it_cannot_know_what_is_revoked(program: list[str], tmp_path: Path) -> None:
    (tmp_path / "revoked_serials").unlink()
    assert _asked(program, "alice", "7") == ""


def test_the_program_for_keys_notes_which_key_came_and_answers_those_that_may(tmp_path: Path, notes: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "alice").write_text("ssh-ed25519 AAAA ada\n")
    program = _installed(ssh_keys.PROGRAM_TEXT, tmp_path, notes)
    assert _asked(program, "alice", "BB/B+b==") == "ssh-ed25519 AAAA ada\n"
    assert sessions.noted() == {os.getpid(): "alice/BB/B+b=="}
    assert _asked(program, "bob", "AAAA") == ""


@pytest.mark.parametrize("serials", [None, "7", [0], [-1], [2**64], [True], ["7"], [1.5]])
def test_serials_of_another_form_are_refused(serials: object) -> None:
    params = {"user_ca_public_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"], "revoked_serials": serials}
    assert spec.mismatch(handlers.HANDLERS["ssh.trust"].params, params) is not None
    assert spec.serials([]) is True
    assert spec.serials([1, 2**64 - 1]) is True
