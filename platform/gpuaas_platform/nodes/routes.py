"""Nodes, their tasks and the agent's releases over HTTP. Drain and retire are in `allocations.by_node`."""

from gpuaas_contract import agents, capacity

from gpuaas_platform.call import Routes
from gpuaas_platform.nodes import service
from gpuaas_platform.nodes.enrolment import service as enrolment
from gpuaas_platform.nodes.releases import service as releases
from gpuaas_platform.nodes.tasks import service as tasks

routes = Routes()
routes.write(capacity.ENROLMENT_CREATE, enrolment.create_token)
routes.read(capacity.NODE_LIST, service.list_nodes)
routes.read(capacity.NODE_GET, service.get)
routes.write(capacity.NODE_SET, service.classify)
routes.write(capacity.NODE_CORDON, service.cordon)
routes.write(capacity.NODE_UNCORDON, service.uncordon)
routes.write(agents.AGENT_RELEASE_REGISTER, releases.register)
routes.read(agents.AGENT_RELEASE_LIST, releases.list_releases)
routes.write(agents.NODE_UPGRADE_AGENT, releases.upgrade)
routes.write(agents.NODE_INSPECT, tasks.inspect)
routes.read(agents.NODE_TASK_LIST, tasks.list_tasks)
routes.flow(agents.NODE_TASK_GET, tasks.wait_for_end)
