"""What people do with their own access, and operators in an emergency: passwords, sessions, keys, breaking glass."""

import dataclasses
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpuaas_cli import failures
from gpuaas_cli.client import sign_in

Cli = Any
PASSWORD = "a long enough password"
PROGRAM = str(Path(sys.executable).parent / "gpuaas")


@pytest.fixture(scope="module")
def grace(cli: Cli) -> dict[str, Any]:
    """A person without a role."""
    person: dict[str, Any] = cli("user", "create", "grace", "--password", "-o", "json", given=f"{PASSWORD}\n").json
    return person


@pytest.fixture
def as_grace(grace: dict[str, Any], server: Any, stranger: Cli) -> Cli:
    stranger("login", "--server", server.url, "--name", "grace", given=f"{PASSWORD}\n")
    return stranger


def test_contexts_are_listed_with_the_current_one_marked_and_without_tokens(server: Any, stranger: Cli) -> None:
    for name in ("first", "second"):
        stranger("login", "--server", server.url, "--name", "admin", "--context", name, given=f"{server.password}\n")
    header, *lines = stranger("context", "list").out.splitlines()
    assert header.split() == ["CONTEXT", "CURRENT", "SERVER", "PROJECT", "SIGNED_IN"]
    assert [line.split()[:3] for line in lines] == [["first", "-", server.url], ["second", "*", server.url]]
    listed = stranger("context", "list", "-o", "json", GPUAAS_CONTEXT="first")
    assert [(row["name"], row["current"]) for row in listed.json["items"]] == [("first", True), ("second", False)]
    assert "gpuaas_session" not in listed.out
    assert stranger("context", "use", "first").err == f"The current context is first ({server.url}).\n"
    assert stranger("context", "list").out.splitlines()[1].split()[:2] == ["first", "*"]
    assert "next: gpuaas context list" in stranger("context", "use", "third", expect=4).err


def test_ones_own_password_is_changed_from_stdin_and_ends_other_sessions(
    as_grace: Cli, server: Any, tmp_path: Path
) -> None:
    other = dataclasses.replace(as_grace, home=tmp_path / "other")
    other("login", "--server", server.url, "--name", "grace", given=f"{PASSWORD}\n")
    wrong = as_grace("password", given="not mine at all\nanother good password\n", expect=3)
    assert "The present password is wrong" in wrong.err
    changed = as_grace("password", given=f"{PASSWORD}\nanother good password\n")
    assert "another good" not in changed.out + changed.err
    as_grace("whoami")
    other("whoami", expect=3)
    as_grace("password", given=f"another good password\n{PASSWORD}\n")


def test_sessions_are_listed_and_ended(as_grace: Cli, server: Any, tmp_path: Path) -> None:
    other = dataclasses.replace(as_grace, home=tmp_path / "other")
    other("login", "--server", server.url, "--name", "grace", given=f"{PASSWORD}\n")
    sessions = other("session", "list", "-o", "json").json["items"]
    mine = [session["session_id"] for session in sessions if session["current"]]
    assert len(mine) == 1
    as_grace("session", "end", mine[0])
    other("whoami", expect=3)


