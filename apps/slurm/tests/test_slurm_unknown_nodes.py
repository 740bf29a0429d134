"""Nodes of Slurm that belong to no member: which they are, what is reported about them, and when nothing is."""

import datetime
from typing import Any

import pytest
from gpuaas_app_slurm import health, plan, unknown_nodes
from gpuaas_app_slurm.workload import observed, state
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, Cluster, FakeJob, deployed_cluster
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster
from gpuaas_contract.instances import Condition
from test_slurm_checks import AMember
from test_slurm_health import OFTEN, line, looked, node, repairs, shows, until
from test_slurm_replace import at, cluster

__all__ = ["cluster"]  # a fixture

LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
GIVEN_UP: dict[str, Any] = {"flags": ["DRAIN", "IDLE"], "reason": "gpuaas:op_7: machine given up"}


def known(cluster: Cluster) -> Condition | None:
    conditions = cluster.platform.records.instances[cluster.instance.instance_id].conditions
    return next((each for each in conditions if each.type == plan.NODES_KNOWN), None)


def is_unknown(cluster: Cluster, text: str) -> bool:
    condition = known(cluster)
    return condition is not None and condition.status == "false" and text in condition.message


async def test_a_machine_that_was_given_up_and_returns_is_reported_until_its_slurmd_stops() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        shows(cluster, line(node("gpu-2"), node("gpu-3", slurmd_port="silent", **GIVEN_UP)))
        await until(lambda: known(cluster) is not None)
        assert (cluster.status(), getattr(known(cluster), "status", "")) == ("running", "true")
        shows(cluster, line(node("gpu-2"), node("gpu-3", **GIVEN_UP)))
        await until(lambda: is_unknown(cluster, "node gpu-3 was given up by force, and its slurmd has returned"))
        assert (cluster.status(), getattr(known(cluster), "reason", "")) == ("degraded", "UnknownNode")
        shows(cluster, line(node("gpu-2"), node("gpu-3", slurmd_port="refused", **GIVEN_UP)))
        await until(lambda: cluster.status() == "running")


async def test_a_node_of_unknown_origin_is_reported_and_not_touched() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        shows(cluster, line(node("gpu-2"), node("own", address="10.0.0.9")))
        await until(lambda: is_unknown(cluster, "Node own belongs to no member, and takes jobs"))
        await looked(cluster)
        assert (cluster.slurm.changes, list(cluster.platform.records.operations)) == ([], [])
        shows(cluster, line(node("gpu-2")))
        await until(lambda: cluster.status() == "running")


async def test_a_node_that_slurm_could_not_close_when_its_machine_was_given_up_is_closed_by_a_repair() -> None:
    async with deployed_cluster("gpu-2", "gpu-3", settings=OFTEN) as cluster:
        cluster.slurm.is_up, cluster.machines.host("gpu-3").reachable = False, False
        removed = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
        assert removed.status == "succeeded", removed.error
        cluster.slurm.is_up = True
        cluster.slurm.register("gpu-3")

        def is_closed() -> bool:
            shows(cluster, line(node("gpu-2"), node("gpu-3")))
            return "DRAIN" in cluster.slurm.nodes["gpu-3"]

        await until(is_closed)
        repair = repairs(cluster)[0]
        assert repair.reason.startswith("UnknownNode: the machine was given up, but Slurm can start jobs there: gpu-3")
        assert cluster.slurm.reasons["gpu-3"] == f"gpuaas:{repair.operation_id}: machine given up"
        assert is_unknown(cluster, "The machine of node gpu-3 was given up, and Slurm can start jobs there")
        assert cluster.slurm.nodes["gpu-2"] == ["IDLE"]


async def test_a_repair_leaves_a_machine_alone_that_was_given_up_and_joins_again(cluster: NewCluster) -> None:
    """A replace has brought up the machine and waits for the end of jobs. Its member names it only if it did not fail
    before."""
    _cut(cluster, "gpu-2")
    gone = await cluster.perform("remove", [at(cluster, "gpu-2")], force=True)
    assert gone.status == "succeeded", gone.error
    cluster.host("gpu-2").reachable = True
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3")]
    operation_id = await cluster.started("replace", [at(cluster, "gpu-3")], replacements=["gpu-2"])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    member = at(cluster, "gpu-3")
    cluster.platform.records.change_member(member, adapter_detail={"node_name": "gpu-3"})
    repaired = await cluster.perform("repair", [at(cluster, "gpu-1")])
    assert repaired.status == "succeeded", repaired.error
    assert cluster.slurm.nodes["gpu-2"] == ["IDLE"]
    cluster.slurm.jobs = []
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.slurm.nodes["gpu-2"]) == ("succeeded", ["IDLE"]), ended.error


