"""The real executable against a real server: sign in, set up, list, fail well."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Any
Golden = Callable[[str, str], None]
Steady = Callable[[str], str]

SUBCOMMANDS = {
    "describe": ["instance", "operation", "member"],
    "member": ["add", "drain", "resume", "remove", "replace"],
    "op": ["follow", "wait", "retry", "cancel", "compensate", "force-complete", "tombstone"],
    "action": ["list", "describe", "run"],
    "context": ["list", "use"],
    "hold": ["place", "list", "lift"],
    "role": ["reset-breaker"],
    "operator": ["set"],
    "secret": ["list", "revoke"],
    "session": ["list", "end"],
    "custody": ["status", "unseal"],
    "usage": ["list", "summary", "export"],
    "user": ["create", "list", "disable", "enable", "set-password"],
    "binding": ["list", "grant", "revoke"],
    "policy": ["show", "set", "explain"],
    "audit": ["list"],
    "org": ["create"],
    "project": ["create", "get", "rename", "delete", "use"],
    "service-account": [
        *("create", "list", "get", "bind", "disable", "enable", "delete"),
        *("key", "keys", "rotate-key", "revoke-key", "accept", "dismiss", "accepted"),
    ],
    "node": [
        *("token", "list", "get", "inspect", "health", "set", "cordon", "uncordon", "drain", "retire"),
        *("sanitise", "mark-sanitised", "task list", "task describe"),
    ],
    "agent": ["register", "approve", "list", "upgrade"],
    "allocation": ["request", "list", "people", "release", "force-release"],
    "credential": ["create", "list", "rotate", "revoke"],
    "ssh-key": ["add", "list", "delete"],
    "grant": ["list", "revoke"],
    "artifact": [
        *("publish", "upload", "sign", "signature", "verify", "promote", "deprecate", "retire", "revoke", "list"),
        "storage",
        *("trust list", "trust add", "trust revoke"),
    ],
    "app": ["register", "versions", "attach-card", "card", "show", "publish", "deprecate", "withdraw", "entitle"],
}
SINGLE = [
    *("up", "down", "get", "triage", "access", "whoami", "can-i", "login", "logout", "ssh", "doctor"),
    *("explain", "schema", "events", "password", "break-glass"),
    *("deploy", "stop", "start", "restart", "upgrade", "rollback", "reconfigure", "decommission"),
]


def test_the_overview_is_the_first_page(stranger: Cli, golden: Golden) -> None:
    golden("overview.txt", stranger("--help").out)
    assert stranger().out == stranger("help").out


@pytest.mark.parametrize("group", SUBCOMMANDS)
def test_every_group_lists_its_commands(group: str, stranger: Cli, golden: Golden) -> None:
    golden(f"help-{group}.txt", stranger(group, "--help").out)


@pytest.mark.parametrize(
    "command", [*SINGLE, *(f"{group} {name}" for group in SUBCOMMANDS for name in SUBCOMMANDS[group])]
)
def test_every_command_explains_itself_with_an_example(command: str, stranger: Cli, golden: Golden) -> None:
    text = stranger(*command.split(), "--help").out
    golden(f"help-{command.replace(' ', '-')}.txt", text)
    assert f"Example: gpuaas {command}" in text


def test_login_reads_the_password_from_stdin_and_keeps_only_the_token(server: Any, stranger: Cli) -> None:
    ended = stranger("login", "--server", server.url, "--name", "admin", given=f"{server.password}\n")
    config = stranger.home / "config.json"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert server.password not in config.read_text() + ended.out + ended.err
    assert stranger("whoami", "-o", "name").out == "admin\n"
    stranger("logout")
    assert stranger("whoami", expect=3).err.splitlines()[-1] == "  next: gpuaas login"


def test_a_wrong_password_is_an_authentication_failure(server: Any, stranger: Cli) -> None:
    ended = stranger("login", "--server", server.url, "--name", "admin", given="wrong\n", expect=3)
    assert ended.err.startswith("ERROR: These credentials are not valid (code=credentials_invalid, correlation_id=cor_")
    assert not (stranger.home / "config.json").exists()


def test_login_without_a_server_is_a_usage_error(stranger: Cli) -> None:
    assert "next: gpuaas login --server" in stranger("login", "--name", "admin", given="x\n", expect=64).err


def test_the_environment_is_enough_for_a_script(server: Any, cli: Cli, stranger: Cli) -> None:
    token = json.loads((cli.home / "config.json").read_text())["contexts"]["default"]["token"]
    ended = stranger("get", "projects", "-o", "name", GPUAAS_SERVER=server.url, GPUAAS_TOKEN=token)
    assert "research" in ended.out.split()


def test_a_token_is_not_sent_to_another_server(cli: Cli, server: Any) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    assert "code=token_missing" in cli("whoami", "--server", other, expect=3).err


def test_a_bad_token_ends_with_3_and_the_way_out(server: Any, stranger: Cli) -> None:
    ended = stranger("get", "projects", expect=3, GPUAAS_SERVER=server.url, GPUAAS_TOKEN="gpuaas_session_no")
    assert "code=token_invalid" in ended.err
    assert ended.err.splitlines()[-1] == "  next: gpuaas login"
    assert ended.out == ""


@pytest.mark.parametrize(
    "words", ["get instance nope", "get project nope", "describe operation op_nope", "get instances --project nope"]
)
def test_what_is_not_there_ends_with_4(words: str, cli: Cli) -> None:
    ended = cli(*words.split(), expect=4)
    assert "code=not_found" in ended.err
    assert "next: " in ended.err


def test_a_project_that_is_not_there_is_named(cli: Cli) -> None:
    ended = cli("get", "instances", "--project", "nope", expect=4)
    assert ended.err.startswith("ERROR: Not found in project nope, or you have no access to it (code=not_found")
    assert ended.err.endswith("next: gpuaas get projects\n")


def test_a_conflict_ends_with_5(cli: Cli) -> None:
    assert "code=conflict" in cli("org", "create", "acme", "--admin", "admin", expect=5).err


@pytest.mark.parametrize(
    "words",
    [["get"], ["get", "nonsense"], ["nonsense"], ["get", "nodes", "-o", "xml"], ["get", "nodes", "--nonsense"], ["op"]],
)
def test_a_wrong_word_is_a_usage_error(words: list[str], cli: Cli) -> None:
    ended = cli(*words, expect=64)
    assert "(code=usage)" in ended.err
    assert ended.err.splitlines()[-1].startswith("  next: gpuaas ")


def test_a_usage_error_names_the_help_of_the_command_that_was_reached(stranger: Cli) -> None:
    assert stranger("node", "cordon", "gpu-1", expect=64).err.endswith("next: gpuaas node cordon --help\n")
    assert stranger("node", "nonsense", expect=64).err.endswith("next: gpuaas node --help\n")


def test_a_near_miss_is_recognised(cli: Cli) -> None:
    assert "did you mean deploy?" in cli("deplyo", expect=64).err


def test_a_server_that_is_down_ends_with_2(stranger: Cli, free_port: int) -> None:
    ended = stranger("get", "projects", expect=2, GPUAAS_SERVER=f"http://127.0.0.1:{free_port}", GPUAAS_TOKEN="x")
    assert "code=no_answer" in ended.err
    assert "next: Check that the server runs" in ended.err


def test_errors_are_json_when_json_was_asked_for(cli: Cli) -> None:
    error = json.loads(cli("get", "instance", "nope", "-o", "json", expect=4).err)["error"]
    assert set(error) == {"code", "message", "correlation_id", "fix"}
    assert error["code"] == "not_found"


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
def test_a_list_comes_in_every_form(form: str, cli: Cli, golden: Golden, steady: Steady) -> None:
    golden(f"orgs-{form}.txt", steady(cli("get", "orgs", "-o", form).out))


def test_one_thing_is_shown_by_its_name(cli: Cli) -> None:
    assert cli("get", "project", "research", "-o", "json").json["name"] == "research"


def test_a_project_can_be_named_wherever_it_is_needed(cli: Cli) -> None:
    project = cli("get", "project", "research", "-o", "json").json
    by_name = cli("get", "service-accounts", "--project", "research", "-o", "json")
    assert by_name.json == cli("get", "service-accounts", "--project", project["project_id"], "-o", "json").json


def test_an_empty_list_is_reported_beside_the_data(cli: Cli) -> None:
    cli("project", "create", "empty", "--org", "acme")
    ended = cli("get", "instances", "--project", "empty")
    assert (ended.out, ended.err) == ("", "Nothing found.\n")
    assert cli("get", "instances", "--project", "empty", "-o", "json").json == {"items": []}


def test_a_key_file_is_private_and_its_secret_is_never_shown(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    ended = cli("service-account", "create", "robot", "--key-file", str(file))
    key = json.loads(file.read_text())
    assert set(key) == {"key_id", "client_secret"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key["client_secret"] not in ended.out + ended.err
    again = cli("service-account", "key", "robot", "--key-file", str(file), expect=1)
    assert "exists" in again.err
    assert set(json.loads(cli("service-account", "key", "robot", "--key-file", "-").out)) == set(key)


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    cli("org", "create", "never", "--admin", "admin", "--dry-run")
    assert "never" not in cli("get", "orgs", "-o", "name").out.split()


def test_a_manifest_that_is_none_is_refused_with_the_field(cli: Cli) -> None:
    ended = cli("app", "register", "-", given="slug: x\n", expect=1)
    assert "code=manifest_invalid" in ended.err
    assert "display_name" in ended.err


def test_unknown_words_become_programs_like_in_git(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "gpuaas-hello"
    program.write_text('#!/bin/sh\necho "hello $*"\nexit 7\n')
    program.chmod(0o755)
    ended = cli("hello", "-o", "json", "--there", expect=7, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ended.out == "hello -o json --there\n"


def test_lab_and_server_hand_over_to_their_programs(cli: Cli) -> None:
    assert "gpuaas-lab" in cli("lab", "--help").out
    assert "--listen" in cli("server", "--help").out


def test_help_imports_neither_client_nor_terminal_library(cli: Cli) -> None:
    code = "import sys; from gpuaas_cli import main; main.run(['--help']); print([m for m in sys.modules if m in %r])"
    for words, unwanted in (
        (["--help"], ["typer", "httpx", "rich", "msgspec"]),
        (["get", "projects"], ["rich", "yaml"]),
    ):
        program = code.replace("['--help']", repr(words)) % unwanted
        ended = subprocess.run(
            [sys.executable, "-c", program], env=cli.full_environment(), capture_output=True, text=True, check=True
        )
        assert ended.stdout.splitlines()[-1] == "[]"
