"""The questions about Ray on one machine."""

from gpuaas_app_ray import checks
from gpuaas_app_ray.checks import View


def test_a_node_serves_only_if_it_runs_is_healthy_and_is_not_closed() -> None:
    assert checks.serves(View("success", runs=True), "gpu-1").ok
    assert not checks.serves(View("success", runs=False), "gpu-1").ok
    assert not checks.serves(View("success", runs=True, closed=True), "gpu-1").ok
    assert checks.serves(View("Connection refused", runs=True), "gpu-1").reason == "Ray on gpu-1: Connection refused"


def test_a_node_has_left_only_after_ray_has_ended_it() -> None:
    assert checks.has_left(View(), "gpu-1").ok
    assert not checks.has_left(View(runs=True), "gpu-1").ok
    busy = checks.has_left(View(work=("ray::train",)), "gpu-1")
    assert not busy.ok
    assert busy.reason == "1 tasks and actors run on gpu-1: ray::train"
