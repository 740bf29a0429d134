"""The decisions of the Ray app."""

from typing import Any

from gpuaas_app_ray import plan

FACTS = (8, 64_000, 20_000)


def report(waiting: list[Any], total: float = 4.0) -> dict[str, Any]:
    return {"usage": {"CPU": [1.0, total]}, "resourceDemand": waiting}


def test_a_worker_joins_the_head_with_all_its_cpus_and_a_tenth_of_its_memory() -> None:
    options = plan.start_options("worker", "10.0.0.2", "10.0.0.1", {}, FACTS).split()
    assert "--address=10.0.0.1:6379" in options
    assert "--node-ip-address=10.0.0.2" in options
    assert "--num-cpus=8" in options
    assert f"--object-store-memory={6400 << 20}" in options


def test_the_head_takes_no_tasks_unless_people_want_it_and_its_dashboard_answers_only_there() -> None:
    options = plan.start_options("head", "10.0.0.1", "10.0.0.1", {}, FACTS).split()
    assert {"--head", "--num-cpus=0", "--dashboard-host=127.0.0.1"} <= set(options)
    assert "--num-cpus=2" in plan.start_options("head", "10.0.0.1", "10.0.0.1", {"head_cpus": 2}, FACTS)


def test_the_object_store_fits_into_shared_memory_and_is_never_too_small_for_ray() -> None:
    small = plan.start_options("worker", "a", "b", {}, (2, 64_000, 1000))
    assert f"--object-store-memory={500 << 20}" in small
    tiny = plan.start_options("worker", "a", "b", {}, (2, 100, 50))
    assert f"--object-store-memory={plan.OBJECT_STORE_MIB_MIN << 20}" in tiny
    assert f"--object-store-memory={200 << 20}" in plan.start_options(
        "worker", "a", "b", {"object_store_mib": 200}, FACTS
    )


def test_demand_adds_what_waits_and_counts_the_workers_that_would_run_it() -> None:
    result = plan.demand(report([[{"CPU": 1.0}, 5], [{"CPU": 2.0, "GPU": 1.0}, 1]]), workers=2)
    rows = {row["resource"]: row for row in result["rows"]}
    assert rows["CPU"] == {"resource": "CPU", "used": 1.0, "total": 4.0, "waiting": 7.0}
    assert rows["GPU"]["waiting"] == 1.0
    assert result["note"].startswith("4 more workers")


def test_demand_never_asks_for_more_workers_than_the_role_allows() -> None:
    result = plan.demand(report([[{"CPU": 1.0}, 1000]]), workers=2)
    assert result["note"].startswith(f"{plan.WORKERS_MAX - 2} more workers")


def test_demand_without_workers_asks_for_one_if_anything_waits() -> None:
    assert plan.demand(report([[{"CPU": 1.0}, 9]], 0.0), workers=0)["note"].startswith("1 more workers")
    assert plan.demand(report([], 0.0), workers=0)["note"].startswith("0 more workers")


def test_a_job_that_runs_has_no_end() -> None:
    job = {"submission_id": None, "job_id": "01", "status": "RUNNING", "entrypoint": "python x.py", "message": None}
    row = plan.job_row(job | {"start_time": 1_000, "end_time": None})
    assert row["job"] == "01"
    assert row["started_at"] == "1970-01-01T00:00:01+00:00"
    assert row["ended_at"] is None
    assert row["message"] == ""
