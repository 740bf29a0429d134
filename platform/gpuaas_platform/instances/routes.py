"""App instances and operations over HTTP, for people and for app controllers."""

from gpuaas_contract import access, errors, instances, operations, runtime
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import changes, rules, service, store
from gpuaas_platform.instances import runtime as controller
from gpuaas_platform.kit import db, tables

routes = Routes()
_LEASE_CHECK_S = 1.0
"""A lease that runs out wakes nobody, so waiting claims look again this often."""


@routes.write(instances.INSTANCE_CREATE)
async def deploy(call: Call, tx: db.Tx, body: instances.DeployInstance) -> instances.Deployed:
    return await service.deploy(tx, call, body)


@routes.read(instances.INSTANCE_LIST)
async def list_instances(call: Call, reader: db.Reader) -> Page[instances.Instance]:
    found, token = await tables.page_as_stored(
        store.INSTANCES,
        reader,
        "project_id = $1",
        [call.params["project_id"]],
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Page(items=found, next_page_token=token)


@routes.read(instances.INSTANCE_GET)
async def get_instance(call: Call, reader: db.Reader) -> instances.Instance:
    return await service.in_project(reader, call, call.params["instance_id"])


@routes.read(instances.ROLE_LIST)
async def list_roles(call: Call, reader: db.Reader) -> instances.Roles:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    members = await store.members_of(reader, instance.instance_id)
    return instances.Roles(items=rules.roles(manifest, members))


@routes.read(instances.MEMBER_LIST)
async def list_members(call: Call, reader: db.Reader) -> Page[instances.Member]:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    found, token = await tables.page_as_stored(
        store.MEMBERS,
        reader,
        "instance_id = $1",
        [instance.instance_id],
        size=call.query.page_size,
        token=call.query.page_token,
    )
    return Page(items=found, next_page_token=token)


@routes.read(instances.ACCESS_BUNDLE_GET)
async def get_access_bundle(call: Call, reader: db.Reader) -> instances.AccessBundle:
    instance = await service.in_project(reader, call, call.params["instance_id"])
    bundle = await store.bundle(reader, instance.instance_id)
    if bundle is None:
        raise errors.NotFound("The app's controller has not said yet how to reach it.")
    return bundle


@routes.write(instances.DECOMMISSION)
async def decommission(call: Call, tx: db.Tx, body: instances.Decommission) -> operations.Operation:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await service.decommission(tx, call, instance.instance_id, body)


@routes.write(instances.MEMBER_OPERATION_CREATE)
async def operate_members(call: Call, tx: db.Tx, body: instances.MemberOperationRequest) -> operations.Operation:
    instance = await service.in_project(tx, call, call.params["instance_id"])
    return await service.operate_members(tx, call, instance.instance_id, body)


@routes.write(access.MACHINE_ACCESS)
async def machine_access(call: Call, tx: db.Tx, body: access.RequestMachineAccess) -> access.MachineAccess:
    return await service.machine_access(tx, call, call.params["allocation_id"], body)


@routes.flow(operations.OPERATION_GET)
async def get_operation(call: Call, _: NoBody) -> operations.Operation:
    query: operations.OperationQuery = call.query
    operation_id = call.params["operation_id"]

    async def look() -> operations.Operation:
        found = await store.OPERATIONS.get(call.site.database.reader, operation_id)
        if found is None or found.project_id != call.params["project_id"]:
            raise errors.NotFound(f"There is no operation {operation_id} in this project.")
        return found

    return await call.site.hub.poll(
        changes.operation_topic(operation_id), query.wait_s, look, lambda found: found.revision != query.revision
    )


@routes.read(operations.OPERATION_LIST)
async def list_operations(call: Call, reader: db.Reader) -> Page[operations.Operation]:
    where, values = "project_id = $1", [call.params["project_id"]]
    if call.query.instance_id:
        where, values = "project_id = $1 AND instance_id = $2", [*values, call.query.instance_id]
    found, token = await tables.page_as_stored(
        store.OPERATIONS, reader, where, values, size=call.query.page_size, token=call.query.page_token
    )
    return Page(items=found, next_page_token=token)


@routes.flow(runtime.CLAIM)
async def claim(call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
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
