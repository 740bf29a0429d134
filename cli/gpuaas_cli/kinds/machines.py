"""Nodes and their agent, the claims of projects on them, and who may enter them."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract import access, agents, capacity, credentials, ssh_keys

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import AnyEndpoint, Filters, Kind, listed
from gpuaas_cli.output import Table, table
from gpuaas_cli.show import states


async def _nodes(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    """The API lists retired nodes only where it is asked for them."""
    rows = [*await listed(session, endpoint, filters)]
    if filters.everything:
        rows += await session.every(endpoint, query={**filters.query, "admin_state": "retired"})
    return sorted(rows, key=lambda node: (len(node.name), node.name))


def tasks(node_names: dict[str, str]) -> Table:
    """A task has the id of its node; people know its name. Tasks are listed for a node at a time."""
    return table(
        "task_id",
        "TASK=task_id NODE TYPE STATE AGE=issued_at FOR=subject_id* CORRELATION=correlation_id* WHY",
        NODE=lambda task: node_names.get(task.node_id, task.node_id),
        WHY=states.why_not,
    )


KINDS = (
    Kind(
        "nodes",
        capacity.NODE_LIST,
        "name",
        "NAME STATUS STATE=admin_state GPUS CPUS=facts.cpus MEMORY_MB=facts.memory_mb ADDRESS SEEN=last_seen_at "
        "SKU* REGION* AGENT=agent_version* NODE=node_id* ALLOCATION=allocation_id WHY=admin_reason",
        {"GPUS": lambda node: str(len(node.facts.gpus))},
        getting=capacity.NODE_GET,
        is_gone=lambda node: node.admin_state == "retired",
        fetch_rows=_nodes,
    ),
    Kind(
        "allocations",
        capacity.ALLOCATION_LIST,
        "allocation_id",
        "ALLOCATION=allocation_id STATUS NODE=node_name GPUS ADDRESS USED_BY=used_by_instance_ids AGE=created_at "
        "SKU* REGION* USER=username_on_node* CORRELATION=correlation_id* REASON=status_reason",
        words="alloc allocs",
        getting=capacity.ALLOCATION_GET,
        is_gone=lambda allocation: allocation.status == "released",
    ),
    Kind(
        "agent-releases",
        agents.AGENT_RELEASE_LIST,
        "sha256",
        "VERSION BYTES=size_bytes AGE=registered_at BY=registered_by* SHA256",
        known_by=("sha256", "version"),
    ),
    Kind(
        "grants",
        access.GRANT_LIST,
        "grant_id",
        "GRANT=grant_id STATE NODE=node_name WHO FROM=source UNTIL=expires_at SERIAL* ALLOCATION=allocation_id* "
        "ENDED_BY* OPERATION=operation_id WHY_ENDED=end_reason",
        {"WHO": lambda grant: grant.actor_name or grant.actor_id},
        words="machine-grant machine-grants",
        known_by=("grant_id",),
        live={"state": "active"},
    ),
    Kind(
        "credentials",
        credentials.CREDENTIAL_LIST,
        "name",
        "NAME STATE VERSION USER=username USED=last_used_at OPENED AGE=created_at CREDENTIAL=credential_id "
        "USED_FOR=last_used_for* PUBLIC_KEY* FINGERPRINT",
        {"OPENED": lambda credential: f"{credential.deliveries_opened}/{credential.deliveries}"},
        words="cred creds",
        getting=credentials.CREDENTIAL_GET,
        is_gone=lambda credential: credential.state == "revoked",
    ),
    Kind(
        "ssh-keys",
        ssh_keys.SSH_KEY_LIST,
        "ssh_key_id",
        "KEY=ssh_key_id ALGORITHM FINGERPRINT AGE=created_at COMMENT",
        words="sshkey sshkeys",
        known_by=("ssh_key_id", "fingerprint", "comment"),
    ),
)
