"""Routes of instances, members, roles and holds."""

from gpuaas_contract import holds, instances

from gpuaas_platform.call import Routes
from gpuaas_platform.instances import holds as holds_service
from gpuaas_platform.instances import service

routes = Routes()
routes.read(instances.INSTANCE_LIST, service.page)
routes.read(instances.INSTANCE_COUNTS, service.counts)
routes.read(instances.INSTANCE_GET, service.shown)
routes.read(instances.ROLE_LIST, service.roles)
routes.write(instances.BREAKER_RESET, service.reset_breaker)
routes.read(instances.MEMBER_GET, service.named_member)
routes.read(instances.MEMBER_LIST, service.members_page)
routes.read(instances.ACCESS_BUNDLE_GET, service.access_bundle)
routes.write(holds.HOLD_PLACE, holds_service.place)
routes.read(holds.HOLD_LIST, holds_service.page)
routes.write(holds.HOLD_LIFT, holds_service.lift)
