"""Nodes, allocations, and who may enter machines: a real server, the real executable."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Cli = Any


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key pair; the public key is beside it with `.pub`."""
    return _new_key(tmp_path_factory.mktemp("ssh") / "id", "ada@laptop")


def test_a_cordoned_node_shows_the_reason_and_accepts_work_again(spare: Cli) -> None:
    spare("node", "cordon", "spare-1", "--reason", "bad fan")
    (line,) = [line for line in spare("node", "list").out.splitlines() if line.startswith("spare-1 ")]
    assert "cordoned" in line
    assert line.endswith("bad fan")
    spare("node", "uncordon", "spare-1", "--reason", "fan is new")
    assert spare("get", "node", "spare-1", "-o", "json").json["admin_state"] == "active"


def test_one_node_is_described_on_a_page(spare: Cli) -> None:
    page = spare("node", "get", "spare-1").out
    assert "spare-1 (node_" in page
    assert "standard in local" in page
    assert spare("node", "get", "spare-1", "-o", "json").json["name"] == "spare-1"
    assert "next: gpuaas get nodes" in spare("node", "get", "spare1", expect=4).err


@pytest.fixture
def small(spare: Cli) -> Cli:
    """The spare nodes are the only ones of their SKU."""
    spare("node", "set", "spare-1", "spare-2", "--sku", "small", "--region", "local", "--reason", "sold again")
    return spare


def test_several_nodes_are_set_at_once_and_what_is_left_out_stays(spare: Cli) -> None:
    spare("node", "set", "spare-1", "spare-2", "--sku", "small", "--reason", "sold again")
    changed = spare("node", "set", "spare-2", "--region", "cellar", "--reason", "moved", "-o", "json").json["items"]
    assert [(node["sku"], node["region"]) for node in changed] == [("small", "cellar")]
    spare("node", "set", "spare-2", "--region", "local", "--reason", "moved back")
    assert "Name a SKU or a region" in spare("node", "set", "spare-1", "--reason", "x", expect=64).err


def test_a_typo_among_the_names_changes_nothing(spare: Cli) -> None:
    spare("node", "cordon", "spare-1", "sparrow", "--reason", "x", expect=4)
    assert spare("get", "node", "spare-1", "-o", "json").json["admin_state"] == "active"


def test_a_dry_run_names_the_nodes_or_why_each_does_not_fit(small: Cli) -> None:
    would = small("allocation", "request", "--sku", "small", "--count", "2", "--dry-run", "-o", "json")
    assert {allocation["node_name"] for allocation in would.json["items"]} == {"spare-1", "spare-2"}
    assert would.err == "Nothing was changed.\n"
    refused = small("allocation", "request", "--sku", "huge", "--dry-run", expect=1)
    assert "spare-1: its SKU is small" in refused.err
    assert "code=no_capacity" in refused.err
    assert "spare-1" not in small("allocation", "list", "-o", "json").out


def test_a_claim_is_drained_and_given_back(small: Cli) -> None:
    made = small("allocation", "request", "--region", "local", "--sku", "small", "--wait", "-o", "json").json["items"]
    name = made[0]["node_name"]
    assert name in small("allocation", "list", "--free").out
    drained = small("node", "drain", name, "--reason", "bad fan")
    assert f"{name} waits for its owners, who have been informed:" in drained.err
    assert made[0]["allocation_id"] in drained.err
    assert "still carries" in small("node", "retire", name, "--reason", "bad fan", expect=5).err
    released = small("allocation", "release", name, "--wait", "-o", "json").json["items"]
    assert [allocation["status"] for allocation in released] == ["released"]
    assert f"{name} is empty" in small("node", "drain", name, "--reason", "bad fan").err
    small("node", "uncordon", name, "--reason", "fan is new")


def test_a_node_that_was_used_shows_who_may_get_it_and_the_next_commands(spare: Cli) -> None:
    assert spare("get", "node", "spare-2", "-o", "json").json["tenancy"] == "clean"
    project = spare("allocation", "request", "--node", "spare-2", "--wait", "-o", "json").json["items"][0]["project_id"]
    spare("allocation", "release", "spare-2", "--wait")
    (line,) = [line for line in spare("node", "list").out.splitlines() if line.startswith("spare-2 ")]
    assert " used " in line
    page = spare("node", "get", "spare-2").out
    assert f"used by {project}; no other project gets it" in page
    assert "gpuaas node mark-sanitised spare-2 --reason REASON" in page
    refused = spare("node", "mark-sanitised", "spare-2", "--reason", "wiped", expect=5).err
    assert "gpuaas node token spare-2" in refused
    assert "no provisioner" in spare("node", "sanitise", "spare-2", "--reason", "wiped", expect=5).err


