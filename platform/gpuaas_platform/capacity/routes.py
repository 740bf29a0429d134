"""Nodes, allocations, and the routes of the node agent."""

from gpuaas_contract import capacity, node
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.capacity import nodes, service, store
from gpuaas_platform.kit import clock, db, tables

routes = Routes()


@routes.write(capacity.ENROLMENT_CREATE)
async def create_enrolment_token(call: Call, tx: db.Tx, body: capacity.CreateEnrolmentToken) -> capacity.EnrolmentToken:
    return await nodes.create_token(tx, call, body)


@routes.read(capacity.NODE_LIST)
async def list_nodes(call: Call, reader: db.Reader) -> Page[capacity.Node]:
    found, token = await tables.page_as_stored(
        store.NODES, reader, "1 = 1", [], size=call.query.page_size, token=call.query.page_token
    )
    return Page(items=found, next_page_token=token)


@routes.write(capacity.ALLOCATION_CREATE)
async def create_allocation(call: Call, tx: db.Tx, body: capacity.CreateAllocation) -> capacity.Allocation:
    return await service.create(tx, call, body)


@routes.read(capacity.ALLOCATION_LIST)
async def list_allocations(call: Call, reader: db.Reader) -> Page[capacity.Allocation]:
    found, token = await tables.page_as_stored(
        store.ALLOCATIONS,
        reader,
        "project_id = $1",
        [call.params["project_id"]],
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Page(items=found, next_page_token=token)


@routes.read(capacity.ALLOCATION_GET)
async def get_allocation(call: Call, reader: db.Reader) -> capacity.Allocation:
    return await service.in_project(reader, call.params["project_id"], call.params["allocation_id"])


@routes.write(capacity.ALLOCATION_RELEASE)
async def release_allocation(call: Call, tx: db.Tx, _: NoBody) -> capacity.Allocation:
    return await service.release(tx, call, call.params["allocation_id"])


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
    node_id = call.caller.actor_id

    async def look() -> db.Row | None:
        return await store.next_task(call.site.database.reader, node_id, clock.micros(call.site.clock()))

    row = await call.site.hub.poll(nodes.tasks_topic(node_id), call.query.wait_s, look, lambda found: found is not None)
    if row is None:
        return node.NextTask(task=None)
    return node.NextTask(task=node.SignedTask(payload=row["payload"], signature=row["signature"]))


@routes.write(node.TASK_RESULT)
async def task_result(call: Call, tx: db.Tx, body: node.TaskResult) -> node.TaskReceipt:
    await service.task_ended(tx, call, call.params["task_id"], body)
    return node.TaskReceipt(task_id=call.params["task_id"])
