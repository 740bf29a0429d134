"""The parts of the platform that the benchmarks use directly. No other module of the bench imports the platform.

The floor runs on the platform's own store, and large records are written straight into its tables.
"""

import sys
from pathlib import Path

from gpuaas_platform.call import Site
from gpuaas_platform.identity.store import ORGS as ORG_TABLE
from gpuaas_platform.instances.store import INSTANCES as INSTANCE_TABLE
from gpuaas_platform.instances.store import MEMBERS as MEMBER_TABLE
from gpuaas_platform.instances.store import OPERATIONS as OPERATION_TABLE
from gpuaas_platform.kit import clock, ids
from gpuaas_platform.kit.db import Tx
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.tables import Table
from gpuaas_platform.kit.tables import write_token as page_token
from gpuaas_platform.server import open_site

sys.path.append(str(Path(__file__).parents[1] / "platform" / "tests"))
import postgres_server  # the tests' own PostgreSQL, from the locked wheel

__all__ = [
    "INSTANCE_TABLE",
    "MEMBER_TABLE",
    "OPERATION_TABLE",
    "ORG_TABLE",
    "Settings",
    "Site",
    "Table",
    "Tx",
    "clock",
    "ids",
    "open_site",
    "page_token",
    "postgres_server",
]
