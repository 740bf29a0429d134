"""Checks of nodes and jobs, on answers recorded from real daemons (samples/)."""

import json
from pathlib import Path

import msgspec
import pytest
from gpuaas_app_slurm.workload import state, versions

SAMPLES = Path(__file__).parent / "samples"


def _nodes(sample: str) -> dict[str, state.Node]:
    return {node.name: node for node in state.parse_nodes((SAMPLES / sample).read_text())}


def _jobs() -> dict[int, state.Job]:
    return {job.job_id: job for job in state.parse_jobs((SAMPLES / "jobs.json").read_text())}


def test_a_job_shows_the_machine_on_which_its_user_submitted_it() -> None:
    assert {job.submit_host for job in _jobs().values()} == {"gpu-1"}


def test_only_jobs_of_commands_that_wait_on_a_machine_are_lost_with_it() -> None:
    batch, srun = state.Job(1, "ada", "RUNNING", submit_host="a"), state.Job(2, "bob", "PENDING", submit_host="a")
    srun = msgspec.structs.replace(srun, is_batch=False)
    assert state.no_commands("a", (batch, srun)).reason == "commands on a wait for 1 job: 2 (bob)"
    assert state.no_commands("b", (batch, srun)).ok


def test_a_list_of_more_nodes_than_a_cluster_can_have_is_cut_instead_of_filling_the_memory() -> None:
    assert state.hosts("gpu-[1-3,07],login") == ("gpu-1", "gpu-2", "gpu-3", "gpu-07", "login")
    assert len(state.hosts("x[1-300][1-300]")) == state.HOSTS_MAX


def test_an_idle_node_is_idle_and_shows_its_hardware() -> None:
    node = _nodes("nodes.json")["gpu-4"]
    assert state.node_idle("gpu-4", node).ok
    assert (node.cpus, node.gpus, node.slurm_state) == (2, 2, "IDLE")
    assert node.memory_mb > 0
    assert node.version.startswith("24.11")


def test_a_node_that_slurm_does_not_have_is_not_idle() -> None:
    assert state.node_idle("gpu-9", None).reason == "Slurm has no node gpu-9"


def test_a_draining_node_names_its_jobs_and_their_end() -> None:
    node, jobs = _nodes("nodes.json")["gpu-2"], _jobs()
    running = tuple(job for job in jobs.values() if job.state == "RUNNING")
    check = state.node_drained("gpu-2", node, running)
    assert not check.ok
    assert check.reason.startswith("2 jobs still on gpu-2: ")
    assert "2 (researcher, ends by " in check.reason
    assert "3 (researcher)" in check.reason


@pytest.mark.parametrize("seconds", [253402300799, 253402300800, 16_725_225_600_000, 2**63 - 1])
def test_a_job_that_begins_after_the_last_year_of_the_calendar_has_no_known_time(seconds: int) -> None:
    """Everyone can submit it: `sbatch --begin=now+500000weeks`. Every operation that reads the queue would fail."""
    moment = {"set": True, "number": seconds}
    raw = {"job_id": 7, "job_state": ["PENDING"], "start_time": moment, "end_time": moment}
    (job,) = state.parse_jobs(json.dumps({"jobs": [raw]}))
    assert (job.job_id, job.started_at, job.ends_at) == (7, None, None)


def test_a_job_is_over_when_its_nodes_have_released_it() -> None:
    nodes = tuple(state.Node(name, frozenset({"IDLE", *flags})) for name, flags in (("a", ["COMPLETING"]), ("b", [])))
    assert state.last_job_over(("a", "b"), nodes).reason == "a: still finishing the last job"
    assert state.last_job_over(("b",), nodes).ok


def test_a_node_that_runs_work_is_not_drained_even_if_the_job_list_is_empty() -> None:
    node = _nodes("nodes.json")["gpu-2"]
    assert not state.node_drained("gpu-2", node, ()).ok


def test_a_drained_node_is_drained_and_keeps_its_reason() -> None:
    node = _nodes("nodes.json")["gpu-3"]
    assert state.node_drained("gpu-3", node, ()).ok
    assert (node.reason, node.reason_by) == ("bad DIMM", "root")
    assert state.drained_by_others(node)
    assert not state.drained_by_app(node)


def test_a_drain_of_the_app_is_recognised_by_its_reason() -> None:
    assert state.drained_by_app(_nodes("nodes.json")["gpu-2"])


