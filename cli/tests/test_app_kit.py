"""`gpuaas app init` writes an app; `gpuaas app conformance` starts the app's own command and passes its result on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpuaas_cli import main, programs

STOPPABLE = """import signal, sys, time

def stop(*_):
    print("cleared away")
    sys.exit(7)

signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(3600)
"""
PROGRAM = f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:])\nsys.exit(1)\n"


def test_init_writes_an_app_and_names_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["app", "init", "hello", "--kind", "quorum"]) == 0
    out, err = capsys.readouterr()
    assert "hello/gpuaas_app_hello/controller.py" in out.splitlines()
    assert "gpuaas app conformance hello" in err
    assert "component_key: peer" in (tmp_path / "hello/gpuaas_app_hello/manifest.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [(["Hello"], "is no name of an app"), (["hello", "--kind", "web"], "the kinds are service, batch, quorum")],
)
def test_init_refuses_a_bad_name_and_an_unknown_kind(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["app", "init", *words]) == 64
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init_overwrites_nothing_and_suggests_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello").mkdir()
    assert main.run(["app", "init", "hello"]) == 64
    assert "next: gpuaas app init hello-2" in capsys.readouterr().err


def test_conformance_runs_the_command_of_the_app_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "gpuaas-hello-conformance"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(programs, "find", lambda name: str(tmp_path / name))
    assert main.run(["app", "conformance", "hello", "--check", "residue", "--kind", "add", "--junit", "c.xml"]) == 1
    assert capfd.readouterr().out.split() == ["--check", "residue", "--kind", "add", "--junit", "c.xml"]


def test_conformance_on_a_platform_gets_the_session_and_no_token_in_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "gpuaas-hello-conformance"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(*sys.argv[1:], os.environ['GPUAAS_TOKEN'])\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "find", lambda name: str(tmp_path / name))
    monkeypatch.setenv("GPUAAS_HOME", str(tmp_path))
    monkeypatch.setenv("GPUAAS_TOKEN", "secret")
    server = ["--server", "http://127.0.0.1:9", "--project", "research"]
    command = ["app", "conformance", "hello", "--check", "operations", "--credentials", "key.json"]
    assert main.run([*command, "--machine", "gpu-1", "--machine", "gpu-2", *server]) == 0
    expected = [
        "--check",
        "operations",
        "--credentials",
        "key.json",
        *server,
        "--machine",
        "gpu-1",
        "--machine",
        "gpu-2",
    ]
    assert capfd.readouterr().out.split() == [*expected, "secret"]


def test_conformance_on_a_platform_needs_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "find", lambda name: "/bin/true")
    monkeypatch.setenv("GPUAAS_HOME", str(tmp_path))
    assert main.run(["app", "conformance", "hello", "--credentials", "key.json"]) == 64
    assert "gpuaas login --server URL" in capsys.readouterr().err


def test_a_signal_stops_the_command_of_the_app_first(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(STOPPABLE)
    code = f"import sys; from gpuaas_cli import programs; sys.exit(programs.run(['{sys.executable}', '{program}']))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        command.send_signal(signal.SIGTERM)
        assert (command.stdout.read(), command.wait()) == ("cleared away\n", 7)


def test_conformance_of_an_app_that_is_not_installed_names_the_command_to_install_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["app", "conformance", "nowhere"]) == 4
    assert "pip install -e './nowhere[conformance]'" in capsys.readouterr().err
