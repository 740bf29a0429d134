"""How tests are distributed and reported: a file stays on one process, and what takes longest runs first."""

import gc
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

REPORTERS: list[pytest.TerminalReporter] = []
LONG = (
    "platform/tests/operations/test_operation_lifecycles.py",
    "platform/tests/nodes/test_nodes_crashes.py",
    "platform/tests/edge/test_contract_fuzz.py",
    "platform/tests/record/test_watch_campaign.py",
    "platform/tests/edge/test_authorisation_matrix.py",
)
"""Files that take a minute and more: at the end of a run they would leave a process alone."""
_NEW_OBJECTS_UNTIL_COLLECTION = 20_000
"""The same as in the server."""


def pytest_configure() -> None:
    """Keep bytecode beside the environment: tests start hundreds of processes, and each would compile every module."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "bytecode"))


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if not hasattr(session.config, "workerinput") and (reporter := plugins.get_plugin("terminalreporter")):
        REPORTERS.append(reporter)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start tests with machines first, in two groups: while they wait, others use the cores. Long ones are selected
    with -m only."""
    if not config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items.sort(key=_rank)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish() -> None:
    """Let the garbage collector skip what is loaded now: it would visit a million objects in every few tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_UNTIL_COLLECTION)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("machines"):
        return -1
    file = item.location[0]
    return LONG.index(file) if file in LONG else len(LONG)


def _group(item: pytest.Item) -> str:
    """Labs do not affect each other, so the tests end to end, which mostly wait, run beside other tests of machines."""
    file = item.location[0]
    if item.get_closest_marker("machines"):
        return "end to end" if file.startswith("tests/e2e/") else "machines"
    return file


@pytest.hookimpl(tryfirst=True)  # before any fixture
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip here and not by marks, so that the summary has one line for all of them."""
    if os.geteuid() != 0 and item.get_closest_marker("machines"):
        pytest.skip("real machines need root: sudo make test")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure when it happens, so that a run that is interrupted has reported what it found."""
    if report.failed:
        for reporter in REPORTERS:
            reporter.write_line(f"\n{report.nodeid} failed in its {report.when}:\n{report.longreprtext}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print as the last line what was skipped and why."""
    for reporter in REPORTERS:
        reporter.write_line(skipped_line(reporter.stats.get("skipped", []), len(reporter.stats.get("deselected", []))))
    REPORTERS.clear()


def skipped_line(reports: list[pytest.TestReport], deselected: int = 0) -> str:
    counts = Counter(_reason(report) for report in reports)
    parts = [f"{count} ({reason})" for reason, count in sorted(counts.items())]
    if deselected:
        parts.append(f"{deselected} (not selected by -k or -m)")
    return f"Skipped: {', '.join(parts)}." if parts else "Skipped: nothing."


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ")
