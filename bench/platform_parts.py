"""The parts of the platform that the benchmarks use directly. No other module of the bench imports the platform.

The floor runs on the platform's own store, and large records are written straight into its tables.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuaas_contract.operations import Operation
from gpuaas_platform.call import Site
from gpuaas_platform.identity.store import ORGS as ORG_TABLE
from gpuaas_platform.instances import store as instances_store
from gpuaas_platform.kit import clock, ids
from gpuaas_platform.kit.db import Tx
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.tables import Table
from gpuaas_platform.kit.tables import write_token as page_token
from gpuaas_platform.operations import store as operations_store
from gpuaas_platform.server import open_site

sys.path.append(str(Path(__file__).parents[1] / "platform" / "tests"))
import postgres_server  # the tests' own PostgreSQL, from the locked wheel

__all__ = [
    "INSTANCE_TABLE",
    "MEMBER_TABLE",
    "OPERATION_TABLES",
    "ORG_TABLE",
    "Settings",
    "Site",
    "TableRows",
    "Tx",
    "clock",
    "ids",
    "open_site",
    "page_token",
    "postgres_server",
]


@dataclass(frozen=True)
class TableRows:
    """A table, and the rows that a document of the contract has in it."""

    name: str
    columns: Sequence[str]
    rows_of: Callable[[Any], Sequence[Sequence[Any]]]


def _one_row_each(table: Table[Any]) -> TableRows:
    return TableRows(table.name, table.names, lambda document: [table.values(document)])


def _head_row(operation: Operation) -> Sequence[Sequence[Any]]:
    return [operations_store.operation_row(operation)]


def _step_rows(operation: Operation) -> Sequence[Sequence[Any]]:
    return [
        operations_store.step_row(operation.operation_id, position, step, operation.revision)
        for position, step in enumerate(operation.steps, 1)
    ]


INSTANCE_TABLE = _one_row_each(instances_store.INSTANCES)
MEMBER_TABLE = _one_row_each(instances_store.MEMBERS)
OPERATION_TABLES = (
    TableRows("operations", operations_store.OPERATION_COLUMNS, _head_row),
    TableRows("operation_targets", operations_store.TARGET_COLUMNS, operations_store.target_rows),
    TableRows("operation_steps", operations_store.STEP_COLUMNS, _step_rows),
)
