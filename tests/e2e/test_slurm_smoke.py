"""Every kind of operation and every action of the Slurm app once, by the command line, on machines without any package
source. What there is to run is read from the manifest.

Long: `make test-slurm` runs it."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import machine_state
import pytest
import slurm_bundles
from cloud_in_use import Cloud
from gpuaas_app_slurm.controller import app
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, OperationKind
from slurm_people import rows, until

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(3600)]

LAB, PORT = "smoke", "7301"
NODES = tuple(f"gpu-{number}" for number in range(1, 6))
WHY = "--reason smoke"
SCRIPT = "#!/bin/bash\n#SBATCH --mem=16\nid -un\n"
LONG = "#!/bin/bash\n#SBATCH --mem=16\nsleep 600\n"


class Case(NamedTuple):
    kind: str
    role: str
    words: str
    """The command, without `gpuaas`. `{new}` is the newer app version."""


CHANGES = (
    Case("add", "worker", f"member add slurm --role worker --allocation gpu-3 {WHY}"),
    Case("drain", "worker", f"member drain slurm gpu-3 {WHY}"),
    Case("resume", "worker", f"member resume slurm gpu-3 {WHY}"),
    Case("repair", "worker", f"member repair slurm gpu-3 {WHY}"),
    Case("repair", "controller", f"member repair slurm gpu-1 {WHY}"),
    Case("replace", "worker", f"member replace slurm gpu-3 --with gpu-4 {WHY}"),
    Case("remove", "worker", f"member remove slurm gpu-4 {WHY}"),
    Case("add", "worker", f"member add slurm --role worker --allocation gpu-3 {WHY}"),
    Case("remove", "worker", f"member remove slurm gpu-3 --force {WHY}"),
    Case("add", "login", f"member add slurm --role login --allocation gpu-5 {WHY}"),
    Case("repair", "login", f"member repair slurm gpu-5 {WHY}"),
    Case("replace", "login", f"member replace slurm gpu-5 --with gpu-4 {WHY}"),
    Case("remove", "login", f"member remove slurm gpu-4 {WHY}"),
    Case("reconfigure", "", f"reconfigure slurm --set default_time=00:30:00 {WHY}"),
    Case("reconfigure", "", f"reconfigure slurm --previous {WHY}"),
    Case("stop", "", f"stop slurm {WHY}"),
    Case("start", "", f"start slurm {WHY}"),
    Case("restart", "", f"restart slurm {WHY}"),
)
LATER_CHANGES = (
    Case("upgrade", "", f"upgrade slurm --version {{new}} {WHY}"),
    Case("rollback", "", f"rollback slurm {WHY}"),
    Case("replace", "controller", f"member replace slurm gpu-1 --role controller --with gpu-3 {WHY}"),
)
END = Case("decommission", "", f"decommission slurm --yes {WHY}")

Results = dict[str, list[dict[str, Any]]]
ACTIONS: dict[str, Callable[[Results], dict[str, Any]]] = {
    "users.list": lambda results: {},
    "users.sync": lambda results: {},
    "users.add": lambda results: {"names": ["guest"]},
    "users.limits": lambda results: {"login": "guest", "max_jobs": 5},
    "users.remove": lambda results: {"names": ["guest"]},
    "queue.submit": lambda results: {"script": SCRIPT, "name": "first"},
    "queue.read": lambda results: {},
    "node.reboot": lambda results: {"nodes": [_busy_node(results)]},
    "job.logs": lambda results: {"job": results["queue.submit"][0]["job_id"]},
    "queue.cancel": lambda results: {"jobs": [results["queue.submit"][-2]["job_id"]]},
    "queue.cancel_any": lambda results: {"jobs": [results["queue.submit"][-1]["job_id"]]},
    "usage.read": lambda results: {},
    "node.read": lambda results: {},
    "node.label": lambda results: {"node": "gpu-2", "labels": ["fast"]},
    "reservation.create": lambda results: {
        "name": "course",
        "minutes": 5,
        "users": ["researcher"],
        "nodes": ["gpu-2"],
        "ignore_jobs": True,
    },
    "reservation.list": lambda results: {},
    "reservation.remove": lambda results: {"name": "course"},
    "accounting.backup": lambda results: {},
    "accounting.backups": lambda results: {},
    "accounting.restore": lambda results: {
        "name": results["accounting.backup"][0]["name"],
        "confirm": slurm_bundles.CLUSTER,
    },
    "token.issue": lambda results: {},
    "auth.rotate": lambda results: {},
}
"""The inputs of each action, from the results of the ones before."""


class World(NamedTuple):
    cloud: Cloud
    versions: dict[str, str]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with slurm_bundles.air_gapped(LAB, PORT, len(NODES)) as (cloud, versions):
        yield World(cloud, versions)


def test_every_operation_and_every_action_of_the_manifest_runs_and_nothing_is_left(world: World) -> None:
    cases = {(case.kind, case.role) for case in (*CHANGES, *LATER_CHANGES, END)} | {("deploy", "")}
    assert (cases, set(ACTIONS)) == (offered(), {action.name for action in app.manifest.actions})
    before = {name: machine_state.capture(LAB, name) for name in NODES}
    slurm_bundles.deploy(world.cloud, world.versions["old"], workers="gpu-2", rest_api="true")
    for case in CHANGES:
        _run(world, case)
    _every_action(world.cloud)
    _what_is_not_offered_is_refused(world.cloud)
    for case in (*LATER_CHANGES, END):
        _run(world, case)
    done = {
        (item["kind"], item["component_key"])
        for item in world.cloud.listed("operations")
        if item["status"] == "succeeded"
    }
    assert done >= cases
    _the_statement_verifies(world.cloud)
    assert [change for name in NODES for change in slurm_bundles.traces(LAB, name, before[name])] == []


def offered() -> set[tuple[str, str]]:
    """The kinds of the manifest, each with its role."""
    of_members = {(kind, role.component_key) for role in app.manifest.roles for kind in role.operations}
    return of_members | {(kind, "") for kind in ("deploy", "decommission", *app.manifest.instance_operations)}


def _run(world: World, case: Case) -> None:
    began = time.monotonic()
    until(f"{case.words} is not refused", lambda: _accepted(world, case))
    sys.stdout.write(f"{case.kind} {case.role}: {time.monotonic() - began:.1f} s\n")


def _accepted(world: World, case: Case) -> bool:
    """Run the case, unless the app repairs a member by itself at the moment."""
    done = world.cloud.gpuaas(*case.words.format(**world.versions).split(), check=False)
    assert done.returncode == 0 or "operation_in_progress" in done.stderr, f"{case.words}: {done.stderr[-2000:]}"
    return done.returncode == 0


def _every_action(cloud: Cloud) -> None:
    """Run the actions in order. Each row has only columns that the manifest declares."""
    columns = {
        action.name: {column.name for column in action.result.columns}
        for action in app.manifest.actions
        if action.result
    }
    results: Results = {}
    for name, inputs in ACTIONS.items():
        results[name] = rows(cloud, None, name, **inputs(results))
        assert all(set(row) <= columns[name] for row in results[name]), f"{name}: {results[name]}"
        if name == "queue.submit":
            until("the job has ended", lambda: rows(cloud, None, "queue.read") == [])
            for _ in ("queue.cancel", "queue.cancel_any"):
                results[name] += rows(cloud, None, name, script=LONG)
            until("a job runs", lambda: any(row["node_names"] for row in rows(cloud, None, "queue.read")))
        if name == "node.reboot":
            # The machine would restart at the end of the job, and the lab would have to start it again.
            node = _busy_node(results)
            assert "REBOOT_REQUESTED" in cloud.on("gpu-1", f"scontrol show node {node} | grep State=")
            cloud.on("gpu-1", f"scontrol cancel_reboot {node}; scontrol update nodename={node} state=resume || true")
    assert [line["line"] for line in results["job.logs"]] == ["admin"]


def _busy_node(results: Results) -> str:
    return next(str(row["node_names"]) for row in results["queue.read"] if row["node_names"])


def _what_is_not_offered_is_refused(cloud: Cloud) -> None:
    """The platform refuses what the app does not offer for its controller, and names the kind."""
    for kind in sorted({*get_args(OperationKind)} - ASKING_KINDS - INSTANCE_KINDS):
        if (kind, "controller") not in offered():
            words = ("--role", "controller") + (("--allocation", "gpu-5") if kind == "add" else ("gpu-1",))
            more = ("--with", "gpu-5") if kind == "replace" else ()
            done = cloud.gpuaas("member", kind, "slurm", *words, *more, check=False)
            assert (done.returncode != 0, kind in done.stderr) == (True, True), f"{kind}: {done.stderr}"


def _the_statement_verifies(cloud: Cloud) -> None:
    operation_id = next(item["operation_id"] for item in cloud.listed("operations") if item["kind"] == "decommission")
    cloud.gpuaas("op", "statement", operation_id, "--verify")
