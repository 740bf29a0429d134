"""`gpuaas up` and `gpuaas down` without machines: real processes, a home of their own."""

import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_cli import failures, programs
from gpuaas_cli.client import home
from gpuaas_cli.flags import Flags
from gpuaas_cli.local import choice, cloud, plan, processes, report

Cli = Any
ENDS_WHEN_ASKED = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1]))).accept()"


@pytest.fixture
def control_plane(stranger: Cli, free_port: int) -> Iterator[Cli]:
    words = ("up", "--control-plane-only", "--port", str(free_port))
    first = stranger(*words)
    assert f"✓ server ready on http://127.0.0.1:{free_port}" in first.err
    yield stranger
    stranger("down", "--purge", "--lab", "local")


def test_up_signs_in_and_no_secret_is_left_behind(control_plane: Cli) -> None:
    assert control_plane("get", "projects", "-o", "name").out == "default\n"
    log = (control_plane.home / "local" / "server.log").read_text()
    assert "gpuaas_admin_" not in log
    assert "gpuaas_admin_" not in (control_plane.home / "config.json").read_text()


def test_a_second_up_keeps_the_server_that_runs(control_plane: Cli, free_port: int) -> None:
    before = _pid(control_plane)
    control_plane("up", "--control-plane-only", "--port", str(free_port))
    assert _pid(control_plane) == before


def test_up_after_down_has_the_same_data(control_plane: Cli, free_port: int) -> None:
    project_id = control_plane("get", "projects", "-o", "json").json["items"][0]["project_id"]
    assert "server stopped" in control_plane("down").err
    control_plane("whoami", expect=2)
    assert "Start again: gpuaas up" in control_plane("down").err
    control_plane("up", "--control-plane-only", "--port", str(free_port))
    assert control_plane("get", "projects", "-o", "json").json["items"][0]["project_id"] == project_id


def test_up_after_a_crash_starts_the_server_again(control_plane: Cli, free_port: int) -> None:
    _crash(_pid(control_plane))
    control_plane("up", "--control-plane-only", "--port", str(free_port))
    control_plane("whoami")


def test_up_starts_the_server_again_that_ends_while_it_is_looked_at(control_plane: Cli, free_port: int) -> None:
    file = control_plane.home / "local" / "server.pid"
    command = json.loads(file.read_text())["command"]
    control_plane("down")
    processes.Process(file.parent, "server").start([sys.executable, "-c", ENDS_WHEN_ASKED, str(free_port)])
    file.write_text(json.dumps({**json.loads(file.read_text()), "command": command}))
    control_plane("up", "--control-plane-only", "--port", str(free_port))
    control_plane("whoami")


def test_settings_of_another_cloud_do_not_disturb(control_plane: Cli, free_port: int) -> None:
    elsewhere = {"GPUAAS_SERVER": "http://192.0.2.1", "GPUAAS_TOKEN": "other", "GPUAAS_PROJECT": "other"}
    control_plane("up", "--control-plane-only", "--port", str(free_port), **elsewhere)


def test_a_lost_token_is_replaced(control_plane: Cli, free_port: int) -> None:
    control_plane("logout")
    control_plane("whoami", expect=3)
    control_plane("up", "--control-plane-only", "--port", str(free_port))
    control_plane("whoami")


def test_down_purge_leaves_nothing(control_plane: Cli) -> None:
    control_plane("down", "--purge")
    assert not list(control_plane.home.glob("local*"))
    assert json.loads((control_plane.home / "config.json").read_text())["contexts"] == {}


def test_down_stops_the_cloud_of_the_current_context(stranger: Cli, free_port: int) -> None:
    stranger("up", "--control-plane-only", "--lab", "mine", "--port", str(free_port))
    try:
        stopped = stranger("down")
        assert "server stopped" in stopped.err
        assert f"The local cloud mine, with its data in {stranger.home / 'mine'}:" in stopped.err
        assert "delete: gpuaas down --purge --lab mine" in stopped.err
        stranger("down", "--purge")
        assert not list(stranger.home.glob("mine*"))
    finally:
        stranger("down", "--purge", "--lab", "mine")


def test_a_misspelt_cloud_is_not_reported_as_deleted(control_plane: Cli) -> None:
    for words in (("down", "--lab", "locl"), ("down", "--purge", "--lab", "locl")):
        answer = control_plane(*words).err
        assert f"There is no local cloud locl in {control_plane.home}; there is local. Nothing was stopped" in answer
    control_plane("whoami", "--context", "local")


def test_down_refuses_to_guess_while_another_cloud_is_in_use(control_plane: Cli, server: Any) -> None:
    control_plane("login", "--server", server.url, "--name", "admin", "--context", "prod", given=server.password)
    for words in (("down",), ("down", "--purge")):
        refused = control_plane(*words, expect=64)
        assert f"You use the context prod ({server.url}), which is no local cloud in" in refused.err
        assert "there is local" in refused.err
        assert "next: gpuaas down --lab local" in refused.err
    control_plane("whoami", "--context", "local")


PROD = {"prod": home.Context("https://prod.example")}
LOCAL = {"local": home.Context("http://127.0.0.1:7070"), **PROD}


