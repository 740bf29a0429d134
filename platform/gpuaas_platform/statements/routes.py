"""HTTP routes of statements."""

from gpuaas_contract import statements

from gpuaas_platform.call import Routes
from gpuaas_platform.statements import service

routes = Routes()
routes.read(statements.STATEMENT_GET, service.statement)
routes.read(statements.STATEMENT_KEY_GET, service.public_key)
