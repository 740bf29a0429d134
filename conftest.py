"""How tests are distributed and reported: a file stays on one process, and what takes longest runs first."""

import gc
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
import structlog

REPORTERS: list[pytest.TerminalReporter] = []
LONG_S = 3600
"""A long test on machines may take this long on a busy host, unless it has a timeout of its own."""
LONG = (
    "platform/tests/operations/test_operation_lifecycles.py",
    "platform/tests/nodes/test_nodes_crashes.py",
    "platform/tests/edge/test_contract_fuzz.py",
    "platform/tests/record/test_watch_campaign.py",
    "platform/tests/edge/test_authorisation_matrix.py",
    "tests/skew/test_servers.py",
)
"""Files that take about a minute and more: at the end of a run they would leave a process alone."""
OWN_CLOUD = frozenset(f"tests/e2e/test_{name}.py" for name in ("install", "slurm_faults", "tutorial"))
"""Tests end to end that do not share the cloud of the others: in one chain they would outlast all other tests."""
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 2**30
_NEW_OBJECTS_UNTIL_COLLECTION = 20_000
"""The same as in the server."""


def _keep_bytecode() -> None:
    """Keep bytecode beside the environment: tests start hundreds of processes, and each would compile every module."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "bytecode"))


def _use_memory() -> None:
    """Keep the folders of tests in memory if the host has enough of it: SQLite waits for the disk in every commit."""
    if not os.access(MEMORY, os.W_OK):
        return
    disk = os.statvfs(MEMORY)
    if disk.f_bavail * disk.f_frsize >= MEMORY_BYTES_MIN and not disk.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


_keep_bytecode()  # before the tests are imported, by this process too: the first one compiles them for all
_use_memory()


def pytest_configure() -> None:
    """Print tracebacks as Python does: the values of all variables would cost a third of a second for each."""
    structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if not hasattr(session.config, "workerinput") and (reporter := plugins.get_plugin("terminalreporter")):
        REPORTERS.append(reporter)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start tests with machines first, in three groups: while they wait, others use the cores. Long ones are selected
    with -m only."""
    if not config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items.sort(key=_rank)
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_S))
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
    """Labs do not affect each other, so tests of different labs, which mostly wait, run beside each other."""
    file = item.location[0]
    if file.startswith("console/tests/"):
        return "console"  # they share a platform, which takes longer to start than most of them
    if not item.get_closest_marker("machines"):
        return file
    if file in OWN_CLOUD:
        return "own clouds"
    return "end to end" if file.startswith("tests/e2e/") else "machines"


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
