"""An app on the kit is small: what every app of its kind needs is in the kit. The driver of the conformance kit and the
tests do not count, nor does Slurm: the limit is that of an app which a team writes in days."""

from pathlib import Path

import pytest

APPS = Path(__file__).parents[2] / "apps"
LINES_MAX = 350


@pytest.mark.parametrize("app", ["etcd", "ray"])
def test_an_app_on_the_kit_has_few_lines(app: str) -> None:
    modules = sorted((APPS / app / f"gpuaas_app_{app}").rglob("*.py"))
    lines = {str(module.relative_to(APPS)): len(module.read_text().splitlines()) for module in modules}
    assert any("controller.py" in name for name in lines)
    assert sum(lines.values()) <= LINES_MAX, lines
