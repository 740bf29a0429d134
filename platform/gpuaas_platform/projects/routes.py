"""The route that deletes a project. `identity` has the other routes of projects."""

from gpuaas_contract import identity

from gpuaas_platform.call import Routes
from gpuaas_platform.projects import service

routes = Routes()
routes.write(identity.PROJECT_DELETE, service.delete)
