"""Nodes, their tasks and the agent's releases over HTTP. Drain and retire are in `allocations.by_node`."""

from gpuaas_contract import agents, capacity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import service
from gpuaas_platform.nodes.enrolment import service as enrolment
from gpuaas_platform.nodes.releases import service as releases
from gpuaas_platform.nodes.tasks import service as tasks

routes = Routes()


@routes.write(capacity.ENROLMENT_CREATE)
async def create_enrolment_token(call: Call, tx: db.Tx, body: capacity.CreateEnrolmentToken) -> capacity.EnrolmentToken:
    return await enrolment.create_token(tx, call, body)


@routes.read(capacity.NODE_LIST)
async def list_nodes(call: Call, reader: db.Reader) -> Page[capacity.Node]:
    return await service.list_nodes(reader, call)


@routes.read(capacity.NODE_GET)
async def get_node(call: Call, reader: db.Reader) -> capacity.Node:
    return await service.get(reader, call)


@routes.write(capacity.NODE_SET)
async def set_node(call: Call, tx: db.Tx, body: capacity.SetNode) -> capacity.Node:
    return await service.classify(tx, call, body)


@routes.write(capacity.NODE_CORDON)
async def cordon_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await service.cordon(tx, call, body)


@routes.write(capacity.NODE_UNCORDON)
async def uncordon_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await service.uncordon(tx, call, body)


@routes.write(agents.AGENT_RELEASE_REGISTER)
async def register_agent_release(call: Call, tx: db.Tx, body: agents.RegisterAgentRelease) -> agents.AgentRelease:
    return await releases.register(tx, call, body)


@routes.read(agents.AGENT_RELEASE_LIST)
async def list_agent_releases(call: Call, reader: db.Reader) -> Page[agents.AgentRelease]:
    return await releases.list_releases(reader, call)


@routes.write(agents.NODE_UPGRADE_AGENT)
async def upgrade_agent(call: Call, tx: db.Tx, body: agents.UpgradeAgent) -> agents.NodeTask:
    return await releases.upgrade(tx, call, body)


@routes.write(agents.NODE_INSPECT)
async def inspect_node(call: Call, tx: db.Tx, body: agents.InspectNode) -> agents.NodeTask:
    return await tasks.inspect(tx, call, body)


@routes.read(agents.NODE_TASK_LIST)
async def list_node_tasks(call: Call, reader: db.Reader) -> Page[agents.NodeTask]:
    return await tasks.list_tasks(reader, call)


@routes.flow(agents.NODE_TASK_GET)
async def get_node_task(call: Call, _: NoBody) -> agents.NodeTask:
    return await tasks.wait_for_end(call)
