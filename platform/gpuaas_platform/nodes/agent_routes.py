"""What a node's agent calls. The token of a node names the node: none of these routes takes a node id."""

from gpuaas_contract import node

from gpuaas_platform.call import Routes
from gpuaas_platform.nodes import presence
from gpuaas_platform.nodes.enrolment import service as enrolment
from gpuaas_platform.nodes.releases import service as releases
from gpuaas_platform.nodes.tasks import service as tasks

routes = Routes()
routes.flow(node.TRUST, enrolment.trust)
routes.write(node.ENROL, enrolment.enrol)
routes.write(node.NODE_TOKEN, enrolment.login)
routes.write(node.STATUS, presence.heartbeat)
routes.flow(node.TASK_NEXT, tasks.wait_for_next)
routes.write(node.TASK_RESULT, tasks.take_result)
routes.read(node.AGENT_FILE, releases.agent_file)
