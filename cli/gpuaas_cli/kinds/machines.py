"""Nodes, the claims of projects on them, who may enter them, and what is put on them: apps and artifacts.

nodes: NAME STATUS STATE=admin_state TENANCY GPUS CPUS=facts.cpus MEMORY_MB=facts.memory_mb ADDRESS SEEN=last_seen_at
    SKU* REGION* AGENT=agent_version* NODE=node_id* PROJECT=used_by_project_id* ALLOCATION=allocation_id WHY
allocations alloc allocs: ALLOCATION=allocation_id STATUS NODE=node_name GPUS ADDRESS USED_BY=used_by_instance_ids
    AGE=created_at SKU* REGION* USER=username_on_node* CORRELATION=correlation_id* REASON=status_reason
agent-releases: VERSION STATUS BYTES=size_bytes AGE=registered_at BY=registered_by* APPROVED_BY=approved_by*
    KEY=key_id* SHA256
grants machine-grant machine-grants: GRANT=grant_id STATE NODE=node_name WHO FROM=source LOGINS_UNTIL=expires_at
    SESSIONS_UNTIL=sessions_until SERIAL* ALLOCATION=allocation_id* ENDED_BY* OPERATION=operation_id
    WHY_ENDED=end_reason
credentials cred creds: NAME STATE VERSION USER=username USED=last_used_at OPENED AGE=created_at
    CREDENTIAL=credential_id USED_FOR=last_used_for* PUBLIC_KEY* FINGERPRINT
ssh-keys sshkey sshkeys: KEY=ssh_key_id ALGORITHM FINGERPRINT AGE=created_at COMMENT
apps: APP=app_slug VERSION STATE CHANNELS TOPOLOGIES ROLES* AGE=created_at* SUMMARY
entitlements: APP=app_slug ENTITLED=enabled VERSIONS CHANNELS INSTANCES_MAX MEMBERS_MAX AGE=changed_at BY=changed_by*
    PROJECT=project_id
app-requests entitlement-request entitlement-requests: APP=app_slug STATE BY=requested_by AGE=requested_at
    DECIDED_BY=decided_by* DECIDED=decided_at REASON WHY=decision_reason
app-offers offers: APP=app_slug VERSION ENTITLED REQUEST SUMMARY
artifacts: ARTIFACT=artifact_id NAME LIFECYCLE TRUST CHANNELS BYTES=size_bytes AGE=created_at DIGEST MEDIA_TYPE*
    SOURCE* WHY
trust-keys: KEY=trust_key_id STATE SCOPE BY=created_by* AGE=created_at FINGERPRINT
"""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract import (
    access,
    agents,
    artifacts,
    capacity,
    catalog,
    credentials,
    entitlement_requests,
    ssh_keys,
    trust_keys,
)

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import AnyEndpoint, Filters, Kind, listed


def _holder(grant: access.MachineGrant) -> str:
    """Return who has the access. A program is named as such: a person can have the same name."""
    kind = " (service account)" if grant.actor_type == "service_account" else ""
    return f"{grant.actor_name or grant.actor_id}{kind}"


async def _nodes(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    """Return the nodes. The API lists retired nodes only on request."""
    rows = [*await listed(session, endpoint, filters)]
    if filters.everything:
        rows += await session.every(endpoint, query={**filters.query, "admin_state": "retired"})
    return sorted(rows, key=lambda node: (len(node.name), node.name))


def _source(artifact: artifacts.Artifact) -> str:
    source = artifact.source
    if isinstance(source, artifacts.HttpSource):
        return source.url
    return source.reference if isinstance(source, artifacts.OciSource) else "local"


KINDS = {
    "nodes": Kind(
        capacity.NODE_LIST,
        {
            "GPUS": lambda node: str(len(node.facts.gpus)),
            "WHY": lambda node: "; ".join(filter(None, (node.admin_reason, node.tenancy_reason))),
        },
        getting=capacity.NODE_GET,
        is_gone=lambda node: node.admin_state == "retired",
        fetch_rows=_nodes,
    ),
    "allocations": Kind(
        capacity.ALLOCATION_LIST,
        getting=capacity.ALLOCATION_GET,
        is_gone=lambda allocation: allocation.status == "released",
    ),
    "agent-releases": Kind(agents.AGENT_RELEASE_LIST, name="sha256", ids="version"),
    "grants": Kind(access.GRANT_LIST, {"WHO": _holder}, live={"state": "active"}),
    "credentials": Kind(
        credentials.CREDENTIAL_LIST,
        {"OPENED": lambda credential: f"{credential.deliveries_opened}/{credential.deliveries}"},
        getting=credentials.CREDENTIAL_GET,
        is_gone=lambda credential: credential.state == "revoked",
    ),
    "ssh-keys": Kind(ssh_keys.SSH_KEY_LIST, ids="fingerprint comment"),
    "apps": Kind(
        catalog.PROJECT_APP_LIST,
        {
            "TOPOLOGIES": lambda version: ",".join(version.manifest.topologies),
            "ROLES": lambda version: ",".join(role.component_key for role in version.manifest.roles),
            "SUMMARY": lambda version: version.summary or version.display_name,
        },
        listing_all=catalog.VERSION_LIST,
        if_empty="gpuaas get app-offers; it lists the apps that the project can request",
    ),
    "entitlements": Kind(
        catalog.ENTITLEMENT_LIST,
        {
            "VERSIONS": lambda entitlement: ",".join(entitlement.versions) or "all",
            "CHANNELS": lambda entitlement: ",".join(entitlement.channels) or "all",
        },
        getting=catalog.ENTITLEMENT_GET,
    ),
    "app-requests": Kind(
        entitlement_requests.ENTITLEMENT_REQUEST_LIST, getting=entitlement_requests.ENTITLEMENT_REQUEST_GET
    ),
    "app-offers": Kind(
        entitlement_requests.OFFER_LIST, {"REQUEST": lambda offer: offer.request.state if offer.request else ""}
    ),
    "artifacts": Kind(
        artifacts.LIST,
        {"SOURCE": _source, "WHY": lambda artifact: artifact.reason or artifact.trust_message},
        getting=artifacts.GET,
        is_gone=lambda artifact: artifact.lifecycle == "retired",
    ),
    "trust-keys": Kind(
        trust_keys.TRUST_KEY_LIST,
        {"STATE": lambda key: "revoked" if key.revoked_at else "trusted"},
        ids="fingerprint",
    ),
}
