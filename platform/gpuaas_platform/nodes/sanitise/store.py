"""SQL that finds the nodes to sanitise."""

from gpuaas_contract.capacity import Node

from gpuaas_platform.kit import db
from gpuaas_platform.nodes.store import NODES

_BATCH = 50
_DUE = "tenancy = 'used' AND allocation_id = '' AND admin_state = 'active' AND released_at <= $1"


async def due(reader: db.Reader, released_before: int) -> list[Node]:
    """Return a batch of nodes whose last allocation was released before this time. Cordoned nodes are left alone."""
    return await NODES.find(reader, f"{_DUE} ORDER BY released_at LIMIT {_BATCH}", released_before)


async def in_progress(reader: db.Reader) -> list[Node]:
    return await NODES.find(reader, "tenancy = 'sanitising' AND admin_state <> 'retired' ORDER BY node_id")
