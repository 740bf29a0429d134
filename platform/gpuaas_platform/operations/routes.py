"""HTTP routes of operations: requests, reads, exits and correlations for users and automation; the runtime API for app
controllers."""

from gpuaas_contract import actions, correlations, instances, operations, runtime, stewardships
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG

from gpuaas_platform.call import Routes
from gpuaas_platform.operations import actions as invocations
from gpuaas_platform.operations import (
    claim,
    controllers,
    end,
    exits,
    log,
    observe,
    previews,
    read,
    report,
    service,
    stewards,
)
from gpuaas_platform.operations import correlations as bundles

routes = Routes()
routes.write(instances.INSTANCE_CREATE, service.deploy)
routes.write(instances.OPERATOR_SET, service.set_operator)
routes.write(instances.STOP, service.stop, authorise=service.check_force, settle=previews.attach)
routes.write(instances.START, service.start, authorise=service.check_force, settle=previews.attach)
routes.write(instances.RESTART, service.restart, authorise=service.check_force, settle=previews.attach)
routes.write(instances.UPGRADE, service.upgrade, authorise=service.check_force, settle=previews.attach)
routes.write(instances.ROLLBACK, service.rollback, authorise=service.check_force, settle=previews.attach)
routes.write(instances.RECONFIGURE, service.reconfigure, authorise=service.check_force, settle=previews.attach)
routes.write(instances.DECOMMISSION, service.decommission, authorise=service.check_force, settle=previews.attach)
routes.write(
    instances.MEMBER_OPERATION_CREATE, service.operate_members, authorise=service.check_force, settle=previews.attach
)
routes.write(actions.ACTION_INVOKE, invocations.invoke, authorise=invocations.authorise, settle=invocations.wait)
routes.flow(operations.OPERATION_GET, exits.wait_for_change)
routes.read(operations.OPERATION_LIST, read.page)
routes.read(operations.OPERATION_STEPS, read.steps_page)
routes.read(operations.OPERATION_LOG, log.page)
routes.write(operations.OPERATION_RETRY, exits.retry)
routes.write(operations.OPERATION_CANCEL, exits.cancel)
routes.write(operations.OPERATION_COMPENSATE, exits.compensate)
routes.write(operations.OPERATION_FORCE_COMPLETE, exits.force_complete)
routes.write(operations.OPERATION_TOMBSTONE, exits.tombstone)
routes.read(correlations.CORRELATION_GET, bundles.gather)

routes.flow(runtime.CLAIM, claim.claim)
routes.write(runtime.HEARTBEAT, claim.heartbeat)
routes.write(runtime.STEP_REPORT, report.report_step)
routes.write(runtime.MEMBER_REPORT, report.report_member)
routes.write(runtime.ACCESS_PUBLISH, report.publish_access)
routes.write(runtime.COMPLETE, end.complete)
routes.write(runtime.FAIL, end.fail)
routes.write(runtime.RUNTIME_REPORT, observe.report)
routes.read(CONTROLLER_LIST, controllers.page)
routes.read(CONTROLLER_LOG, controllers.log_page)

routes.write(stewardships.RENEW, stewards.renew, authorise=stewards.admit)
routes.write(stewardships.ACCESS_PUBLISH, stewards.publish_access)
routes.write(stewardships.OPERATION_REQUEST, stewards.request)
