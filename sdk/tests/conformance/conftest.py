"""An app from the scaffold, as the conformance kit sees it."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpuaas_sdk import scaffold
from gpuaas_sdk.conformance import Driver, Subject
from gpuaas_sdk.controller import App

PLANTED = Path(__file__).with_name("planted.py")
Made = Callable[..., Subject]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a new app, which can be imported."""
    folder = tmp_path_factory.mktemp("scaffold") / "hello"
    scaffold.create("hello", "service", folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def planted(home: Path) -> Made:
    """Return the app with a planted fault, or without one. `silent_s` is how long it may show nothing. The limits are
    wide, because they are reached only by an app that does not do what is expected, and tests run on busy hosts."""

    def make(fault: str = "", silent_s: float = 120) -> Subject:
        driver: Driver = type(importlib.import_module("gpuaas_app_hello.conformance").DRIVER)()
        driver.patience_s, driver.silent_s = 300, silent_s
        script = (str(PLANTED), fault) if fault else ("-m", "gpuaas_app_hello.controller")
        manifest = App("hello", manifest=home / "gpuaas_app_hello" / "manifest.yaml").manifest
        return Subject(manifest, (sys.executable, *script), driver, {"PYTHONPATH": str(home)})

    return make
