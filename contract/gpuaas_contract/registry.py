"""The endpoint table: every route there is, in the order of the reference."""

from typing import Any

from gpuaas_contract import (
    access,
    audit,
    bindings,
    capacity,
    catalog,
    events,
    identity,
    instances,
    node,
    operations,
    policy,
    runtime,
    sessions,
    users,
)
from gpuaas_contract.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint[Any, Any], ...] = (
    *identity.ENDPOINTS,
    *sessions.ENDPOINTS,
    *users.ENDPOINTS,
    *bindings.ENDPOINTS,
    *policy.ENDPOINTS,
    *catalog.ENDPOINTS,
    *capacity.ENDPOINTS,
    *access.ENDPOINTS,
    *instances.ENDPOINTS,
    *operations.ENDPOINTS,
    *runtime.ENDPOINTS,
    *events.ENDPOINTS,
    *audit.ENDPOINTS,
    *node.ENDPOINTS,
)
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
