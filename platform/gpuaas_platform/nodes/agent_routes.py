"""What a node's agent calls. A node's token names the node: none of these routes takes a node id."""

from gpuaas_contract import errors, node
from gpuaas_contract.wire import NoBody

from gpuaas_platform.allocations import store
from gpuaas_platform.allocations import task_results as allocation_tasks
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import clock, db
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import store as node_store

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
    node_id, busy_with, reader = call.caller.actor_id, call.query.busy_with, call.site.database.reader

    async def look() -> tuple[db.Row | None, bool]:
        """The task, and whether it is enough to answer: the end of what the node was busy with is, too."""
        now = clock.micros(call.site.clock())
        found = await store.next_task(reader, node_id, now, urgent_only=bool(busy_with))
        if found is None and busy_with:
            return None, not await store.is_queued(reader, node_id, busy_with)
        return found, found is not None

    topic = nodes.tasks_topic(node_id)
    row, _is_enough = await call.site.hub.poll(topic, call.query.wait_s, look, lambda found: found[1])
    if row is None:
        return node.NextTask(task=None)
    signed = node.SignedTask(payload=row["payload"], signature=row["signature"])
    return node.NextTask(task=signed, is_urgent=bool(row["is_urgent"]))


@routes.write(node.TASK_RESULT)
async def task_result(call: Call, tx: db.Tx, body: node.TaskResult) -> node.TaskReceipt:
    await allocation_tasks.task_ended(tx, call, call.params["task_id"], body)
    tx.wake(nodes.tasks_topic(call.caller.actor_id))
    return node.TaskReceipt(task_id=call.params["task_id"])


@routes.read(node.AGENT_FILE)
async def agent_file(call: Call, reader: db.Reader) -> node.AgentFile:
    content = await node_store.agent_file(reader, call.params["sha256"])
    if content is None:
        raise errors.NotFound
    return node.AgentFile(sha256=call.params["sha256"], content=content)