def test_a_claim_that_is_not_stuck_is_not_forced(spare: Cli) -> None:
    spare("allocation", "request", "--node", "spare-1", "--wait")
    spare("allocation", "force-release", "spare-1", "--reason", "hurry", expect=5)
    assert "--used needs a reason" in spare("allocation", "release", "spare-1", "--used", expect=64).err
    spare("allocation", "release", "spare-1", "--used", "--reason", "no matter", "--wait")


def test_a_credential_is_created_rotated_and_revoked_without_being_shown(cli: Cli, key: Path, tmp_path: Path) -> None:
    made = cli("credential", "create", "rack-7", "--username", "admin", "--key-file", str(key), "-o", "json")
    assert _secret(key) not in made.out + made.err
    other = _new_key(tmp_path / "other", "other")
    rotated = cli("credential", "rotate", "rack-7", "-o", "json", given=other.read_text())
    assert _secret(other) not in rotated.out + rotated.err
    assert (made.json["version"], rotated.json["version"]) == (1, 2)
    assert made.json["fingerprint"] != rotated.json["fingerprint"]
    assert rotated.json["fingerprint"] in cli("credential", "list").out
    cli("credential", "revoke", "rack-7", "--reason", "hosts are gone")
    assert "rack-7" not in cli("credential", "list").out
    assert "revoked" in cli("credential", "list", "--all").out


def test_a_missing_key_is_not_asked_for_with_no_input(stranger: Cli) -> None:
    terminal, child = pty.openpty()
    ended = subprocess.run(
        [*_program(), "credential", "create", "x", "--no-input"],
        stdin=child,
        capture_output=True,
        text=True,
        env=stranger.full_environment(),
        check=False,
    )
    os.close(terminal)
    os.close(child)
    assert ended.returncode == 64
    assert "--no-input forbids asking" in ended.stderr


def test_public_keys_are_registered_and_private_ones_never_leave(cli: Cli, key: Path) -> None:
    refused = cli("ssh-key", "add", str(key), expect=64)
    assert "holds a private key; nothing was sent" in refused.err
    added = cli("ssh-key", "add", f"{key}.pub", "-o", "json").json
    assert added["comment"] == "ada@laptop"
    assert added["fingerprint"] in cli("ssh-key", "list").out
    cli("ssh-key", "delete", "ada@laptop")
    assert added["ssh_key_id"] not in cli("ssh-key", "list").out


def test_people_are_put_on_a_machine_and_taken_off(spare: Cli, key: Path) -> None:
    spare("allocation", "request", "--node", "spare-2", "--wait")
    assert "No person's keys are on it." in spare("allocation", "people", "spare-2").out
    spare("ssh-key", "add", f"{key}.pub")
    chosen = spare("allocation", "people", "spare-2", "--only", "admin", "-o", "json").json["people"]
    assert [(person["name"], len(person["fingerprints"])) for person in chosen] == [("admin", 1)]
    assert spare("allocation", "people", "spare-2", "--only", "", "-o", "json").json["people"] == []
    spare("ssh-key", "delete", "ada@laptop")
    spare("allocation", "release", "spare-2", "--wait")


def test_grants_are_listed_and_ended(spare: Cli) -> None:
    spare("allocation", "request", "--node", "spare-2", "--wait")
    # The nodes of these tests have no sshd; the grant is made before ssh fails.
    spare("ssh", "spare-2", "--", "true", expect=None)
    (grant,) = spare("grant", "list", "--allocation", "spare-2", "-o", "json").json["items"]
    ended = spare("grant", "revoke", grant["grant_id"], "--reason", "laptop stolen", "-o", "json").json
    assert (ended["state"], ended["end_reason"]) == ("ended", "laptop stolen")
    assert spare("grant", "list", "--allocation", "spare-2", "-o", "json").json["items"] == []
    assert "laptop stolen" in spare("grant", "list", "--all").out
    spare("allocation", "release", "spare-2", "--wait")


def test_lab_hands_over_to_the_labs_own_program(stranger: Cli) -> None:
    assert "gpuaas-lab" in stranger("lab", "--help").out


def _new_key(path: Path, comment: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)
    return path


def _secret(key: Path) -> str:
    return key.read_text().splitlines()[2]


def _program() -> list[str]:
    return [str(Path(sys.executable).parent / "gpuaas")]
