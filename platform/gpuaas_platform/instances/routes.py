"""App instances and operations over HTTP, for people and for app controllers."""

from gpuaas_contract import actions, errors, holds, instances, operations, runtime
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, changes, store
from gpuaas_platform.instances import holds as holding
from gpuaas_platform.kit import db
from gpuaas_platform.operations import actions as invoking
from gpuaas_platform.operations import exits, previews, service
from gpuaas_platform.operations import observe as observing
from gpuaas_platform.operations import report as controller

routes = Routes()
_LEASE_CHECK_S = 1.0
"""A lease that runs out wakes nobody, so waiting claims look again this often."""


@routes.write(instances.INSTANCE_CREATE)
async def deploy(call: Call, tx: db.Tx, body: instances.DeployInstance) -> instances.Deployed:
    return await service.deploy(tx, call, body)


@routes.read(instances.INSTANCE_LIST)
async def list_instances(call: Call, reader: db.Reader) -> Page[instances.Instance]:
    return await call.page(
        reader,
        store.INSTANCES,
        store.LIVE_INSTANCES if call.query.live else "project_id = $1",
        call.params["project_id"],
    )


@routes.read(instances.INSTANCE_GET)
async def get_instance(call: Call, reader: db.Reader) -> instances.Instance:
    return await service.in_project(reader, call, call.params["instance_id"])


@routes.read(instances.ROLE_LIST)
async def list_roles(call: Call, reader: db.Reader) -> instances.Roles:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    members = await store.live_members(reader, instance.instance_id)
    states = await breakers.states(reader, instance.instance_id, manifest, call.now)
    return instances.Roles(items=status_rules.roles(manifest, members, states))


@routes.write(instances.OPERATOR_SET)
async def set_operator(call: Call, tx: db.Tx, body: instances.SetOperator) -> instances.Instance:
    return await service.set_operator(tx, call, body)


@routes.write(instances.BREAKER_RESET)
async def reset_breaker(call: Call, tx: db.Tx, body: instances.ResetBreaker) -> instances.Role:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await breakers.reset(tx, call, instance, call.params["component_key"], body.reason)


@routes.read(instances.MEMBER_GET)
async def get_member(call: Call, reader: db.Reader) -> instances.Member:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    return await service.member_in(reader, instance, call.params["member_id"])


@routes.read(instances.MEMBER_LIST)
async def list_members(call: Call, reader: db.Reader) -> Page[instances.Member]:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    return await call.page(
        reader, store.MEMBERS, store.LIVE_MEMBERS if call.query.live else "instance_id = $1", instance.instance_id
    )


@routes.read(instances.ACCESS_BUNDLE_GET)
async def get_access_bundle(call: Call, reader: db.Reader) -> instances.AccessBundle:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    bundle = await store.bundle(reader, instance.instance_id)
    if bundle is None:
        raise errors.NotFound("The app's controller has not said yet how to reach it.")
    return bundle


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


@routes.authorised_write(actions.ACTION_INVOKE, invoking.authorise)
async def invoke_action(call: Call, tx: db.Tx, asked: invoking.Invocation) -> operations.Operation:
    return await invoking.invoke(tx, call, asked)


routes.settled(actions.ACTION_INVOKE)(invoking.wait)


@routes.write(holds.HOLD_PLACE)
async def place_hold(call: Call, tx: db.Tx, body: holds.PlaceHold) -> holds.Hold:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    member = await service.member_in(tx, instance, call.params["member_id"])
    return await holding.place(tx, call, instance, member, body)


@routes.read(holds.HOLD_LIST)
async def list_holds(call: Call, reader: db.Reader) -> Page[holds.Hold]:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    return await call.page(reader, store.HOLDS, "instance_id = $1", instance.instance_id)


@routes.write(holds.HOLD_LIFT)
async def lift_hold(call: Call, tx: db.Tx, _: NoBody) -> holds.Hold:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await holding.lift(tx, call, instance, call.params["hold_id"])


@routes.flow(operations.OPERATION_GET)
async def get_operation(call: Call, _: NoBody) -> operations.Operation:
    query: operations.OperationQuery = call.query
    operation_id = call.params["operation_id"]

    async def look() -> operations.Operation:
        return await controller.operation_in(call.site.database.reader, call)

    found = await call.site.hub.poll(
        changes.operation_topic(operation_id), query.wait_s, look, lambda found: found.revision != query.revision
    )
    return await exits.offered(call.site.database.reader, call, found)


@routes.read(operations.OPERATION_LIST)
async def list_operations(call: Call, reader: db.Reader) -> Page[operations.Operation]:
    where, values = "project_id = $1", [call.params["project_id"]]
    if call.query.instance_id:
        where, values = "project_id = $1 AND instance_id = $2", [*values, call.query.instance_id]
    return await call.page(reader, store.OPERATIONS, where, *values)


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


@routes.flow(runtime.CLAIM)
async def claim(call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    await catalog.check_app(call.site.database.reader, body.app_slug)
    await call.site.database.write(
        lambda tx: observing.seen(tx, call, body.app_slug, body.holder, body.controller_version)
    )
    return await call.site.hub.poll(
        changes.claims_topic(call.params["project_id"], body.app_slug),
        body.wait_s,
        lambda: controller.try_claim(call, body),
        lambda found: found.operation is not None,
        look_every_s=_LEASE_CHECK_S,
    )


@routes.write(runtime.HEARTBEAT)
async def heartbeat(call: Call, tx: db.Tx, body: runtime.Heartbeat) -> operations.Lease:
    return await controller.heartbeat(tx, call, body)


@routes.write(runtime.STEP_REPORT)
async def report_step(call: Call, tx: db.Tx, body: runtime.ReportStep) -> operations.Operation:
    return await controller.report_step(tx, call, body)


@routes.write(runtime.MEMBER_REPORT)
async def report_member(call: Call, tx: db.Tx, body: runtime.ReportMember) -> instances.Member:
    return await controller.report_member(tx, call, call.params["member_id"], body)


@routes.write(runtime.ACCESS_PUBLISH)
async def publish_access(call: Call, tx: db.Tx, body: runtime.PublishAccess) -> instances.AccessBundle:
    return await controller.publish_access(tx, call, body)


@routes.write(runtime.COMPLETE)
async def complete(call: Call, tx: db.Tx, body: runtime.CompleteOperation) -> operations.Operation:
    return await controller.complete(tx, call, body)


@routes.write(runtime.FAIL)
async def fail(call: Call, tx: db.Tx, body: runtime.FailOperation) -> operations.Operation:
    return await controller.fail(tx, call, body)


@routes.write(runtime.RUNTIME_REPORT)
async def report_runtime(call: Call, tx: db.Tx, body: runtime.ReportRuntime) -> runtime.RuntimeReported:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await observing.report(tx, call, instance, body)


@routes.read(runtime.CONTROLLER_LIST)
async def list_controllers(call: Call, reader: db.Reader) -> Page[runtime.Controller]:
    return await call.page(reader, store.CONTROLLERS, "project_id = $1", call.params["project_id"])
