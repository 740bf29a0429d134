"""Nodes, their tasks and the agent's releases, as operators see them."""

from gpuaas_contract import agents, capacity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.allocations import store
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import admin as node_admin
from gpuaas_platform.nodes import rules as node_rules
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import store as node_store
from gpuaas_platform.nodes import tasks as node_tasks

routes = Routes()


@routes.write(capacity.ENROLMENT_CREATE)
async def create_enrolment_token(call: Call, tx: db.Tx, body: capacity.CreateEnrolmentToken) -> capacity.EnrolmentToken:
    return await nodes.create_token(tx, call, body)


@routes.read(capacity.NODE_LIST)
async def list_nodes(call: Call, reader: db.Reader) -> Page[capacity.Node]:
    where, values = store.node_filter(call.query)
    return await call.page(reader, store.NODES, where, *values)


@routes.read(capacity.NODE_GET)
async def get_node(call: Call, reader: db.Reader) -> capacity.Node:
    return await node_admin.node(reader, call.params["node_id"])


@routes.write(capacity.NODE_SET)
async def set_node(call: Call, tx: db.Tx, body: capacity.SetNode) -> capacity.Node:
    return await node_admin.classify(tx, call, call.params["node_id"], body)


@routes.write(capacity.NODE_CORDON)
async def cordon_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await node_admin.move(tx, call, call.params["node_id"], "cordoned", body.reason)


@routes.write(capacity.NODE_UNCORDON)
async def uncordon_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await node_admin.move(tx, call, call.params["node_id"], "active", body.reason)


@routes.write(capacity.NODE_DRAIN)
async def drain_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.NodeDrain:
    return await node_admin.drain(tx, call, call.params["node_id"], body.reason)


@routes.write(capacity.NODE_RETIRE)
async def retire_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await node_admin.retire(tx, call, call.params["node_id"], body.reason)


@routes.read(capacity.NODE_ALLOCATIONS)
async def allocations_of_node(call: Call, reader: db.Reader) -> capacity.NodeAllocations:
    found = await node_admin.node(reader, call.params["node_id"])
    present = await node_store.allocations_on(reader, found.node_id)
    return capacity.NodeAllocations(items=[node_rules.shown(allocation) for allocation in present])


@routes.write(agents.AGENT_RELEASE_REGISTER)
async def register_agent_release(call: Call, tx: db.Tx, body: agents.RegisterAgentRelease) -> agents.AgentRelease:
    return await node_tasks.register_release(tx, call, body)


@routes.read(agents.AGENT_RELEASE_LIST)
async def list_agent_releases(call: Call, reader: db.Reader) -> Page[agents.AgentRelease]:
    return await call.page(reader, node_store.AGENT_RELEASES, "1 = 1")


@routes.write(agents.NODE_UPGRADE_AGENT)
async def upgrade_agent(call: Call, tx: db.Tx, body: agents.UpgradeAgent) -> agents.NodeTask:
    return await node_tasks.upgrade_agent(tx, call, call.params["node_id"], body)


@routes.write(agents.NODE_INSPECT)
async def inspect_node(call: Call, tx: db.Tx, body: agents.InspectNode) -> agents.NodeTask:
    return await node_tasks.inspect(tx, call, call.params["node_id"], body.type)


@routes.read(agents.NODE_TASK_LIST)
async def list_node_tasks(call: Call, reader: db.Reader) -> Page[agents.NodeTask]:
    found = await node_admin.node(reader, call.params["node_id"])
    query = call.query
    items, token = await node_store.tasks_of(reader, found.node_id, size=query.page_size, token=query.page_token)
    return Page(items=items, next_page_token=token)


@routes.flow(agents.NODE_TASK_GET)
async def get_node_task(call: Call, _: NoBody) -> agents.NodeTask:
    return await node_tasks.wait_for(call, call.params["node_id"], call.params["task_id"], call.query.wait_s)
