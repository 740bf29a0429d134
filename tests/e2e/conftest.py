"""One local cloud for the end-to-end tests that need nothing of their own."""

from collections.abc import Iterator

import pytest
from local_cloud import LAB, NODES, LocalCloud, empty_cloud


@pytest.fixture(scope="session")
def cloud() -> Iterator[LocalCloud]:
    with empty_cloud(LAB) as cloud:
        cloud.up(NODES)
        yield cloud
