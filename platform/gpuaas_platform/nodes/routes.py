"""Routes of nodes, their tasks and the agent's releases. Drain and retire are in `allocations`."""

from gpuaas_contract import agents, capacity, node

from gpuaas_platform.call import Routes
from gpuaas_platform.nodes import enrolment, releases, service
from gpuaas_platform.nodes.sanitise import service as sanitise
from gpuaas_platform.nodes.tasks import service as tasks

routes = Routes()
routes.write(capacity.ENROLMENT_CREATE, enrolment.create_token)
routes.read(capacity.NODE_LIST, service.list_nodes)
routes.read(capacity.NODE_GET, service.get)
routes.write(capacity.NODE_SET, service.classify)
routes.write(capacity.NODE_CORDON, service.cordon)
routes.write(capacity.NODE_UNCORDON, service.uncordon)
routes.write(capacity.NODE_SANITISE, sanitise.sanitise)
routes.write(capacity.NODE_MARK_SANITISED, sanitise.mark_sanitised)
routes.write(agents.AGENT_RELEASE_REGISTER, releases.register)
routes.write(agents.AGENT_RELEASE_APPROVE, releases.approve)
routes.read(agents.AGENT_RELEASE_LIST, releases.list_releases)
routes.write(agents.NODE_UPGRADE_AGENT, releases.upgrade)
routes.write(agents.NODE_INSPECT, tasks.inspect)
routes.read(agents.NODE_TASK_LIST, tasks.list_tasks)
routes.flow(agents.NODE_TASK_GET, tasks.wait_for_end)

# Routes for agents. The token identifies the node, so none of these routes has a node id in its path.
routes.flow(node.TRUST, enrolment.trust)
routes.write(node.ENROL, enrolment.enrol)
routes.write(node.NODE_TOKEN, enrolment.login)
routes.flow(node.STATUS, tasks.heartbeat)
routes.flow(node.TASK_NEXT, tasks.wait_for_next)
routes.write(node.TASK_RESULT, tasks.take_result)
routes.read(node.AGENT_FILE, releases.agent_file)