def test_a_node_that_does_not_answer_is_never_drained() -> None:
    silent = state.Node("gpu-4", frozenset({"IDLE", "DRAIN", "NOT_RESPONDING"}), reason="gpuaas:op_7: x")
    check = state.node_drained("gpu-4", silent, ())
    assert not check.ok
    assert "unknown" in check.reason


def test_the_reason_for_a_dead_node_is_that_it_is_down_and_why() -> None:
    check = state.node_idle("gpu-4", _nodes("nodes_down.json")["gpu-4"])
    assert not check.ok
    assert check.reason == "node gpu-4 is down and does not answer: Not responding"


def test_an_undrained_node_is_not_drained() -> None:
    assert not state.node_drained("gpu-4", _nodes("nodes.json")["gpu-4"], ()).ok


def test_queued_jobs_keep_a_cluster_from_being_quiet() -> None:
    check = state.cluster_quiet(tuple(_jobs().values()))
    assert not check.ok
    assert "3 jobs running or queued" in check.reason
    assert "4 (researcher, PENDING)" in check.reason
    assert state.cluster_quiet(()).ok


def test_a_controller_answers_if_the_ping_reports_up() -> None:
    assert state.controller_answers((SAMPLES / "ping_up.txt").read_text()).ok


@pytest.mark.parametrize(
    ("ping", "reason"),
    [
        ("Slurmctld(primary) at gpu-1 is DOWN\n*** RESTORE SLURMCTLD DAEMON TO SERVICE ***\n", "is DOWN"),
        ("", "printed nothing"),
    ],
    ids=["down", "silent"],
)
def test_a_controller_does_not_answer_unless_the_ping_reports_up(ping: str, reason: str) -> None:
    check = state.controller_answers(ping)
    assert (check.ok, reason in check.reason) == (False, True)


@pytest.mark.parametrize(("clusters", "ready"), [("lab\n", True), ("other\n", False)])
def test_accounting_is_ready_if_slurmdbd_has_the_cluster(clusters: str, ready: bool) -> None:
    assert state.accounting_answers(clusters, "lab").ok is ready


def test_the_first_job_must_have_run_on_every_node() -> None:
    assert state.canary_ran("gpu-3\ngpu-2\n", ("gpu-2", "gpu-3")).ok
    assert "gpu-3" in state.canary_ran("gpu-2\n", ("gpu-2", "gpu-3")).reason


def test_typed_gpus_are_counted_too() -> None:
    raw = '{"nodes": [{"name": "n", "state": ["IDLE"], "gres": "gpu:a100:4(S:0-1),gpu:t4:2,shard:8"}]}'
    assert state.parse_nodes(raw)[0].gpus == 6


@pytest.mark.parametrize(
    ("shown", "version"),
    [("SLURM_CONF  = /etc/slurm/slurm.conf\nSLURM_VERSION           = 24.11.5\n", "24.11.5"), ("nothing", "")],
)
def test_the_running_version_is_read_from_the_controllers_configuration(shown: str, version: str) -> None:
    assert state.running_version(shown) == version


def test_a_node_counts_as_upgraded_only_after_it_registered_with_the_version_of_its_package() -> None:
    node = state.Node("gpu-2", frozenset({"IDLE"}), version="26.05.5")
    assert versions.node_registered("gpu-2", node, "26.05.5-1").ok
    assert not versions.node_registered("gpu-2", node, "24.11.5-4").ok
    unknown = versions.node_registered("gpu-2", msgspec.structs.replace(node, version=""), "26.05.5-1")
    assert (unknown.ok, "of unknown version" in unknown.reason) == (False, True)
    away = msgspec.structs.replace(node, flags=frozenset({"IDLE", "NOT_RESPONDING"}))
    assert not versions.node_registered("gpu-2", away, "26.05.5-1").ok


@pytest.mark.parametrize(
    ("package", "daemon", "is_same"),
    [
        ("24.11.1-1", "24.11.1", True),
        ("24.11.10-1", "24.11.1", False),
        ("24.11.1.2-1", "24.11.1", False),
        ("1:24.11.5-4+b1", "24.11.5", True),
        ("24.11.5+dfsg-1", "24.11.5", True),
        ("24.11.5", "24.11.5", True),
        ("24.11.1-1", "24.11.10", False),
        ("24.11.5-4", "", False),
        ("", "24.11.5", False),
    ],
)
def test_a_daemon_has_the_version_of_its_package_only_if_all_numbers_are_the_same(
    package: str, daemon: str, is_same: bool
) -> None:
    assert versions.is_of_package(daemon, package) is is_same
