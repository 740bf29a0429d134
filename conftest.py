"""How tests are shared out: a file stays together, and what starts machines runs one after another, beginning first."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two tests with machines would count each other's; while they wait for machines, the others have the cores."""
    items.sort(key=lambda item: item.get_closest_marker("machines") is None)
    for item in items:
        together = "machines" if item.get_closest_marker("machines") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(together))
