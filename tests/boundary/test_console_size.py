"""The console is small: its pages are declared by tables and manifests and not written one by one. Styles, scripts and
tests do not count."""

from pathlib import Path

CONSOLE = Path(__file__).parents[2] / "console" / "gpuaas_console"
LINES_MAX = 5000


def test_python_and_templates_of_the_console_have_few_lines() -> None:
    files = [path for ending in ("py", "html") for path in sorted(CONSOLE.rglob(f"*.{ending}"))]
    lines = {str(path.relative_to(CONSOLE)): len(path.read_text().splitlines()) for path in files}
    assert {"app.py", "templates/base.html"} <= lines.keys()
    assert sum(lines.values()) <= LINES_MAX, lines
