"""How tests are distributed and reported: a file stays on one process, machines run one after another and first."""

import os
from collections import Counter

import pytest

REPORTERS: list[pytest.TerminalReporter] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if not hasattr(session.config, "workerinput") and (reporter := plugins.get_plugin("terminalreporter")):
        REPORTERS.append(reporter)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests with machines in one group, since they count each other's; while they wait, others use the cores."""
    items.sort(key=lambda item: item.get_closest_marker("machines") is None)
    for item in items:
        group = "machines" if item.get_closest_marker("machines") else item.location[0]
        item.add_marker(pytest.mark.xdist_group(group))


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
