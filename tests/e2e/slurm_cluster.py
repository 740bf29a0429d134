"""The Slurm instance of the end-to-end tests, brought to the stage that a test needs from any other stage.

The stage is read from the platform each time, so every test can run alone, and in order none does work twice."""

import enum

from gpuaas_contract import instances, operations
from local_cloud import Project

NAME = "e2e"
WORKERS = ["gpu-1", "gpu-2", "gpu-3"]
ADDED = "gpu-4"


class Stage(enum.IntEnum):
    """How far the cluster is: each stage includes the ones before."""

    NONE = 0
    DEPLOYED = 1
    ADDED = 2
    DRAINED = 3


class Cluster:
    def __init__(self, project: Project) -> None:
        self._project = project

    async def reach(self, stage: Stage) -> None:
        present = await self.stage()
        if present > stage and stage is Stage.NONE:
            await self._succeeded(await self.decommission())
        elif present > stage:
            await self._succeeded(await self._leave(present, stage))
        for missing in range(present + 1, stage + 1):
            await self._succeeded(await self._advance(Stage(missing)))

    async def stage(self) -> Stage:
        instance = await self._instance()
        if instance is None:
            return Stage.NONE
        statuses = {member.node_name: member.status for member in await self.workers()}
        if ADDED not in statuses:
            return Stage.DEPLOYED
        return Stage.DRAINED if statuses[ADDED] == "drained" else Stage.ADDED

    async def deploy(self) -> operations.Operation:
        allocations = await self._project.allocations()
        inputs = {
            "cluster_name": NAME,
            "controller_allocation_id": allocations[WORKERS[0]].allocation_id,
            "worker_allocation_ids": [allocations[name].allocation_id for name in WORKERS],
        }
        body = instances.DeployInstance(name=NAME, app_slug="slurm", topology="split", inputs=inputs)
        call = self._project.client.call
        return (await call(instances.INSTANCE_CREATE, body, project_id=self._project.project_id)).operation

    async def add_worker(self) -> operations.Operation:
        allocation = (await self._project.allocations())[ADDED]
        return await self._operate(kind="add", component_key="worker", allocation_ids=[allocation.allocation_id])

    async def drain_added(self) -> operations.Operation:
        return await self._operate(kind="drain", member_ids=[await self._added_id()], reason="maintenance")

    async def remove_added(self) -> operations.Operation:
        return await self._operate(kind="remove", member_ids=[await self._added_id()])

    async def decommission(self) -> operations.Operation:
        return await self._project.client.call(
            instances.DECOMMISSION,
            instances.Decommission(reason="the test needs empty machines"),
            project_id=self._project.project_id,
            instance_id=await self.instance_id(),
        )

    async def members(self) -> list[instances.Member]:
        return await self._project.members(await self.instance_id())

    async def workers(self) -> list[instances.Member]:
        """Workers that are not removed."""
        return [
            member for member in await self.members() if member.component_key == "worker" and member.status != "removed"
        ]

    async def instance_id(self) -> str:
        instance = await self._instance()
        assert instance is not None, f"there is no instance {NAME}"
        return instance.instance_id

    async def _advance(self, stage: Stage) -> operations.Operation:
        steps = {Stage.DEPLOYED: self.deploy, Stage.ADDED: self.add_worker, Stage.DRAINED: self.drain_added}
        return await steps[stage]()

    async def _leave(self, present: Stage, stage: Stage) -> operations.Operation:
        if stage is Stage.ADDED:
            return await self._operate(kind="resume", member_ids=[await self._added_id()])
        if present is Stage.ADDED:
            await self._succeeded(await self.drain_added())
        return await self.remove_added()

    async def _operate(self, **body: object) -> operations.Operation:
        return await self._project.operate(await self.instance_id(), **body)

    async def _added_id(self) -> str:
        return next(member.member_id for member in await self.workers() if member.node_name == ADDED)

    async def _instance(self) -> instances.Instance | None:
        pages = self._project.client.pages(instances.INSTANCE_LIST, project_id=self._project.project_id)
        listed = [instance async for instance in pages if instance.name == NAME and instance.status != "deleted"]
        return listed[-1] if listed else None

    async def _succeeded(self, operation: operations.Operation) -> None:
        ended = await self._project.ended(operation.operation_id)
        assert (ended.status, ended.error) == ("succeeded", None)
