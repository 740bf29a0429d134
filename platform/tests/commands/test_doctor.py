"""`gpuaas-platform doctor`: each check from facts, and the command on a real data folder."""

import datetime
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_platform.commands.doctor import checks
from gpuaas_platform.commands.doctor.facts import Facts, Port, Store, Unsigned
from gpuaas_platform.server import Listen
from gpuaas_sdk.testing import free_port
from server_process import ServerProcess

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DATA, DAY, GIB = Path("/var/lib/gpuaas"), datetime.timedelta(days=1), 1024**3
LISTEN = Listen("127.0.0.1", 7070, encrypted=False)
KEYS = {"tasks.pem": "", "audit.pem": ""}
SOUND: dict[str, Any] = {
    "data": DATA,
    "now": NOW,
    "disk_free": 50 * GIB,
    "disk_total": 100 * GIB,
    "keys": KEYS,
    "authority_ends_at": NOW + 3000 * DAY,
    "files_max": 65536,
    "ports": (Port(LISTEN),),
}
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no folder": ({"exists": False}, "data folder", "warn", "gpuaas-platform server --data"),
    "a folder of another user": ({"is_writable": False}, "data folder", "fail", "Run this as the user"),
    "an open folder": ({"open_to_others": (DATA, DATA / "keys")}, "file modes", "fail", f"chmod go= {DATA} "),
    "an open file in a private folder": ({"open_to_others": (DATA / "keys",)}, "file modes", "warn", "chmod go= "),
    "a full disk": ({"disk_free": GIB // 2}, "free disk", "fail", "Free space"),
    "a disk that fills": ({"disk_free": 2 * GIB}, "free disk", "warn", "Free space"),
    "no store": ({"store": Store(error="refused")}, "store", "fail", "Check --data and --database"),
    "a newer store": ({"store": Store(is_newer=True, error="newer")}, "store", "fail", "Run the newer release"),
    "an older store": ({"store": Store((31,))}, "store", "warn", "Make a backup"),
    "a lost key": ({"keys": {**KEYS, "audit.pem": "missing"}}, "signing keys", "fail", "Put the files back"),
    "a lost key of custody": ({"custody": "it holds no key"}, "custody", "fail", "gpuaas-platform custody status"),
    "an authority that ends": ({"authority_ends_at": NOW + DAY}, "certificate", "warn", "Plan a new authority"),
    "an authority that ended": ({"authority_ends_at": NOW - DAY}, "certificate", "fail", "Plan a new authority"),
    "rows that no head covers": (
        {"unsigned": (Unsigned("platform", 3, NOW - DAY),)},
        "audit heads",
        "warn",
        "gpuaas-platform audit verify",
    ),
    "few open files": ({"files_max": 128}, "open files", "fail", "LimitNOFILE=65536"),
    "a clock that no one sets": ({"is_synchronised": False}, "clock", "warn", "timedatectl"),
    "an address of another machine": (
        {"ports": (Port(LISTEN, "Cannot assign requested address", is_local=False),)},
        "ports",
        "fail",
        "ip -brief address",
    ),
    "a port in use": ({"ports": (Port(LISTEN, "Address in use"),)}, "ports", "fail", "ss -ltnp 'sport = :7070'"),
}


def test_a_sound_installation_has_no_next_step() -> None:
    result = checks.judge(Facts(**SOUND))
    assert {(check.state, check.fix) for check in result} == {("ok", "")}


@pytest.mark.parametrize("case", CASES)
def test_each_problem_has_one_next_step(case: str) -> None:
    change, name, state, fix = CASES[case]
    (check,) = [check for check in checks.judge(Facts(**{**SOUND, **change})) if check.name == name]
    assert check.state == state
    assert check.fix.startswith(fix)


def test_rows_of_the_last_minutes_need_no_head_yet() -> None:
    young = Unsigned("platform", 3, NOW - checks.HEADS_LATE / 2)
    result = checks.judge(Facts(**{**SOUND, "unsigned": (young,)}))
    assert next(check for check in result if check.name == "audit heads").state == "ok"


def test_a_running_server_is_found_sound_and_its_port_its_own(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        report = _doctor(data, "--listen", f"127.0.0.1:{server.port}")
    assert {name: check["state"] for name, check in report.items() if check["state"] == "fail"} == {}
    assert report["store"]["reason"] == "the database opens, and every migration is applied"
    assert report["ports"]["reason"] == f"a server of the platform answers at {server.url}"


def test_a_running_server_is_recognised_behind_tls(tmp_path: Path) -> None:
    """It listens on every address, because loopback addresses are not encrypted."""
    data, port = tmp_path / "data", free_port()
    with ServerProcess(data, options=["--listen", f"0.0.0.0:{port}"]):
        report = _doctor(data, "--listen", f"0.0.0.0:{port}")
    assert report["ports"] == {
        "name": "ports",
        "state": "ok",
        "reason": f"a server of the platform answers at https://0.0.0.0:{port}",
        "fix": "",
    }


def test_problems_of_a_real_folder_are_found_and_nothing_is_changed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        server.stop()
    (data / "keys" / "audit.pem").write_text("no key")
    data.chmod(0o755)
    before = sorted(path.name for path in data.rglob("*"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        report = _doctor(data, "--listen", f"127.0.0.1:{other.getsockname()[1]}", expect=1)
    assert {name for name, check in report.items() if check["state"] == "fail"} == {
        "file modes",
        "signing keys",
        "ports",
    }
    assert sorted(path.name for path in data.rglob("*")) == before


def _doctor(data: Path, *words: str, expect: int = 0) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-m", "gpuaas_platform.main", "doctor", "--data", str(data), "-o", "json", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == expect, ended.stdout + ended.stderr
    return {check["name"]: check for check in msgspec.json.decode(ended.stdout)["checks"]}
