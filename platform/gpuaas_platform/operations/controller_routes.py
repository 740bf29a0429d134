"""The runtime API of app controllers over HTTP: claim, heartbeat, reports, ends, runtime state."""

from gpuaas_contract import instances, operations, runtime
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.operations import claim, controllers, end, observe, report

routes = Routes()


@routes.flow(runtime.CLAIM)
async def claim_operation(call: Call, body: runtime.ClaimOperation) -> runtime.Claim:
    return await claim.claim(call, body)


@routes.write(runtime.HEARTBEAT)
async def heartbeat(call: Call, tx: db.Tx, body: runtime.Heartbeat) -> operations.Receipt:
    return await claim.heartbeat(tx, call, body)


@routes.write(runtime.STEP_REPORT)
async def report_step(call: Call, tx: db.Tx, body: runtime.ReportStep) -> operations.Receipt:
    return await report.report_step(tx, call, body)


@routes.write(runtime.MEMBER_REPORT)
async def report_member(call: Call, tx: db.Tx, body: runtime.ReportMember) -> operations.Receipt:
    return await report.report_member(tx, call, body)


@routes.write(runtime.ACCESS_PUBLISH)
async def publish_access(call: Call, tx: db.Tx, body: runtime.PublishAccess) -> instances.AccessBundle:
    return await report.publish_access(tx, call, body)


@routes.write(runtime.COMPLETE)
async def complete(call: Call, tx: db.Tx, body: runtime.CompleteOperation) -> operations.Operation:
    return await end.complete(tx, call, body)


@routes.write(runtime.FAIL)
async def fail(call: Call, tx: db.Tx, body: runtime.FailOperation) -> operations.Operation:
    return await end.fail(tx, call, body)


@routes.write(runtime.RUNTIME_REPORT)
async def report_runtime(call: Call, tx: db.Tx, body: runtime.ReportRuntime) -> runtime.RuntimeReported:
    return await observe.report(tx, call, body)


@routes.read(runtime.CONTROLLER_LIST)
async def list_controllers(call: Call, reader: db.Reader) -> Page[runtime.Controller]:
    return await call.page(reader, controllers.CONTROLLERS, "project_id = $1", call.params["project_id"])
