"""The endpoint table: all endpoints, in the order of the API reference."""

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
    deliveries,
    documents,
    entitlement_requests,
    events,
    holds,
    identity,
    instances,
    node,
    operations,
    placements,
    policy,
    posix,
    runtime,
    secrets,
    sessions,
    ssh_keys,
    statements,
    stewardships,
    trust_keys,
    usage,
    users,
)
from gpuaas_contract.endpoint import AnyEndpoint, Endpoint

_MODULES = (
    identity,
    sessions,
    users,
    bindings,
    posix,
    policy,
    catalog,
    entitlement_requests,
    artifacts,
    trust_keys,
    deliveries,
    placements,
    capacity,
    agents,
    ssh_keys,
    access,
    instances,
    holds,
    actions,
    operations,
    statements,
    runtime,
    stewardships,
    secrets,
    credentials,
    custody,
    usage,
    events,
    audit,
    correlations,
    node,
    documents,
)
ENDPOINTS: tuple[AnyEndpoint, ...] = tuple(
    row for module in _MODULES for row in vars(module).values() if isinstance(row, Endpoint)
)
"""Ordered by module as in the API reference, then as in the source of the module."""
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
if len(BY_NAME) != len(ENDPOINTS):
    raise ValueError("an endpoint is listed twice; a contract module must not import a row of another one by name")
