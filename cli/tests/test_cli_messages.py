"""What a command reports when it cannot do what was typed: what happened, why, and the next command."""

import json
from pathlib import Path
from typing import Any

import pytest

Cli = Any

NOT_SENT: dict[str, tuple[list[str], str, str]] = {
    "a port that does not exist": (
        ["whoami", "--server", "http://host:99999"],
        "'http://host:99999' is not a server address",
        "gpuaas login --server http://127.0.0.1:7070",
    ),
    "half an address": (["whoami", "--server", "http://[::1"], "is not a server address", "gpuaas login"),
    "an empty argument": (["project", "rename", "p", ""], "NEW_NAME is empty", "gpuaas project rename --help"),
    "an empty option": (["app", "entitle", "a", "--versions", ""], "--versions is empty", "gpuaas app entitle --help"),
    "an empty list": (["app", "entitle", "a", "--versions", ","], "--versions is empty", "gpuaas app entitle --help"),
    "an empty flag": (["get", "nodes", "--project", ""], "--project needs a value", "gpuaas --help"),
    "an empty flag with =": (["get", "nodes", "--project="], "--project needs a value", "gpuaas --help"),
    "a group alone": (["binding"], "gpuaas binding needs one of its commands: list, grant", "gpuaas binding --help"),
    "a group in a group": (["node", "task"], "needs one of its commands: list, describe", "gpuaas node task --help"),
    "a kind with a typo": (["get", "nodse"], "There is no kind 'nodse'; did you mean nodes?", "gpuaas get --help"),
    "a permission with a typo": (
        ["can-i", "apps.instance.crate"],
        "There is no permission 'apps.instance.crate'; did you mean apps.instance.create?",
        "gpuaas can-i --help",
    ),
    "a word that is no permission": (["can-i", "deploy"], "There is no permission 'deploy'", "gpuaas can-i --help"),
    "a lab with a space": (["up", "--lab", "a b"], "'a b' is no name of a lab", "gpuaas up --lab local"),
    "a lab that is another folder": (["down", "--lab", "../x"], "'../x' is no name of a lab", "gpuaas up --lab local"),
}


@pytest.mark.parametrize("case", NOT_SENT)
def test_a_line_that_cannot_be_right_is_refused_with_the_next_command(case: str, stranger: Cli) -> None:
    words, message, fix = NOT_SENT[case]
    ended = stranger(*words, expect=64, GPUAAS_SERVER="http://127.0.0.1:1")
    first, last = ended.err.splitlines()
    assert message in first
    assert last.startswith(f"  next: {fix}")


def test_a_sign_in_where_no_server_is_fails_before_the_password_is_read(stranger: Cli, free_port: int) -> None:
    ended = stranger("login", "--server", f"http://127.0.0.1:{free_port}", "--name", "ada", expect=2)
    assert f"no program answers on port {free_port} there (Connection refused)" in ended.err
    assert f"next: gpuaas doctor --server http://127.0.0.1:{free_port}" in ended.err


def test_a_document_that_is_no_yaml_is_refused_in_one_line(cli: Cli) -> None:
    ended = cli("app", "register", "-", given="slug: [demo\nversion: 1\n", expect=1)
    assert ended.err.splitlines()[0] == (
        "ERROR: - is not a manifest: line 2, column 8: expected ',' or ']', but got ':' (code=manifest_invalid)"
    )


def test_a_dry_run_prints_no_token(cli: Cli) -> None:
    ended = cli("node", "token", "gpu-77", "--dry-run")
    assert ended.out.startswith("would admit a node named gpu-77, once, until ")
    assert cli("node", "token", "gpu-77", "--dry-run", "-o", "json").json["token"] == ""


def test_a_person_without_a_password_is_reported_as_such(cli: Cli) -> None:
    made = cli("user", "create", "kay", given="a long enough password\n")
    assert "No password was set, because stdin is read only with --password." in made.err
    assert "gpuaas user set-password kay < FILE" in made.err
    empty = cli("user", "create", "kim", "--password", given="\n", expect=64)
    assert "next: gpuaas user create kim --password < FILE" in empty.err


def test_a_key_is_not_made_where_it_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "key.json"
    ended = cli("service-account", "create", "homeless", "--key-file", str(file), expect=64)
    assert f"next: mkdir -p {file.parent}" in ended.err
    assert not file.parent.exists()
    assert "homeless" not in cli("service-account", "list", "-o", "name").out.split()


def test_what_was_not_found_is_named(cli: Cli) -> None:
    ended = cli("service-account", "keys", "bto", expect=4)
    assert ended.err.startswith("ERROR: There is no service account bto in project ")
    assert "next: gpuaas get service-accounts" in ended.err
    ended = cli("user", "disable", "noone", expect=4)
    assert ended.err.startswith("ERROR: There is no user noone, or you have no access to it (")


def test_the_last_admin_stays_and_the_next_command_is_one_of_the_cli(cli: Cli) -> None:
    ended = cli("user", "disable", "admin", expect=5)
    assert "next: Give another user the role first: gpuaas binding grant USER platform_admin --platform" in ended.err


def test_an_app_that_is_not_offered_leads_to_those_that_are(cli: Cli) -> None:
    ended = cli("deploy", "nosuch", expect=4)
    assert "This project may not deploy nosuch; it may deploy: " in ended.err
    assert "next: gpuaas get app-offers; if it lists nosuch: gpuaas entitlement request nosuch" in ended.err


def test_a_permission_that_no_app_has_is_not_called_a_refusal(cli: Cli) -> None:
    ended = cli("can-i", "toys.wall.paint", expect=1)
    assert "There is no permission toys.wall.paint here: no app of the project has it." in ended.err


def test_the_correlation_id_of_a_refused_request_leads_to_it(cli: Cli) -> None:
    refused = cli("stop", "nosuch", "-o", "json", expect=4)
    correlation_id = json.loads(refused.err)["error"]["correlation_id"]
    line = next(line for line in cli("triage", correlation_id).out.splitlines() if "refused" in line)
    assert line.split()[1:4] == ["refused", "not_found", "apps.instance.stop"]
    assert "by user admin: " in line
    unknown = cli("triage", "cor_unknown", expect=4)
    assert "search the logs of the servers: https://logs.example/q?id=cor_unknown" in unknown.err
