"""The node agent: its releases, nodes that take them one after another, and the tasks of nodes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_agent import AGENT_VERSION, build, signer
from gpuaas_cli.work import rollout
from gpuaas_contract.agents import AgentRelease
from gpuaas_contract.capacity import Node

Cli = Any


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, release_key: Path) -> Path:
    """The agent, built and signed as a release is."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    build.build(path)
    signer.sign(path, release_key)
    return path


@pytest.fixture(scope="module")
def colleague(fleet: Cli, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A second operator of the platform, with a home of their own."""
    password = "correct horse battery staple"
    fleet("user", "create", "dora", "--password", given=f"{password}\n")
    fleet("binding", "grant", "dora", "platform_ops", "--platform")
    second = type(fleet)(tmp_path_factory.mktemp("colleague"))
    second("login", "--server", server.url, "--name", "dora", given=f"{password}\n")
    return second


@pytest.fixture(scope="module")
def registered(fleet: Cli, archive: Path) -> Any:
    return fleet("agent", "register", str(archive), "-o", "json")


@pytest.fixture(scope="module")
def release(registered: Any, colleague: Cli) -> dict[str, Any]:
    """A release that a second person approved."""
    named = registered.json["version"]
    approved: dict[str, Any] = colleague("agent", "approve", named, "--reason", "same bytes", "-o", "json").json
    return approved


def test_a_release_is_installed_only_after_another_person_approved_it(
    fleet: Cli, colleague: Cli, archive: Path, registered: Any
) -> None:
    made = registered.json
    content = archive.read_bytes()
    assert (made["sha256"], made["version"]) == (hashlib.sha256(content).hexdigest(), AGENT_VERSION)
    assert (made["status"], made["approved_by"]) == ("registered", "")
    assert f"gpuaas agent approve {AGENT_VERSION} --reason REASON" in registered.err
    to = ("--to", AGENT_VERSION, "--reason", "x")
    early = fleet("agent", "upgrade", "fleet-1", *to, expect=5)
    assert "code=agent_release_unapproved" in early.err
    own = fleet("agent", "approve", AGENT_VERSION, "--reason", "I trust myself", expect=3)
    assert "another person must approve it" in own.err

    approved = colleague("agent", "approve", made["sha256"][:12], "--reason", "built it too: the same SHA-256")
    assert "approved" in approved.out
    assert f"next: gpuaas agent upgrade NODE --to {AGENT_VERSION}" in approved.err
    again = fleet("agent", "register", str(archive), "-o", "json").json
    assert (again["status"], again["registered_by"]) == ("approved", made["registered_by"])
    assert fleet("agent", "list", "-o", "json").json["items"] == [again]


def test_a_region_without_nodes_is_an_error_and_not_a_finished_upgrade(fleet: Cli, release: dict[str, Any]) -> None:
    ended = fleet("agent", "upgrade", "--region", "absent", "--to", release["version"], "--reason", "x", expect=4)
    assert "No node matches" in ended.err


def test_what_is_not_a_signed_build_is_not_registered(fleet: Cli, archive: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.pyz"
    assert "cannot be read" in fleet("agent", "register", str(file), expect=64).err
    file.write_bytes(archive.read_bytes() + b"more")
    unsigned = fleet("agent", "register", str(file), expect=64)
    assert f"next: python -m gpuaas_agent.signer sign {file} --key KEY" in unsigned.err
    Path(f"{file}.sig").write_text("{}")
    assert "is not the signature of a build" in fleet("agent", "register", str(file), expect=64).err
    refused = fleet("agent", "register", str(file), "--signature", f"{archive}.sig", expect=1)
    assert "code=agent_signature_invalid" in refused.err
    document = json.loads(Path(f"{archive}.sig").read_text())
    Path(f"{file}.sig").write_text(json.dumps({**document, "version": "9.9.9"}))
    assert "code=agent_signature_invalid" in fleet("agent", "register", str(file), expect=1).err


def test_a_rollout_stops_at_the_first_failure_and_continues_where_it_ended(fleet: Cli, release: dict[str, Any]) -> None:
    would = fleet("agent", "upgrade", "--sku", "fleet", "--to", release["version"], "--reason", "x", "--dry-run")
    assert (would.out.count("agent.upgrade"), would.err) == (3, "Nothing was changed.\n")
    ended = fleet(
        *("agent", "upgrade", "stubborn-1", "fleet-2", "--to", release["version"], "--reason", "try it"), expect=1
    )
    assert "ERROR: stubborn-1: version 0.1.0 stays" in ended.err
    assert "code=agent_did_not_report" in ended.err
    assert "Not asked: fleet-2." in ended.err
    assert "next: gpuaas node task describe stubborn-1 task_" in ended.err
    assert fleet("node", "get", "fleet-2", "-o", "json").json["agent_sha256"] == ""

    first = fleet("agent", "upgrade", "fleet-1", "--to", release["sha256"][:12], "--reason", "try it", "-o", "json")
    assert [task["state"] for task in first.json["items"]] == ["succeeded"]
    assert fleet("node", "get", "fleet-1", "-o", "json").json["agent_sha256"] == release["sha256"]

    rest = fleet("agent", "upgrade", "--sku", "fleet", "--to", release["version"], "--reason", "the rest", expect=1)
    assert f"fleet-1 runs {release['version']} already." in rest.err
    assert "fleet-2 (1 of 2): agent 0.1.0 -> " in rest.err
    assert fleet("node", "get", "fleet-2", "-o", "json").json["agent_sha256"] == release["sha256"]


@pytest.mark.parametrize("words", [[], ["fleet-1", "--all"]])
def test_nodes_are_named_or_chosen_not_both_and_not_neither(
    words: list[str], fleet: Cli, release: dict[str, Any]
) -> None:
    ended = fleet("agent", "upgrade", *words, "--to", release["version"], "--reason", "x", expect=64)
    assert "Name nodes, or choose them" in ended.err


def test_what_an_upgrade_names_must_be_there(fleet: Cli, release: dict[str, Any]) -> None:
    assert "gpuaas agent list" in fleet("agent", "upgrade", "--all", "--to", "7", "--reason", "x", expect=4).err
    fleet("agent", "upgrade", "fleet1", "--to", release["version"], "--reason", "x", expect=4)


def test_a_node_reports_its_facts_and_its_health(fleet: Cli) -> None:
    assert "hostname   fleet-1" in fleet("node", "inspect", "fleet-1").out
    assert "disk_has_room  yes" in fleet("node", "health", "fleet-1").out
    sick = fleet("node", "health", "fleet-1", "stubborn-1", expect=1)
    assert "stubborn-1  disk_has_room  no" in sick.out
    assert fleet("node", "health", "fleet-1", "-o", "json").json["items"][0]["result"]["ok"] is True


def test_tasks_of_a_node_are_listed_and_described(fleet: Cli) -> None:
    fleet("node", "inspect", "fleet-1")
    tasks = fleet("node", "task", "list", "fleet-1", "-o", "json").json["items"]
    task = next(item for item in tasks if item["type"] == "host.facts")
    page = fleet("node", "task", "describe", "fleet-1", task["task_id"]).out
    assert "State        succeeded" in page
    assert "hostname" in page
    fleet("node", "task", "describe", "fleet-1", "task_none", expect=4)


def test_a_rollout_includes_the_nodes_that_respond_and_run_another_release() -> None:
    release = msgspec.convert(
        {
            **dict.fromkeys(("signature", "key_id", "registered_by"), "x"),
            "sha256": "new",
            "version": "2",
            "size_bytes": 1,
            "status": "approved",
            "registered_at": _MOMENT,
        },
        AgentRelease,
    )
    nodes = [_node("old"), _node("done", agent_sha256="new"), _node("away", status="lost")]
    planned = rollout.plan(nodes, release)
    assert [[node.name for node in part] for part in (planned.wanted, planned.current, planned.silent)] == [
        ["old"],
        ["done"],
        ["away"],
    ]
    assert rollout.left_out(planned, release) == [
        "done runs 2 already.",
        "away sends no heartbeat and was left out; try again when it does.",
    ]


_MOMENT = "2030-01-01T00:00:00Z"


def _node(name: str, *, status: str = "ready", agent_sha256: str = "") -> Node:
    texts = ("node_id", "region", "sku", "address", "ssh_host_public_key", "agent_version", "boot_id")
    return msgspec.convert(
        {
            **dict.fromkeys(texts, ""),
            "name": name,
            "status": status,
            "agent_sha256": agent_sha256,
            "facts": {"hostname": name, "cpus": 1, "memory_mb": 1},
            "enrolled_at": _MOMENT,
            "last_seen_at": _MOMENT,
            "allocation_id": None,
        },
        Node,
    )
