"""The controller of an app as a service: the unit as text. `tests/e2e` starts one on a machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpuaas_sdk.controller import App
from gpuaas_sdk.controller.service import Controller, unit

CONTROLLER = Controller(
    slug="demo",
    command=["/usr/local/bin/gpuaas-demo"],
    server="https://10.0.0.5:7443",
    project="proj_1",
    name='100% "demo" $HOME',
    credentials=Path("/etc/gpuaas/demo.json"),
    ca_file=Path("/etc/gpuaas/ca.crt"),
    final_exits=(64, 77),
)


def test_the_controller_has_no_rights_and_gets_its_key_from_systemd() -> None:
    lines = set(unit(CONTROLLER).splitlines())
    assert {
        "DynamicUser=yes",
        "LoadCredential=key.json:/etc/gpuaas/demo.json",
        "LoadCredential=ca.crt:/etc/gpuaas/ca.crt",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "RestartPreventExitStatus=64 77",
    } - lines == set()


def test_no_word_of_the_command_is_expanded_by_systemd() -> None:
    (command,) = [line for line in unit(CONTROLLER).splitlines() if line.startswith("ExecStart=")]
    assert command == (
        'ExecStart="/usr/local/bin/gpuaas-demo" "run" "--server" "https://10.0.0.5:7443" "--project" "proj_1" '
        '"--name" "100%% \\"demo\\" $$HOME" --credentials %d/key.json --ca-file %d/ca.crt'
    )


def test_the_service_serves_metrics_if_it_was_installed_so() -> None:
    assert "--metrics" not in unit(CONTROLLER)
    assert '"--metrics" "127.0.0.1:9464"' in unit(replace(CONTROLLER, metrics="127.0.0.1:9464"))


def test_the_unit_is_shown_without_the_key(whole_app: App, manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = manifest.with_name("key.json")
    key.write_text(json.dumps({"key_id": "key_1", "client_secret": "gpuaas-very-secret"}))
    flags = ["--server", "http://127.0.0.1:1", "--project", "proj_1", "--credentials", str(key), "--print"]
    assert whole_app.main(["install", *flags]) == 0
    shown = capsys.readouterr().out
    assert f"LoadCredential=key.json:{key}" in shown
    assert "very-secret" not in shown


def test_a_missing_key_is_refused_before_the_service_is_installed(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--server", "http://127.0.0.1:1", "--project", "proj_1", "--credentials", "/nowhere/key.json"]
    assert App("demo", manifest=manifest).main(["install", *flags]) == 64
    assert "/nowhere/key.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--server", "https://10.0.0.5:99999"], "'https://10.0.0.5:99999' is not a server address"),
        (["--server", "https://10.0.0.5:7443", "--ca-file", "/nowhere/ca.crt"], "/nowhere/ca.crt cannot be read"),
    ],
)
def test_what_the_controller_would_refuse_is_refused_before_the_service_is_installed(
    manifest: Path, capsys: pytest.CaptureFixture[str], flags: list[str], why: str
) -> None:
    key = manifest.with_name("key.json")
    key.write_text(json.dumps({"key_id": "key_1", "client_secret": "secret"}))
    words = ["install", *flags, "--project", "proj_1", "--credentials", str(key), "--print"]
    assert App("demo", manifest=manifest).main(words) == 64
    output = capsys.readouterr()
    assert (output.out, why in output.err) == ("", True), output.err
