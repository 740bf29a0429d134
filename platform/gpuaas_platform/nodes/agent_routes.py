"""What a node's agent calls. The token of a node names the node: none of these routes takes a node id."""

from gpuaas_contract import node
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import presence
from gpuaas_platform.nodes.enrolment import service as enrolment
from gpuaas_platform.nodes.releases import service as releases
from gpuaas_platform.nodes.tasks import service as tasks

routes = Routes()


@routes.flow(node.TRUST)
async def trust(call: Call, _: NoBody) -> node.Trust:
    return node.Trust(ca_pem=call.site.ca_pem, task_public_key_pem=call.site.keys.tasks_public_pem())


@routes.write(node.ENROL)
async def enrol(call: Call, tx: db.Tx, body: node.Enrol) -> node.Enrolled:
    return await enrolment.enrol(tx, call, body)


@routes.write(node.NODE_TOKEN)
async def node_token(call: Call, tx: db.Tx, body: node.NodeLogin) -> node.NodeToken:
    return await enrolment.login(tx, call, body)


@routes.write(node.STATUS)
async def heartbeat(call: Call, tx: db.Tx, body: node.NodeStatusReport) -> node.HeartbeatAnswer:
    return await presence.heartbeat(tx, call, body)


@routes.flow(node.TASK_NEXT)
async def next_task(call: Call, _: NoBody) -> node.NextTask:
    return await tasks.wait_for_next(call)


@routes.write(node.TASK_RESULT)
async def task_result(call: Call, tx: db.Tx, body: node.TaskResult) -> node.TaskReceipt:
    return await tasks.take_result(tx, call, body)


@routes.read(node.AGENT_FILE)
async def agent_file(call: Call, reader: db.Reader) -> node.AgentFile:
    return await releases.agent_file(reader, call)
