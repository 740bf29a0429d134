"""`gpuaas-platform install`: the rendered files, and what a second run changes. `tests/e2e` runs it on a machine."""

import grp
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from gpuaas_platform import tls
from gpuaas_platform.commands import service, units
from gpuaas_platform.kit import clock
from gpuaas_sdk.testing import free_port
from server_process import ServerProcess

COMMAND = Path("/opt/gpuaas/venv/bin/gpuaas-platform")
FIRST = units.settings_text("", ["10.0.0.5:7443"])


def unit(port: int = 7443) -> list[str]:
    return units.rendered(COMMAND, FIRST, port)[units.UNIT_FILE].text.splitlines()


def test_the_service_is_a_user_without_rights_that_writes_only_to_its_data_folder() -> None:
    wanted = {
        "User=gpuaas",
        "StateDirectory=gpuaas-platform",
        "StateDirectoryMode=0700",
        "UMask=0077",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "MemoryDenyWriteExecute=yes",
        "RestrictNamespaces=yes",
        "SystemCallFilter=@system-service",
    }
    assert wanted - set(unit()) == set()


def test_a_port_below_1024_needs_one_right_more() -> None:
    assert {line for line in unit(443) if "CAP_" in line} == {
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
    }


def test_a_refusal_ends_the_service_and_a_missing_database_does_not() -> None:
    assert {"Restart=always", "RestartPreventExitStatus=2"} <= set(unit())


def test_only_the_service_reads_the_settings() -> None:
    settings = units.rendered(COMMAND, FIRST, 7443)[units.SETTINGS_FILE]
    assert (settings.mode, settings.group) == (0o640, "gpuaas")
    assert "GPUAAS_OPTIONS=--listen 10.0.0.5:7443\n" in settings.text


def test_settings_of_the_operator_stay_when_the_address_changes() -> None:
    present = (
        'GPUAAS_OPTIONS="--sealed --listen 10.0.0.5:7443 --listen=[::1]:7070"\nGPUAAS_DATABASE=postgresql://db/x\n'
    )
    assert units.settings_text(present, []) == present
    changed = units.settings_text(present, ["10.0.0.6:443", "127.0.0.1:7070"])
    assert units.options(changed) == ["--sealed", "--listen", "10.0.0.6:443", "--listen", "127.0.0.1:7070"]
    assert changed.splitlines()[1] == "GPUAAS_DATABASE=postgresql://db/x"


def test_a_new_installation_listens_on_loopback_only() -> None:
    assert units.options(units.settings_text("", [])) == ["--listen", "127.0.0.1:7070"]


def test_a_second_run_changes_nothing_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {Path("/etc/one.conf"): file("one\n", 0o640), Path("/etc/two"): file("two\n", 0o644)}
    assert service.write(files, tmp_path)
    written = tmp_path / "etc/one.conf"
    assert (written.read_text(), mode(written)) == ("one\n", 0o640)
    assert not service.write(files, tmp_path)
    assert capsys.readouterr().out.split() == [
        *("written", "/etc/one.conf", "written", "/etc/two"),
        *("unchanged", "/etc/one.conf", "unchanged", "/etc/two"),
    ]
    assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == ["one.conf", "two"]


def test_settings_that_others_can_read_are_made_private(tmp_path: Path) -> None:
    """An operator writes them before the installation, with the password of the database."""
    written = tmp_path / "etc/one.conf"
    written.parent.mkdir()
    written.write_text("one\n")
    written.chmod(0o644)
    assert service.write({Path("/etc/one.conf"): file("one\n", 0o640)}, tmp_path)
    assert mode(written) == 0o640


def file(text: str, mode: int) -> units.File:
    return units.File(text, mode, grp.getgrgid(os.getgid()).gr_name)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_are_shown_without_changing_the_machine() -> None:
    command = [sys.executable, "-m", "gpuaas_platform.main", "install", "--listen", "10.0.0.5:7443", "--print"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for path in (units.UNIT_FILE, units.USER_FILE, units.SETTINGS_FILE):
        assert f"# {path} (" in shown
        assert not path.exists()


def test_a_server_that_is_not_ready_is_reported_with_the_reason(tmp_path: Path) -> None:
    """An installation with a certificate of the operator failed after two minutes, without the reason."""
    port, other = free_port(), tmp_path / "other"
    other.mkdir()
    tls.load_authority(other, clock.utc_now())
    url = f"https://127.0.0.1:{port}"
    assert "refused" in service.why_not_ready(url, None)
    with ServerProcess(tmp_path / "data", options=["--listen", f"0.0.0.0:{port}"]):
        assert service.why_not_ready(url, tmp_path / "data" / "keys" / "tls-authority.crt") == ""
        assert "CERTIFICATE_VERIFY_FAILED" in service.why_not_ready(url, other / "tls-authority.crt")
        absent = tmp_path / "absent.crt"
        assert service.why_not_ready(url, absent) == f"{absent} cannot be read: No such file or directory"


@pytest.mark.parametrize("address", ["nowhere", "10.0.0.5:99999"])
def test_a_wrong_address_is_refused_before_anything_is_written(address: str) -> None:
    command = [sys.executable, "-m", "gpuaas_platform.main", "install", "--listen", address, "--print"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "--listen takes HOST:PORT" in ended.stderr