@pytest.mark.parametrize("status", ["ready", "failed"])
async def test_a_node_is_not_reported_while_an_operation_that_may_join_it_runs(status: str) -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        shows(cluster, line(node("gpu-2")))
        await until(lambda: known(cluster) is not None)
        member = cluster.platform.records.change_member(cluster.member("gpu-2"), status=status)
        cluster.slurm.is_up = False  # The replace waits for slurmctld.
        operation_id = await cluster.started("replace", [member], replacements=["gpu-5"])
        await cluster.platform.until(operation_id, lambda now: now.status == "running")
        shows(cluster, line(node("gpu-2"), node("gpu-5")))
        shows(cluster, line(node("gpu-2"), node("gpu-5")))
        await looked(cluster)
        assert not is_unknown(cluster, "gpu-5")


@pytest.mark.parametrize(
    ("detail", "address", "is_known"),
    [
        ({"node_name": "host-5"}, "", True),
        ({"new_machine": "host-5"}, "", True),
        ({}, "10.0.0.5", True),
        ({}, "10.0.0.6", False),
    ],
)
async def test_a_node_belongs_to_the_member_that_names_it_or_has_its_address(
    detail: dict[str, str], address: str, is_known: bool
) -> None:
    async with deployed_cluster() as cluster:
        worker = cluster.platform.records.change_member(cluster.member("gpu-2"), adapter_detail=detail)
        worker = cluster.platform.records.change_member(worker, address="10.0.0.5")
        controller = cluster.member_of(cluster.instance, "gpu-1")
        seen = observed.parse(line(node("host-5", address=address)), CLUSTER_NAME)
        assert (plan.unknown("slurm", [controller, worker], seen) == "") is is_known


def test_a_node_that_a_person_drained_is_still_unknown_and_the_fix_deletes_it() -> None:
    seen = observed.parse(line(node("own", flags=["DRAIN", "IDLE"], reason="unknown")), CLUSTER_NAME)
    assert plan.unknown("slurm", [], seen).endswith("scontrol delete nodename=own")


def test_of_many_unknown_nodes_the_first_is_described_and_the_message_ends_with_its_command() -> None:
    nodes = [node(f"gpu-{number}", **GIVEN_UP) for number in range(10, 74)]
    text = plan.unknown("slurm", [], observed.parse(line(*nodes), CLUSTER_NAME))
    assert text.startswith("64 nodes of Slurm belong to no member: gpu-10, gpu-11,")
    assert " and 54 more. The machine of node gpu-10 was given up" in text
    assert text.endswith("gpuaas ssh gpu-10 --root -- sudo systemctl disable --now slurmd")
    assert len(text) <= health.MESSAGE_MAX


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ([{"left_behind": "packages"}], {"host-3"}),
        ([{}], set()),
        ([{"left_behind": "packages"}, {}], set()),
        ([{}, {"left_behind": "packages"}], {"host-3"}),
    ],
)
def test_of_the_members_that_a_machine_had_the_one_that_went_last_shows_whether_it_was_given_up(
    gone: list[dict[str, str]], expected: set[str]
) -> None:
    members = [
        AMember(
            f"mem_{number}",
            "worker",
            status="removed",
            adapter_detail={"node_name": "host-3"} | detail,
            updated_at=LONG_AGO + datetime.timedelta(hours=number),
        )
        for number, detail in enumerate(gone)
    ]
    assert unknown_nodes.given_up(reversed(members)) == expected


def test_the_machine_that_a_member_left_by_force_was_given_up_and_is_closed_unless_another_member_has_it() -> None:
    left = {"node_name": "gpu-2", "left_behind": "packages"}
    moved = AMember("mem_1", "worker", node_name="gpu-5", adapter_detail={"node_name": "gpu-5", "replaced": left})
    nodes = [state.Node(name, frozenset({"IDLE"})) for name in ("gpu-2", "gpu-5", "own")]
    assert unknown_nodes.to_close([moved], nodes) == ("gpu-2",)
    assert unknown_nodes.to_close([moved, AMember("mem_2", "worker", node_name="gpu-2")], nodes) == ()


def _cut(cluster: NewCluster, name: str) -> None:
    cluster.host(name).reachable = False
    cluster.slurm.nodes[name] = ["DOWN", "NOT_RESPONDING"]
