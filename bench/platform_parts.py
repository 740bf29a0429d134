"""The parts of the platform that the benchmarks use directly. No other module of the bench imports the platform.

The floor uses the store of the platform, and large records are written directly into its tables.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuaas_contract.operations import Operation
from gpuaas_platform.allocations.store import ALLOCATIONS
from gpuaas_platform.call import Site
from gpuaas_platform.identity.store import ORGS as ORG_TABLE
from gpuaas_platform.instances.store import INSTANCES, MEMBERS
from gpuaas_platform.kit import clock, ids
from gpuaas_platform.kit.db import Tx
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.tables import Table
from gpuaas_platform.kit.tables import write_token as page_token
from gpuaas_platform.nodes.store import NODES
from gpuaas_platform.operations import store as operation_store
from gpuaas_platform.server import open_site

sys.path.append(str(Path(__file__).parents[1] / "platform" / "tests"))
import postgres_server  # the PostgreSQL server of the tests, from a locked package

__all__ = [
    "ALLOCATION_ROWS",
    "INSTANCE_ROWS",
    "MEMBER_ROWS",
    "NODE_ROWS",
    "OPERATION_ROWS",
    "ORG_TABLE",
    "Rows",
    "Settings",
    "Site",
    "Tx",
    "clock",
    "ids",
    "open_site",
    "page_token",
    "postgres_server",
]


@dataclass(frozen=True)
class Rows:
    """How the rows of a document are written into one table."""

    table: str
    columns: Sequence[str]
    of: Callable[[Any], Iterable[Sequence[Any]]]


def _document_rows(table: Table[Any]) -> Rows:
    return Rows(table.name, table.names, lambda document: [table.values(document)])


def _step_rows(operation: Operation) -> list[Sequence[Any]]:
    return [
        operation_store.step_row(operation.operation_id, position, step, operation.revision)
        for position, step in enumerate(operation.steps, 1)
    ]


INSTANCE_ROWS = (
    _document_rows(INSTANCES),
    Rows(INSTANCES.second, ("document", INSTANCES.key), lambda instance: [INSTANCES.second_values(instance)]),
)
MEMBER_ROWS = (_document_rows(MEMBERS),)
ALLOCATION_ROWS = (_document_rows(ALLOCATIONS),)
NODE_ROWS = (
    _document_rows(NODES),
    Rows(
        NODES.second,
        ("document", NODES.key, "received_at"),
        lambda node: [[*NODES.second_values(node), clock.micros(node.last_seen_at)]],
    ),
)
OPERATION_ROWS = (
    Rows("operations", operation_store.OPERATION_COLUMNS, lambda operation: [operation_store.operation_row(operation)]),
    Rows("operation_targets", operation_store.TARGET_COLUMNS, operation_store.target_rows),
    Rows("operation_steps", operation_store.STEP_COLUMNS, _step_rows),
)
