"""What a node's agent calls. A node's token names the node: none of these routes takes a node id."""

from gpuaas_contract import errors, node
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.capacity import allocation_tasks, node_store, nodes, store
from gpuaas_platform.kit import clock, db

routes = Routes()


@routes.flow(node.TRUST)
async def trust(call: Call, _: NoBody) -> node.Trust:
    return node.Trust(ca_pem=call.site.ca_pem, task_public_key_pem=call.site.keys.tasks_public_pem())


@routes.write(node.ENROL)
async def enrol(call: Call, tx: db.Tx, body: node.Enrol) -> node.Enrolled:
    return await nodes.enrol(tx, call, body)


@routes.write(node.NODE_TOKEN)
async def node_token(call: Call, tx: db.Tx, body: node.NodeLogin) -> node.NodeToken:
    return await nodes.login(tx, call, body)


@routes.write(node.STATUS)
async def heartbeat(call: Call, tx: db.Tx, body: node.NodeStatusReport) -> node.HeartbeatAnswer:
    return await nodes.heartbeat(tx, call, body)


@routes.flow(node.TASK_NEXT)
async def next_task(call: Call, _: NoBody) -> node.NextTask:
    node_id, site = call.caller.actor_id, call.site

    async def look() -> db.Row | None:
        return await store.next_task(site.database.reader, node_id, call.query.lane, clock.micros(site.clock()))

    row = await site.hub.poll(nodes.tasks_topic(node_id), call.query.wait_s, look, lambda found: found is not None)
    if row is None:
        return node.NextTask(task=None)
    return node.NextTask(task=node.SignedTask(payload=row["payload"], signature=row["signature"]))


@routes.write(node.TASK_RESULT)
async def task_result(call: Call, tx: db.Tx, body: node.TaskResult) -> node.TaskReceipt:
    await allocation_tasks.task_ended(tx, call, call.params["task_id"], body)
    return node.TaskReceipt(task_id=call.params["task_id"])


@routes.read(node.AGENT_FILE)
async def agent_file(call: Call, reader: db.Reader) -> node.AgentFile:
    content = await node_store.agent_file(reader, call.params["sha256"])
    if content is None:
        raise errors.NotFound
    return node.AgentFile(sha256=call.params["sha256"], content=content)
