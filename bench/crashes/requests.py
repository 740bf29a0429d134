"""Request the operation of a move for one cluster, as people do."""

from gpuaas_contract.operations import Operation
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.plan import Move
from gpuaas_sdk.conformance.real import requests
from gpuaas_sdk.conformance.real.requests import Place

from bench.crashes.cloud import Cloud
from bench.crashes.clusters import Cluster


async def request(cloud: Cloud, cluster: Cluster, move: Move) -> Operation:
    """Request the operation. If the app repairs a member by itself at the moment, wait for that."""
    if version := plan.version_of(cloud.subject.manifest, move.kind):
        for machine in cluster.machines:
            cloud.subject.driver.offer(machine, version)
    cluster.lives += move.kind == "deploy"
    place = Place(
        cloud.client,
        cloud.project_id,
        cloud.subject,
        cluster.allocation_ids,
        name=f"c{cluster.number}-{cluster.lives}",
        instance_id=cluster.instance_id,
    )
    operation = await requests.request(place, move)
    cluster.instance_id = place.instance_id
    return operation
