"""sshd's programs record what opened a session; ending a session ends everything that runs in it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_agent import handlers, parameters
from gpuaas_agent.handlers import ssh_trust
from gpuaas_agent.host.ssh import certificates, keys, paths, sessions

SERVING = (
    "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True); print(flush=True); input()"
)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "SESSIONS", tmp_path / "sessions")
    (tmp_path / "sessions").mkdir()
    return tmp_path / "sessions"


@pytest.fixture
def serving() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the role of sshd: it has a child in its own process session."""
    with subprocess.Popen([sys.executable, "-c", SERVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def _record(records: Path, pid: int, opener: str, started: str = "") -> None:
    (records / str(pid)).write_text(f"{opener} {started or sessions.start_of(pid)}\n")


def test_a_revoked_session_ends_with_all_that_runs_in_it(records: Path, serving: "subprocess.Popen[bytes]") -> None:
    _record(records, serving.pid, "7")
    below = sessions.tree(sessions._parents(), serving.pid) - {serving.pid}
    assert len(below) == 1
    assert sessions.end({"7", "8"}.__contains__) == 1
    assert serving.wait(60) == -9
    assert all(sessions._is_dead(pid) for pid in below)
    assert list(records.iterdir()) == []


def test_sessions_of_other_serials_continue(records: Path, serving: "subprocess.Popen[bytes]") -> None:
    _record(records, serving.pid, "7")
    assert sessions.end({"8"}.__contains__) == 0
    assert serving.poll() is None
    assert sessions.recorded() == {serving.pid: "7"}


def test_a_process_that_reuses_the_pid_of_a_session_is_not_ended(
    records: Path, serving: "subprocess.Popen[bytes]"
) -> None:
    _record(records, serving.pid, "7", started="1")
    assert sessions.end({"7"}.__contains__) == 0
    assert serving.poll() is None
    assert list(records.iterdir()) == []


def _installed(text: str, folder: Path, records: Path) -> list[str]:
    """Return a program that sshd runs, changed to use the test's folders."""
    path = folder / "program"
    path.write_text(text.replace(str(paths.TRUST), str(folder)).replace("/run/gpuaas/ssh-sessions", str(records)))
    path.chmod(0o755)
    return [str(path)]


@pytest.fixture
def program(tmp_path: Path, records: Path) -> list[str]:
    (tmp_path / "principals").mkdir()
    (tmp_path / "principals" / "alice").write_text("alloc_1\n")
    (tmp_path / "revoked_serials").write_text("71\n8\n")
    return _installed(certificates.PROGRAM_TEXT, tmp_path, records)


def _output(program: list[str], user: str, serial: str) -> str:
    return subprocess.run([*program, user, serial], capture_output=True, text=True, check=False).stdout


def test_the_program_records_the_session_and_prints_the_principal(program: list[str], records: Path) -> None:
    assert _output(program, "alice", "7") == "alloc_1\n"
    assert sessions.recorded() == {os.getpid(): "7"}


@pytest.mark.parametrize(("user", "serial"), [("alice", "8"), ("alice", "71"), ("root", "7")])
def test_the_program_prints_nothing_for_a_revoked_serial_or_another_user(
    program: list[str], user: str, serial: str
) -> None:
    assert _output(program, user, serial) == ""


def test_the_program_prints_nothing_when_the_revoked_serials_cannot_be_read(program: list[str], tmp_path: Path) -> None:
    (tmp_path / "revoked_serials").unlink()
    assert _output(program, "alice", "7") == ""


def test_the_keys_program_records_the_offered_key_and_prints_the_allowed_ones(tmp_path: Path, records: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "alice").write_text("ssh-ed25519 AAAA ada\n")
    program = _installed(keys.PROGRAM_TEXT, tmp_path, records)
    assert _output(program, "alice", "BB/B+b==") == "ssh-ed25519 AAAA ada\n"
    assert sessions.recorded() == {os.getpid(): "alice/BB/B+b=="}
    assert _output(program, "bob", "AAAA") == ""


@pytest.mark.parametrize("serials", [None, "7", [0], [-1], [2**64], [True], ["7"], [1.5]])
def test_serials_of_another_form_are_refused(serials: object) -> None:
    params = {"user_ca_public_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"], "revoked_serials": serials}
    assert parameters.mismatch(handlers.HANDLERS["ssh.trust"].params, params) is not None


@pytest.mark.parametrize("serials", [[], [1, 2**64 - 1]])
def test_any_list_of_serials_is_accepted(serials: list[int]) -> None:
    assert parameters.serials(serials)


@pytest.mark.parametrize(("before", "ended"), [("ssh-ed25519 AAAAold", 1), ("ssh-ed25519 AAAAnew", 0)])
def test_sessions_of_unknown_certificates_end_when_the_authority_is_another_one(
    before: str,
    ended: int,
    tmp_path: Path,
    records: Path,
    serving: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A platform that was restored from a backup has a new authority and does not know all serials of the old one."""
    for name in ("USER_CA", "PRINCIPALS_PROGRAM", "REVOKED_SERIALS", "REVOKED_KEYS"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
    monkeypatch.setattr(certificates, "_revocation_list", lambda _: b"")
    paths.PRINCIPALS_PROGRAM.touch()
    certificates.put_authority([before])
    _record(records, serving.pid, "7")
    _record(records, os.getpid(), "alice/AAAA")
    params = {"user_ca_public_keys": ["ssh-ed25519 AAAAnew"], "revoked_serials": []}
    assert ssh_trust.apply(params)["sessions_ended"] == ended
    assert sessions.recorded().keys() == {os.getpid(), serving.pid} - ({serving.pid} if ended else set())
