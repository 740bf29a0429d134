"""Operations over HTTP, for people and automation: requests, reads, exits, correlations."""

from gpuaas_contract import actions, correlations, instances, operations
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.operations import actions as invocations
from gpuaas_platform.operations import correlations as bundles
from gpuaas_platform.operations import exits, previews, read, service, state

routes = Routes()


@routes.write(instances.INSTANCE_CREATE)
async def deploy(call: Call, tx: db.Tx, body: instances.DeployInstance) -> instances.Deployed:
    return await service.deploy(tx, call, body)


@routes.write(instances.OPERATOR_SET)
async def set_operator(call: Call, tx: db.Tx, body: instances.SetOperator) -> instances.Instance:
    return await service.set_operator(tx, call, body)


def _changes_instance(
    endpoint: Endpoint[instances.ChangeInstance, operations.Operation], kind: operations.OperationKind
) -> None:
    @routes.authorised_write(endpoint, service.check_force)
    async def change(call: Call, tx: db.Tx, body: instances.ChangeInstance) -> operations.Operation:
        return await service.change(tx, call, kind, body)

    routes.settled(endpoint)(previews.attach)


_changes_instance(instances.STOP, "stop")
_changes_instance(instances.START, "start")
_changes_instance(instances.RESTART, "restart")
_changes_instance(instances.ROLLBACK, "rollback")


@routes.authorised_write(instances.DECOMMISSION, service.check_force)
async def decommission(call: Call, tx: db.Tx, body: instances.Decommission) -> operations.Operation:
    return await service.change(tx, call, "decommission", body)


@routes.authorised_write(instances.UPGRADE, service.check_force)
async def upgrade(call: Call, tx: db.Tx, body: instances.UpgradeInstance) -> operations.Operation:
    return await service.upgrade(tx, call, body)


@routes.authorised_write(instances.MEMBER_OPERATION_CREATE, service.check_force)
async def operate_members(call: Call, tx: db.Tx, body: instances.MemberOperationRequest) -> operations.Operation:
    return await service.operate_members(tx, call, body)


routes.settled(instances.DECOMMISSION)(previews.attach)
routes.settled(instances.UPGRADE)(previews.attach)
routes.settled(instances.MEMBER_OPERATION_CREATE)(previews.attach)


@routes.authorised_write(actions.ACTION_INVOKE, invocations.authorise)
async def invoke_action(call: Call, tx: db.Tx, asked: invocations.Invocation) -> operations.Operation:
    return await invocations.invoke(tx, call, asked)


routes.settled(actions.ACTION_INVOKE)(invocations.wait)


@routes.flow(operations.OPERATION_GET)
async def get_operation(call: Call, _: NoBody) -> operations.Operation:
    query: operations.OperationQuery = call.query
    reader, operation_id = call.site.database.reader, call.params["operation_id"]

    async def look() -> operations.OperationHead:
        return await read.head(reader, call, operation_id)

    latest = await call.site.hub.poll(
        state.topic(operation_id), query.wait_s, look, lambda operation: operation.revision != query.revision
    )
    return await exits.offered(reader, call, await read.shown(reader, latest))


@routes.read(operations.OPERATION_LIST)
async def list_operations(call: Call, reader: db.Reader) -> Page[operations.Operation]:
    return await read.page(reader, call)


@routes.read(operations.OPERATION_STEPS)
async def list_steps(call: Call, reader: db.Reader) -> Page[operations.Step]:
    return await read.steps_page(reader, call)


@routes.write(operations.OPERATION_RETRY)
async def retry(call: Call, tx: db.Tx, body: operations.TakeExit) -> operations.Operation:
    return await exits.retry(tx, call, body)


@routes.write(operations.OPERATION_CANCEL)
async def cancel(call: Call, tx: db.Tx, body: operations.TakeExit) -> operations.Operation:
    return await exits.cancel(tx, call, body)


@routes.write(operations.OPERATION_COMPENSATE)
async def compensate(call: Call, tx: db.Tx, body: operations.TakeExit) -> operations.Operation:
    return await exits.compensate(tx, call, body)


@routes.write(operations.OPERATION_FORCE_COMPLETE)
async def force_complete(call: Call, tx: db.Tx, body: operations.TakeExit) -> operations.Operation:
    return await exits.force_complete(tx, call, body)


@routes.write(operations.OPERATION_TOMBSTONE)
async def tombstone(call: Call, tx: db.Tx, body: operations.GiveUpMembers) -> operations.Operation:
    return await exits.tombstone(tx, call, body)


@routes.read(correlations.CORRELATION_GET)
async def get_correlation(call: Call, reader: db.Reader) -> correlations.Correlation:
    return await bundles.gather(reader, call)
