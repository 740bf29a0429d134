"""The endpoint table: every route there is, in the order of the reference."""

from typing import Any

from gpuaas_contract import (
    access,
    actions,
    agents,
    artifacts,
    audit,
    bindings,
    capacity,
    catalog,
    correlations,
    credentials,
    custody,
    events,
    holds,
    identity,
    instances,
    node,
    operations,
    policy,
    runtime,
    secrets,
    sessions,
    ssh_keys,
    usage,
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
    *artifacts.ENDPOINTS,
    *capacity.ENDPOINTS,
    *agents.ENDPOINTS,
    *ssh_keys.ENDPOINTS,
    *access.ENDPOINTS,
    *instances.ENDPOINTS,
    *holds.ENDPOINTS,
    *actions.ENDPOINTS,
    *operations.ENDPOINTS,
    *runtime.ENDPOINTS,
    *secrets.ENDPOINTS,
    *credentials.ENDPOINTS,
    *custody.ENDPOINTS,
    *usage.ENDPOINTS,
    *events.ENDPOINTS,
    *audit.ENDPOINTS,
    *correlations.ENDPOINTS,
    *node.ENDPOINTS,
)
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