def test_a_key_signs_in_is_rotated_with_grace_and_revoked(cli: Cli, stranger: Cli, server: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    cli("service-account", "create", "roamer", "--key-file", str(first))
    stranger("login", "--server", server.url, "--key-file", str(first))
    assert stranger("whoami", "-o", "name").out == "roamer\n"
    key_id = json.loads(first.read_text())["key_id"]
    rotated = cli("service-account", "rotate-key", "roamer", key_id, "--key-file", str(second), "--grace", "1h")
    assert json.loads(second.read_text())["client_secret"] not in rotated.out + rotated.err
    stranger("login", "--server", server.url, "--key-file", str(first))
    keys = cli("service-account", "keys", "roamer", "-o", "json").json["items"]
    assert {key["key_id"]: key["expires_at"] is not None for key in keys}[key_id] is True
    cli("service-account", "revoke-key", "roamer", key_id)
    stranger("whoami", expect=3)
    stranger("login", "--server", server.url, "--key-file", str(first), expect=3)
    assert (
        "more than a day"
        in cli(*("service-account", "rotate-key", "roamer", key_id, "--key-file", "-", "--grace", "2d"), expect=64).err
    )
    assert "holds no key" in stranger("login", "--server", server.url, "--key-file", "-", given="{}", expect=64).err


def test_a_service_account_is_switched_off_on_and_deleted(cli: Cli, stranger: Cli, server: Any, tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    made = cli("service-account", "create", "passing", "--key-file", str(key), "-o", "json").json
    stranger("login", "--server", server.url, "--key-file", str(key))
    cli("service-account", "disable", "passing")
    stranger("whoami", expect=3)
    assert cli("get", "service-account", made["service_account_id"], "-o", "json").json["state"] == "disabled"
    cli("service-account", "enable", "passing")
    stranger("login", "--server", server.url, "--key-file", str(key))
    cli("service-account", "delete", "passing")
    assert "passing" not in cli("service-account", "list", "-o", "name").out.split()
    stranger("whoami", expect=3)


def test_glass_is_broken_with_a_reason_and_never_by_accident(cli: Cli) -> None:
    project_id = cli("get", "project", "research", "-o", "json").json["project_id"]
    words = ("break-glass", project_id, "--reason", "ticket 4711: the head node hangs")
    assert "The command must be confirmed, but there is no terminal" in cli(*words, expect=64).err
    assert "Missing option '--reason'" in cli("break-glass", project_id, expect=64).err
    cli(*words, "--dry-run")
    given = cli(*words, "--minutes", "1", "--yes", "-o", "json").json
    assert (given["role"], given["scope"], given["reason"]) == ("break_glass", project_id, words[3])
    assert words[3] in cli("binding", "list").out


def test_break_glass_access_is_ended_by_the_projects_name(cli: Cli) -> None:
    cli("break-glass", "research", "--reason", "ticket 4711: the head node hangs", "--yes")
    cli("break-glass", "research", "--end", "--dry-run")
    ended = cli("break-glass", "research", "--end")
    assert "its organisation can see that" in ended.err
    assert "break_glass" not in cli("binding", "list").out
    assert "You have no temporary access to research" in cli("break-glass", "research", "--end", expect=4).err


def test_a_person_types_the_name_of_what_they_are_about_to_hit(cli: Cli) -> None:
    ended = _typed(cli, ["break-glass", "research", "--reason", "ticket 4711: no one answers"], "acme\n")
    assert "That is another name; nothing was changed" in ended
    assert "break_glass" in _typed(
        cli, ["break-glass", "research", "--minutes", "1", "--reason", "ticket 4711: no one answers"], "research\n"
    )


def test_custody_reports_that_it_is_open(cli: Cli) -> None:
    assert cli("custody", "status", "-o", "json").json["sealed"] is False
    assert cli("custody", "status", "-o", "name").out == "open\n"


def test_a_sealed_server_is_opened_with_a_passphrase_from_stdin(stranger: Cli, guarded_server: Any) -> None:
    stranger("login", "--server", guarded_server.url, "--name", "admin", given=f"{guarded_server.password}\n")
    sealed = stranger("custody", "status")
    assert "sealed" in sealed.out
    assert "next: gpuaas custody unseal" in sealed.err
    unsealed = stranger("custody", "unseal", "-o", "json", given="correct horse battery\n")
    assert unsealed.json["sealed"] is False
    assert "correct horse" not in unsealed.out + unsealed.err


def test_a_person_signs_in_through_a_browser(stranger: Cli, guarded_server: Any) -> None:
    with subprocess.Popen(
        [PROGRAM, "login", "--server", guarded_server.url, "--browser"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=stranger.full_environment(),
    ) as signing:
        assert signing.stdin is not None
        assert signing.stderr is not None
        address = next(line.strip() for line in signing.stderr if "http" in line)
        signing.stdin.write(f"{_in_the_browser(address)}\n")
        signing.stdin.close()
        output = signing.stderr.read()
    assert signing.returncode == 0, output
    assert stranger("whoami", "-o", "json").json["actor_type"] == "user"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://x/?error=access_denied&error_description=not+you", "The provider refused: not you"),
        ("http://x/", "contains no code and no state"),
        ("http://x/?code=c&state=theirs", "belongs to another sign-in"),
    ],
)
def test_an_address_that_does_not_answer_this_sign_in_is_refused(address: str, message: str) -> None:
    with pytest.raises(failures.Failure, match=message):
        sign_in.returned(address, "ours")


def _in_the_browser(address: str) -> str:
    """What a person does there; the answer is where the provider sends the browser."""
    with httpx.Client(trust_env=False) as browser:
        answer = browser.post(address, data={"sub": "person-at-the-browser"})
    return str(answer.headers["location"])


def _typed(cli: Cli, words: list[str], text: str) -> str:
    """Return the output of a command that a person answers at a terminal."""
    terminal, child = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *words], stdin=child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=cli.full_environment()
    )
    os.close(child)
    os.write(terminal, text.encode())
    output, _ = process.communicate(timeout=60)
    os.close(terminal)
    return output.decode()


def test_a_project_is_shown_renamed_and_deleted_once_it_is_empty(cli: Cli) -> None:
    cli("project", "create", "spare", "--org", "acme")
    project_id = cli("project", "get", "spare", "-o", "json").json["project_id"]
    assert cli("project", "rename", "spare", "lab", "-o", "json").json["name"] == "lab"
    assert cli("project", "get", project_id, "-o", "json").json["revision"] == 2
    cli("service-account", "create", "robot", "--project", "lab")
    refused = cli("project", "delete", "lab", expect=5)
    assert "The project still owns 1 service account (sa_" in refused.err
    cli("service-account", "delete", "robot", "--project", "lab")
    assert cli("project", "delete", "lab", "-o", "json").json["project_id"] == project_id
    assert "project_id" not in cli("get", "projects", "lab", expect=4).out
