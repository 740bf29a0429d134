"""The records of idle Slurm clusters, and the line that the watch of such a cluster prints. See `clusters`."""

import datetime
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import yaml
from gpuaas_contract.capacity import Allocation, Facts, Node
from gpuaas_contract.instances import Instance, Member
from msgspec.structs import replace

from bench import records

APP = "slurm"
WORKERS_EACH = 9
OBSERVER = "bench-ro"
_NOW = datetime.datetime.now(datetime.UTC)
_NEVER_LOST = _NOW + datetime.timedelta(days=365)
"""The nodes have no agents. With this time of their last heartbeat, the server does not mark them as lost."""


def manifest() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(resources.files("gpuaas_app_slurm").joinpath("manifest.yaml").read_text())
    return content


def principal(number: int) -> str:
    """Return the principal in the certificates for the machine of a cluster's controller."""
    return f"observer/{_allocation_id(number)}"


def nodes(addresses: list[str], host_key: str) -> Iterator[Node]:
    """Yield the node of each cluster's controller. Workers need none: no one logs in to a worker that is well."""
    for number, address in enumerate(addresses):
        yield Node(
            node_id=_node_id(number),
            name=f"head-{number}",
            region="bench",
            sku="bench",
            status="ready",
            address=address,
            ssh_host_public_key=host_key,
            facts=Facts(hostname=f"head-{number}", cpus=4, memory_mb=8000),
            agent_version="1.0.0",
            boot_id="boot",
            enrolled_at=_NOW,
            last_seen_at=_NEVER_LOST,
            allocation_id=_allocation_id(number),
        )


def allocations(org_id: str, project_id: str, addresses: list[str]) -> Iterator[Allocation]:
    for number, address in enumerate(addresses):
        yield Allocation(
            allocation_id=_allocation_id(number),
            org_id=org_id,
            project_id=project_id,
            status="active",
            status_reason="",
            node_id=_node_id(number),
            node_name=f"head-{number}",
            address=address,
            sku="bench",
            region="bench",
            gpus=0,
            username_on_node="bench",
            requested_by="user_1",
            correlation_id="cor_1",
            used_by_instance_ids=[records.instance_id(number)],
            created_at=_NOW,
            updated_at=_NOW,
            observer_on_node=OBSERVER,
        )


def instances(org_id: str, project_id: str, count: int, version: str) -> Iterator[Instance]:
    for number in range(count):
        yield replace(
            records.instance(org_id, project_id, number, APP),
            app_version=version,
            topology="split",
            runtime_backend=APP,
            placement={"controller": [_allocation_id(number)]},
            inputs={"cluster_name": "research", "controller_allocation_id": _allocation_id(number)},
        )


def members(org_id: str, project_id: str, addresses: list[str]) -> Iterator[Member]:
    each = 1 + WORKERS_EACH
    for number, address in enumerate(addresses):
        worker = records.member(org_id, project_id, number * each, number)
        yield replace(
            worker,
            component_key="controller",
            allocation_id=_allocation_id(number),
            node_id=_node_id(number),
            node_name=f"head-{number}",
            address=address,
            adapter_detail={},
        )
        for place in range(1, each):
            yield replace(
                worker,
                member_id=records.member_id(number * each + place),
                component_key="worker",
                node_name=_worker_name(place),
                adapter_detail={"node_name": _worker_name(place)},
            )


def watched_line(recorded: str, logins: list[str]) -> str:
    """Return the line of the watch for a cluster with all workers, made from the recorded line of one with fewer."""
    line = json.loads(recorded)
    worker = line["nodes"][-1]
    line["nodes"] = [worker | {"name": _worker_name(place)} for place in range(1, 1 + WORKERS_EACH)]
    line["associations"] = "\n".join(["|", *(f"{login}|" for login in logins)])
    return json.dumps(line, separators=(",", ":"), sort_keys=True)


def _worker_name(place: int) -> str:
    return f"gpu-{place}"


def _allocation_id(number: int) -> str:
    return f"alloc_{number:026d}"


def _node_id(number: int) -> str:
    return f"node_{number:026d}"
