"""Pure: what an operator may do with a node or an agent release, and what a heartbeat changes."""

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.agents import AgentRelease
from gpuaas_contract.capacity import Facts, Node, SetNode
from gpuaas_contract.lifecycles import NodeAdminState
from gpuaas_contract.node import NodeStatusReport


class FreeNodes(NamedTuple):
    """How many nodes of one SKU in one region can be allocated now."""

    region: str
    sku: str
    nodes: int


class NodeSummary(NamedTuple):
    """The facts that decide whether a node can be allocated."""

    name: str
    region: str
    sku: str
    admin_state: str
    status: str
    is_allocated: bool
    tenancy: str = "clean"
    is_open: bool = True
    """Whether its tenancy admits the project that asks."""


def move(node: Node, admin_state: NodeAdminState, reason: str) -> Node:
    if not lifecycles.may_move(lifecycles.NODE_ADMIN, node.admin_state, admin_state):
        fix = "Enrol the machine again to use it: gpuaas node token"
        raise errors.Conflict(f"Node {node.name} is {node.admin_state}; it cannot become {admin_state}.", fix=fix)
    if node.admin_state == admin_state:
        return node
    return msgspec.structs.replace(node, admin_state=admin_state, admin_reason=reason, revision=node.revision + 1)


def classified(node: Node, wanted: SetNode) -> Node:
    if node.admin_state == "retired":
        raise errors.Conflict(f"Node {node.name} is retired and cannot be changed.")
    if (node.sku, node.region) == (wanted.sku, wanted.region):
        return node
    return msgspec.structs.replace(node, sku=wanted.sku, region=wanted.region, revision=node.revision + 1)


def approved(release: AgentRelease, approver: str, now: datetime.datetime, *, approvals: int) -> AgentRelease:
    """Return the approved release. With `approvals` 1, the registrar cannot be the approver."""
    if _is_approved(release, approvals):
        return release
    if approvals and approver == release.registered_by:
        fix = "Ask another person with capacity.agent.release to approve it."
        raise errors.PermissionDenied("You registered this release, so another person must approve it.", fix=fix)
    lifecycles.check_move("the release", lifecycles.AGENT_RELEASE, release.status, "approved")
    return msgspec.structs.replace(release, status="approved", approved_by=approver, approved_at=now)


def check_approved(release: AgentRelease, approvals: int) -> None:
    if not _is_approved(release, approvals):
        message = f"Release {release.version} was registered by {release.registered_by}; no second person approved it."
        fix = f"Another person checks it and runs: gpuaas agent approve {release.version} --reason REASON"
        raise errors.AgentReleaseUnapproved(message, details={"sha256": release.sha256}, fix=fix)


def _is_approved(release: AgentRelease, approvals: int) -> bool:
    # The registrar's own approval counts only while the policy asks for no second person.
    return release.status == "approved" and (approvals == 0 or release.approved_by != release.registered_by)


def reported(node: Node, report: NodeStatusReport, address: str) -> Node:
    """Return the node with the values of its heartbeat. From an agent on trial, only the status is used."""
    if report.trial:
        return msgspec.structs.replace(node, status="ready")
    return msgspec.structs.replace(
        node,
        status="ready",
        facts=report.facts,
        gpus_by_type=gpus_by_type(report.facts),
        address=address,
        agent_version=report.agent_version,
        agent_sha256=report.agent_sha256,
        boot_id=report.boot_id,
    )


def address(remote: str, reported_addresses: Sequence[str], present: str) -> str:
    """Return the address of the node. `remote` is the address that it calls from. A node on the platform's own machine
    has none, so the first address that it reports is used."""
    if remote:
        return remote
    return reported_addresses[0] if reported_addresses else present


def gpus_by_type(facts: Facts) -> dict[str, int]:
    return dict(sorted(Counter(gpu.type for gpu in facts.gpus).items()))


def changes(before: Node, after: Node) -> str:
    """Return a text that lists the changes to report in an event; empty if there are none."""
    parts = []
    if before.status != after.status:
        parts.append("heartbeats arrive again")
    if before.boot_id and before.boot_id != after.boot_id:
        parts.append("it was rebooted")
    if before.agent_version and before.agent_version != after.agent_version:
        parts.append(f"its agent changed from {before.agent_version} to {after.agent_version}")
    if before.address != after.address:
        parts.append(f"its address changed from {before.address} to {after.address}")
    if before.gpus_by_type != after.gpus_by_type:
        parts.append(f"its GPUs changed from {_counted(before.gpus_by_type)} to {_counted(after.gpus_by_type)}")
    return "; ".join(parts)


def _counted(gpus: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in gpus.items()) or "none"
