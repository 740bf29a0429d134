"""What the controller shows on its page /metrics about a cluster."""

from gpuaas_app_slurm import gauges
from gpuaas_app_slurm.workload import observed
from gpuaas_app_slurm.workload.observed import Measured, Observed, Reported
from gpuaas_app_slurm_conformance.fake_slurm import deployed_cluster
from gpuaas_sdk.checks import Check
from gpuaas_sdk.controller import Gauge, Gauges
from test_slurm_health import OFTEN, line, node, shows, until

UP, DOWN = Check(True), Check(False, "slurmctld does not answer")
MEASURED = {"nodes": {"idle": 1, "mixed": 1}, "jobs": {"running": 2, "failed": 1}, "cpus": [3, 8], "gpus": [1, 4]}


def _values(shown: list[Gauge]) -> dict[str, float]:
    return {
        " ".join([gauge.name.removeprefix("gpuaas_slurm_"), *gauge.labels.values()]): gauge.value for gauge in shown
    }


def test_every_state_of_nodes_is_shown_and_jobs_in_the_states_that_they_have() -> None:
    measured = Measured({"idle": 1, "mixed": 1}, {"running": 2, "failed": 1}, (3, 8), (1, 4))
    values = _values(gauges.of(Observed(UP, DOWN, {}, Reported()), measured))
    assert {name for name in values if name.startswith("nodes")} == {f"nodes {state}" for state in gauges.NODE_STATES}
    assert {name: value for name, value in values.items() if value} == {
        "scheduler_up": 1,
        "nodes idle": 1,
        "nodes mixed": 1,
        "jobs running": 2,
        "jobs failed": 1,
        "cpus_allocated": 3,
        "cpus_total": 8,
        "gpus_allocated": 1,
        "gpus_total": 4,
    }
    assert (values["accounting_up"], values["jobs pending"]) == (0, 0)


def test_what_is_not_known_is_left_out() -> None:
    seen = Observed(UP, UP, {}, Reported())
    assert set(_values(gauges.of(seen, None))) == {"scheduler_up", "accounting_up"}
    assert not [name for name in _values(gauges.of(seen, Measured({}, None, (0, 0), (0, 0)))) if "jobs" in name]
    assert _values(gauges.unknown()) == {"scheduler_up": 0}


def test_what_the_watch_counts_does_not_change_what_a_look_judges() -> None:
    counted = [line(node("gpu-2"), measured={**MEASURED, "cpus": [used, 8]}) for used in (1, 2)]
    first, second = map(observed.without_measured, counted)
    assert first == second
    assert observed.parse(first, "lab") == observed.parse(counted[0], "lab")
    assert first != observed.without_measured(line(node("gpu-3"), measured=MEASURED))
    assert observed.without_measured("half a li") == "half a li"


async def test_a_controller_with_metrics_shows_its_cluster_and_leaves_out_what_a_silent_machine_does_not_tell() -> None:
    shown = Gauges()
    async with deployed_cluster(settings=OFTEN, gauges=shown) as cluster:
        shows(cluster, line(node("gpu-2"), measured=MEASURED))
        name = f'instance_id="{cluster.instance.instance_id}",instance_name="{cluster.instance.name}"'
        await until(lambda: f'gpuaas_slurm_jobs{{{name},state="running"}} 2.0\n' in shown.text())
        assert f"gpuaas_slurm_gpus_total{{{name}}} 4.0\n" in shown.text()
        programs = [each.summary for each in cluster.machines.host("gpu-1").commands if each.summary[0] == "program"]
        assert programs[-1][-1] == "measure"
        cluster.machines.host("gpu-1").reachable = False
        await until(lambda: f"gpuaas_slurm_scheduler_up{{{name}}} 0.0\n" in shown.text())
        assert "gpuaas_slurm_jobs" not in shown.text()
