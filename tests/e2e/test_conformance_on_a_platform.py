"""The conformance kit on a real platform, with a new app: on simulated machines in a network of their own, and on
machines of the lab with the commands of the page."""

import functools
import json
import sys
from pathlib import Path

import pytest
from gpuaas_sdk.conformance import ALL
from gpuaas_sdk.conformance.real.checks import LEFT_OUT, REAL
from guide_folder import Folder
from local_cloud import empty_cloud
from transcripts import Command

from bench import crashes

LAB, PORT = "conform", 7362
PROGRAM = Path(__file__).with_name("conforming_app.py")
BEFORE = """
gpuaas app init hello --kind service
pip install -q -e './hello[conformance]'
gpuaas up --nodes 2 --no-deploy
gpuaas-hello manifest > manifest.json
sed 's/"version": "1.1.0"/"version": "1.0.0"/' manifest.json > before.json
gpuaas app register before.json
gpuaas app publish hello 1.0.0
gpuaas app register manifest.json
gpuaas app publish hello 1.1.0
gpuaas app entitle hello
gpuaas service-account create hello --app hello --key-file key.json
"""

CONFORMANCE = "gpuaas app conformance hello --credentials key.json --json card.json"


@functools.cache
def has_private_networks() -> bool:
    return crashes.in_private_network(["true"], capture_output=True).returncode == 0


def test_a_new_app_conforms_on_the_real_platform_with_simulated_machines() -> None:
    if not has_private_networks():
        pytest.skip("needs root or user namespaces")
    chosen = ["operations", "health-promises", "residue"]
    command = ["env", f"PYTHONPATH={PROGRAM.parents[2]}", sys.executable, str(PROGRAM), *chosen]
    ran = crashes.in_private_network(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert [line.split()[:2] for line in ran.stdout.splitlines() if not line.startswith(" ")] == [
        ["pass", "operations"],
        ["n/a", "residue"],
        ["pass", "health-promises"],
    ]


@pytest.mark.machines
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_new_app_conforms_on_machines_of_the_lab(tmp_path: Path) -> None:
    """All checks that are possible there pass, and the instances of the kit are gone from the machines afterwards."""
    with empty_cloud(LAB, PORT) as cloud:
        folder = Folder(tmp_path, cloud)
        folder.make_environment()
        for line in (*BEFORE.strip().splitlines(), CONFORMANCE, "gpuaas get instances -o name > instances.txt"):
            folder.run(Command(line))
    verdicts = {entry["check"]: entry for entry in json.loads((tmp_path / "card.json").read_text())["verdicts"]}
    assert list(verdicts) == list(ALL)
    assert {name for name, entry in verdicts.items() if entry["result"] == "passed"} == {*REAL}
    assert {name for name, entry in verdicts.items() if entry["result"] == "not applicable"} == {*LEFT_OUT}
    assert verdicts["operations"]["reason"] == "left out: replace server (needs 3 machines)"
    assert (tmp_path / "instances.txt").read_text() == ""