@pytest.mark.parametrize(
    ("config", "flags", "environ"),
    [
        (home.Config("prod", LOCAL), Flags(), {}),
        (home.Config("local", LOCAL), Flags(context="prod"), {}),
        (home.Config("local", LOCAL), Flags(), {"GPUAAS_CONTEXT": "prod"}),
        (home.Config("local", LOCAL), Flags(server="https://other.example"), {}),
        (home.Config("local", LOCAL), Flags(), {"GPUAAS_SERVER": "https://other.example"}),
        (home.Config("local", {"local": PROD["prod"]}), Flags(), {}),
    ],
)
def test_no_cloud_is_chosen_for_a_person_who_uses_another_one(
    tmp_path: Path, config: home.Config, flags: Flags, environ: dict[str, str]
) -> None:
    (tmp_path / "local" / "data").mkdir(parents=True)
    for name, context in config.contexts.items():
        home.set_context(tmp_path, name, context)
    home.set_context(tmp_path, config.current, config.contexts[config.current])
    with pytest.raises(failures.Failure, match="which is no local cloud in"):
        choice.current(tmp_path, flags, environ)


def test_another_person_of_a_local_cloud_stops_it_too_unless_two_clouds_have_its_address(tmp_path: Path) -> None:
    (tmp_path / "local" / "data").mkdir(parents=True)
    for name in ("local", "ada"):
        home.set_context(tmp_path, name, LOCAL["local"])
    assert choice.current(tmp_path, Flags(), {}) == "local"
    (tmp_path / "mine" / "data").mkdir(parents=True)
    home.set_context(tmp_path, "mine", LOCAL["local"])
    assert choice.current(tmp_path, Flags(context="local"), {}) == "local"
    with pytest.raises(failures.Failure, match="there is local, mine"):
        choice.current(tmp_path, Flags(context="ada"), {})


def test_a_cloud_that_has_only_machines_is_chosen_too(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "machines").touch()
    home.set_context(tmp_path, "mine", LOCAL["local"])
    assert choice.current(tmp_path, Flags(), {}) == "mine"


def test_a_named_cloud_is_purged_while_another_one_is_in_use(control_plane: Cli, server: Any) -> None:
    control_plane("login", "--server", server.url, "--name", "admin", "--context", "prod", given=server.password)
    purged = control_plane("down", "--purge", "--lab", "local").err
    assert f"Data of local deleted. The current context is prod ({server.url})." in purged
    assert not list(control_plane.home.glob("local*"))


def test_what_to_type_next_names_the_lab_where_it_is_not_the_usual_one() -> None:
    assert plan.command("down --purge", "local") == "gpuaas down --purge"
    assert plan.command("down --purge", "mine") == "gpuaas down --purge --lab mine"


def test_down_where_nothing_runs_is_fine(stranger: Cli) -> None:
    assert stranger("down").err == "Nothing runs here.\n"
    assert not list(stranger.home.glob("local*"))


def test_a_port_in_use_is_named_with_the_way_out(server: Any, stranger: Cli) -> None:
    port = server.url.rpartition(":")[2]
    ended = stranger("up", "--control-plane-only", "--port", port, expect=5)
    assert f"Port {port} is taken" in ended.err
    assert f"next: gpuaas up --port {int(port) + 1}" in ended.err


@pytest.fixture
def lab_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lab that records its arguments; the caller has no rights while the file `refuse` exists."""
    calls, program = tmp_path / "calls", tmp_path / "gpuaas-lab"
    program.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n[ ! -e {tmp_path}/refuse ]\n')
    program.chmod(0o755)
    monkeypatch.setattr(programs, "find", lambda name: str(program))
    return calls


def test_without_rights_up_shows_what_works_instead(lab_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(failures.Failure) as refused:
        cloud.up(plan.CloudRequest(tmp_path / "home"))
    assert "Machines need root or sudo that asks for no password" in refused.value.message
    assert "gpuaas up --control-plane-only" in refused.value.fix
    assert lab_calls.read_text() == "check\n"


def test_without_rights_down_stops_nothing(control_plane: Cli, lab_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    (control_plane.home / "local" / "machines").touch()
    with pytest.raises(failures.Failure):
        cloud.down(plan.CloudRequest(control_plane.home), purge=False)
    control_plane("whoami")
    (control_plane.home / "local" / "machines").unlink()


def test_purge_after_down_deletes_the_disks_too(lab_calls: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "local"
    folder.mkdir(parents=True)
    (folder / "machines").touch()
    cloud.down(plan.CloudRequest(tmp_path / "home"), purge=False)
    cloud.down(plan.CloudRequest(tmp_path / "home"), purge=True)
    calls = ["check", "down --lab local", "check", "down --purge --lab local"]
    assert (lab_calls.read_text().splitlines(), folder.exists()) == (calls, False)


def test_an_interrupt_is_reported_as_an_interrupt() -> None:
    with pytest.raises(failures.Failure) as ended:
        report.captured(["sh", "-c", "kill -INT $$"])
    assert (ended.value.code, ended.value.exit_code) == ("interrupted", 130)


def _crash(pid: int) -> None:
    """Returns when the process is gone, which takes it a moment after the signal."""
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


def _pid(cli: Cli) -> int:
    return int(json.loads((cli.home / "local" / "server.pid").read_text())["pid"])
