"""HTTP routes of policy overlays. The route of `can-i` is in `catalog`, because apps declare permissions too."""

from gpuaas_contract import policy

from gpuaas_platform.call import Routes
from gpuaas_platform.policy import service

routes = Routes()
routes.read(policy.GLOBAL_GET, service.present)
routes.read(policy.ORG_GET, service.present)
routes.read(policy.PROJECT_GET, service.present)
routes.write(policy.GLOBAL_SET, service.change)
routes.write(policy.ORG_SET, service.change)
routes.write(policy.PROJECT_SET, service.change)
routes.flow(policy.EXPLAIN, service.explain)
