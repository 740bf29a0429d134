"""The runtime API of app controllers over HTTP: claim, heartbeat, reports, ends, runtime state."""

from gpuaas_contract import runtime

from gpuaas_platform.call import Routes
from gpuaas_platform.operations import claim, controllers, end, observe, report

routes = Routes()
routes.flow(runtime.CLAIM, claim.claim)
routes.write(runtime.HEARTBEAT, claim.heartbeat)
routes.write(runtime.STEP_REPORT, report.report_step)
routes.write(runtime.MEMBER_REPORT, report.report_member)
routes.write(runtime.ACCESS_PUBLISH, report.publish_access)
routes.write(runtime.COMPLETE, end.complete)
routes.write(runtime.FAIL, end.fail)
routes.write(runtime.RUNTIME_REPORT, observe.report)
routes.read(runtime.CONTROLLER_LIST, controllers.page)
