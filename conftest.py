"""How tests are shared out and told of: a file stays together, what starts machines runs one after another, first."""

import os

import pytest

TELLING: list[pytest.TerminalReporter] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    if not hasattr(session.config, "workerinput") and (reporter := plugins.get_plugin("terminalreporter")):
        TELLING.append(reporter)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two tests with machines would count each other's; while they wait for machines, the others have the cores."""
    items.sort(key=lambda item: item.get_closest_marker("machines") is None)
    for item in items:
        together = "machines" if item.get_closest_marker("machines") else item.location[0]
        item.add_marker(pytest.mark.xdist_group(together))


@pytest.hookimpl(tryfirst=True)  # before any fixture
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skipped here and not by marks, so that the summary tells it in one line."""
    if os.geteuid() != 0 and item.get_closest_marker("machines"):
        pytest.skip("real machines need root: sudo make test")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is told when it happens: a run that is cut off has said what it knew."""
    if report.failed:
        for reporter in TELLING:
            reporter.write_line(f"\n{report.nodeid} failed in its {report.when}:\n{report.longreprtext}", red=True)
