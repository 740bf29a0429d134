"""`gpuaas op statement`: what a decommission removed and left, and whether the platform signed it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

Cli = Any


@pytest.fixture(scope="module")
def decommission(cloud: Cli) -> str:
    """The id of a decommission that has ended."""
    cloud("deploy", "demo", "--name", "stated", "--set", "head_allocation=gpu-1", "--set", "worker_allocations=gpu-2")
    return str(cloud("decommission", "stated", "--yes", "--reason", "moved", "-o", "json").json["operation_id"])


def test_the_statement_lists_what_was_removed_and_left_and_its_signature_is_valid(
    cloud: Cli, decommission: str
) -> None:
    shown = cloud("op", "statement", decommission, "--verify")
    assert "gpu-2 worker: removed" in shown.out
    assert "  removed: the demo" in shown.out
    assert "  left: /tmp/x: the log is kept" in shown.out
    assert "it belongs to the project, not to the app: gpuaas allocation release gpu-2" in shown.out
    assert "The signature is valid (key " in shown.err
    assert f"gpuaas op statement {decommission} --verify" in cloud("describe", "operation", decommission).out


def test_a_statement_is_not_verified_with_another_key(cloud: Cli, decommission: str, tmp_path: Path) -> None:
    own, other, private = tmp_path / "own.pem", tmp_path / "other.pem", tmp_path / "private.pem"
    own.write_text(cloud("op", "statement-key").out)
    assert "The signature is valid" in cloud("op", "statement", decommission, "--key", str(own)).err
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", other], check=True)
    refused = cloud("op", "statement", decommission, "--key", str(other), expect=1)
    assert "The statement is not verified: the signature does not match" in refused.err
    assert refused.out == ""


def test_a_statement_can_be_verified_without_this_software(cloud: Cli, decommission: str, tmp_path: Path) -> None:
    """As docs/explanation/operations.md describes."""
    (tmp_path / "statement.json").write_text(cloud("op", "statement", decommission, "-o", "json").out)
    (tmp_path / "statement-key.pem").write_text(cloud("op", "statement-key").out)
    page = Path(__file__).parents[2] / "docs" / "explanation" / "operations.md"
    commands = "{ echo" + page.read_text().partition("```\n{ echo")[2].partition("```")[0]
    ran = subprocess.run(["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Signature Verified Successfully" in ran.stdout


def test_an_operation_that_removes_nothing_has_no_statement(cloud: Cli, decommission: str) -> None:
    deploy = next(item for item in cloud("get", "operations", "-o", "json").json["items"] if item["kind"] == "deploy")
    refused = cloud("op", "statement", deploy["operation_id"], expect=5)
    assert "Only a decommission or remove has a statement" in refused.err
