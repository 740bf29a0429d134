"""The route that deletes a project. `identity` has the other routes of projects."""

from gpuaas_contract import identity
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.projects import service

routes = Routes()


@routes.write(identity.PROJECT_DELETE)
async def delete_project(call: Call, tx: db.Tx, _: NoBody) -> identity.Project:
    return await service.delete(tx, call)
