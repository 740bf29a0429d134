"""`gpuaas doctor`: each check from facts, and the command against a real server."""

import datetime
import stat
from pathlib import Path
from typing import Any

import gpuaas_contract
import pytest
from gpuaas_cli.client.network import Certificate, Reached
from gpuaas_cli.doctor import checks
from gpuaas_cli.doctor.facts import Config, Facts, SignedIn, Version

Cli = Any
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
HOUR, YEAR = datetime.timedelta(hours=1), datetime.timedelta(days=365)
CONFIG = Config(Path("/home/ada/.gpuaas/config.json"), 0o600)
REACHED = Reached("cloud.example", 8443, ("192.0.2.7",), connected=True)
SOUND: dict[str, Any] = {
    "now": NOW,
    "config": CONFIG,
    "server": "https://cloud.example:8443",
    "is_address": True,
    "has_token": True,
    "reached": REACHED,
    "certificate": Certificate(NOW + YEAR),
    "version": Version(gpuaas_contract.VERSION, 0.4),
    "signed_in": SignedIn("ada", NOW + HOUR),
    "project": "research",
    "project_error": "",
    "programs": {"ssh": "/usr/bin/ssh", "ssh-keygen": "/usr/bin/ssh-keygen"},
}
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no file": ({"config": Config(CONFIG.path)}, "config file", "warn", "gpuaas login"),
    "a file that others can read": ({"config": Config(CONFIG.path, 0o644)}, "config file", "fail", "chmod 600"),
    "a broken file": ({"config": Config(CONFIG.path, 0o600, "no JSON")}, "config file", "fail", "mv "),
    "no server": ({"server": "", "is_address": False}, "server address", "fail", "gpuaas login --server"),
    "no address": ({"is_address": False}, "server address", "fail", "gpuaas login --server"),
    "an unknown name": ({"reached": Reached("x", 1, error="unknown")}, "name lookup", "fail", "getent hosts x"),
    "a closed port": ({"reached": Reached("x", 1, ("a",), error="refused")}, "connection", "fail", "gpuaas up"),
    "a foreign certificate": ({"certificate": Certificate(error="self-signed")}, "certificate", "fail", "gpuaas login"),
    "a server without TLS": (
        {"certificate": Certificate(error="the server does not use TLS", uses_tls=False)},
        "certificate",
        "fail",
        "gpuaas login --server http:",
    ),
    "an old certificate": ({"certificate": Certificate(NOW + 24 * HOUR)}, "certificate", "warn", "Ask the operator"),
    "another program": ({"version": Version(error="404")}, "versions", "fail", "gpuaas login"),
    "an old server": ({"version": Version("0.0.9", 0)}, "versions", "fail", "Install the CLI of release 0.0.9"),
    "a slow clock": ({"version": Version(gpuaas_contract.VERSION, 30)}, "clock", "warn", "timedatectl"),
    "a wrong clock": ({"version": Version(gpuaas_contract.VERSION, -900)}, "clock", "fail", "timedatectl"),
    "no token": ({"has_token": False, "signed_in": None}, "token", "fail", "gpuaas login"),
    "an old token": ({"signed_in": SignedIn(error="The bearer token has expired")}, "token", "fail", "gpuaas login"),
    "a token that ends": ({"signed_in": SignedIn("ada", NOW + HOUR / 6)}, "token", "warn", "gpuaas login"),
    "no project": ({"project": ""}, "project", "warn", "gpuaas get projects"),
    "a hidden project": ({"project_error": "Not found"}, "project", "fail", "gpuaas get projects"),
    "no ssh": ({"programs": {"ssh": None, "ssh-keygen": "x"}}, "ssh programs", "fail", "apt-get install"),
}


def test_a_sound_installation_has_no_next_step() -> None:
    result = checks.judge(Facts(**SOUND))
    assert [check.name for check in result] == list(checks.QUESTIONS)
    assert {(check.state, check.fix) for check in result} == {("ok", "")}


@pytest.mark.parametrize("case", CASES)
def test_each_problem_has_one_next_step(case: str) -> None:
    change, name, state, fix = CASES[case]
    (check,) = [check for check in checks.judge(Facts(**{**SOUND, **change})) if check.name == name]
    assert check.state == state
    assert check.fix.startswith(fix)


def test_what_could_not_be_tried_is_not_called_a_failure() -> None:
    unreached = dict.fromkeys(("certificate", "version", "signed_in", "project_error"))
    closed = Reached("x", 1, ("192.0.2.7",), error="refused")
    result = checks.judge(Facts(**{**SOUND, **unreached, "reached": closed}))
    assert [check.name for check in result if check.state == "fail"] == ["connection"]


def test_a_newer_cli_of_the_same_line_is_a_warning() -> None:
    own = ".".join(map(str, [*checks._number(gpuaas_contract.VERSION)[:-1], 999]))
    older = checks.judge(Facts(**{**SOUND, "version": Version(own, 0)}))
    assert next(check for check in older if check.name == "versions").state == "ok"


def test_a_signed_in_user_gets_a_sound_report(cli: Cli, tmp_path: Path) -> None:
    report = cli("doctor", "-o", "json").json["checks"]
    assert {check["name"]: check["state"] for check in report} == dict.fromkeys(checks.QUESTIONS, "ok")
    config = cli.home / "config.json"
    config.chmod(0o644)
    ended = cli("doctor", expect=1)
    config.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert f"next: chmod 600 {config}" in ended.out


def test_a_server_that_is_down_is_found_at_its_port(cli: Cli, free_port: int) -> None:
    ended = cli("doctor", "--server", f"http://127.0.0.1:{free_port}", expect=1)
    assert (
        f"fail     connection      127.0.0.1:{free_port} does not accept a connection: Connection refused" in ended.out
    )


def test_a_server_without_tls_is_not_called_untrusted(cli: Cli, server: Any) -> None:
    """No authority helps there: the address has the wrong scheme."""
    ended = cli("doctor", "--server", server.url.replace("http:", "https:"), expect=1)
    assert "fail     certificate     the server does not use TLS\n" in ended.out
    assert f"next: gpuaas login --server {server.url}\n" in ended.out


def test_a_file_of_settings_that_is_broken_is_reported_and_not_fatal(stranger: Cli) -> None:
    stranger.home.mkdir()
    (stranger.home / "config.json").write_text("{")
    ended = stranger("doctor", expect=1)
    assert ended.out.startswith("fail     config file     ")
