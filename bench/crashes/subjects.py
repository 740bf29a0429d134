"""The apps whose operations are interrupted, each with the driver with which it passes the conformance kit."""

import contextlib
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import gpuaas_app_etcd_conformance
import gpuaas_app_ray_conformance
from gpuaas_app_etcd.controller import app as etcd_app
from gpuaas_app_ray.controller import app as ray_app
from gpuaas_app_slurm.controller import app as slurm_app
from gpuaas_app_slurm_conformance.driver import QUICK_COMMAND, SlurmDriver
from gpuaas_sdk import scaffold
from gpuaas_sdk.conformance import Subject
from gpuaas_sdk.controller import App

_NAME = "hello"


@contextlib.contextmanager
def etcd() -> Iterator[Subject]:
    kit = gpuaas_app_etcd_conformance
    yield Subject.of(etcd_app.manifest, kit.COMMAND, kit.EtcdDriver())


@contextlib.contextmanager
def ray() -> Iterator[Subject]:
    kit = gpuaas_app_ray_conformance
    yield Subject.of(ray_app.manifest, kit.COMMAND, kit.RayDriver())


@contextlib.contextmanager
def slurm() -> Iterator[Subject]:
    yield Subject.of(slurm_app.manifest, QUICK_COMMAND, SlurmDriver())


@contextlib.contextmanager
def from_scaffold() -> Iterator[Subject]:
    """A new app, unchanged."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-crashes-") as folder:
        home = Path(folder) / _NAME
        scaffold.create(_NAME, "service", home)
        sys.path.insert(0, str(home))
        try:
            driver = importlib.import_module(f"gpuaas_app_{_NAME}.conformance").DRIVER
            manifest = App(_NAME, manifest=home / f"gpuaas_app_{_NAME}" / "manifest.yaml").manifest
            command = (sys.executable, "-m", f"gpuaas_app_{_NAME}.controller")
            yield Subject(manifest, command, driver, {"PYTHONPATH": str(home)})
        finally:
            sys.path.remove(str(home))


APPS: dict[str, Callable[[], AbstractContextManager[Subject]]] = {
    "etcd": etcd,
    "ray": ray,
    "scaffold": from_scaffold,
    "slurm": slurm,
}
