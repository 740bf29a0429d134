"""One local cloud for all end-to-end tests, taken down at the end with proof that nothing of it is left on the host."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_lab.snapshot import host_snapshot
from local_cloud import LAB, NODES, LocalCloud


@pytest.fixture(scope="session")
def cloud() -> Iterator[LocalCloud]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-e2e-") as folder:
        cloud = LocalCloud(Path(folder))
        # Machines of a run that was killed belong to another home, and would keep asking for its server.
        cloud.lab("down", "--purge")
        before = host_snapshot(LAB)
        try:
            cloud.up(NODES)
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", LAB, "--purge")
        assert host_snapshot(LAB) - before == set()
