"""People and the roles they hold."""

from gpuaas_contract import bindings as contract
from gpuaas_contract import users as people
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.identity import store
from gpuaas_platform.identity.bindings import break_glass
from gpuaas_platform.identity.bindings import service as bindings
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import db, paging

routes = Routes()


@routes.prepared_write(people.USER_CREATE, users.prepare_create)
async def create_user(call: Call, tx: db.Tx, wanted: users.Prepared) -> people.User:
    return await users.create(tx, call, wanted)


@routes.read(people.USER_LIST)
async def list_users(call: Call, reader: db.Reader) -> Page[people.User]:
    after, limit = paging.bounds("users", call.query)
    found = await store.users_after(reader, after, limit)
    return paging.page("users", found, limit, lambda user: user.user_id)


@routes.read(people.USER_GET)
async def get_user(call: Call, reader: db.Reader) -> people.User:
    return await users.get(reader, call.params["user_id"])


@routes.write(people.USER_DISABLE)
async def disable_user(call: Call, tx: db.Tx, _: NoBody) -> people.User:
    return await users.disable(tx, call.params["user_id"])


@routes.write(people.USER_ENABLE)
async def enable_user(call: Call, tx: db.Tx, _: NoBody) -> people.User:
    return await users.enable(tx, call.params["user_id"])


@routes.prepared_write(people.USER_SET_PASSWORD, users.prepare_password)
async def set_password(call: Call, tx: db.Tx, wanted: users.Prepared) -> people.User:
    return await users.set_password(tx, call.params["user_id"], wanted)


@routes.prepared_write(people.MY_PASSWORD, users.prepare_own_password)
async def change_own_password(call: Call, tx: db.Tx, wanted: users.Prepared) -> people.User:
    return await users.change_own_password(tx, call, wanted)


@routes.write(contract.PLATFORM_BINDING_CREATE)
@routes.write(contract.ORG_BINDING_CREATE)
@routes.write(contract.PROJECT_BINDING_CREATE)
async def bind_role(call: Call, tx: db.Tx, body: contract.BindRole) -> contract.RoleBinding:
    return await bindings.create(tx, call, body)


@routes.read(contract.PLATFORM_BINDING_LIST)
@routes.read(contract.ORG_BINDING_LIST)
@routes.read(contract.PROJECT_BINDING_LIST)
async def list_bindings(call: Call, reader: db.Reader) -> Page[contract.RoleBinding]:
    after, limit = paging.bounds("bindings", call.query)
    found = await store.bindings_at(reader, bindings.place_of(call).scope, call.now, after=after, limit=limit)
    return paging.page("bindings", found, limit, lambda binding: binding.binding_id)


@routes.write(contract.PLATFORM_BINDING_DELETE)
@routes.write(contract.ORG_BINDING_DELETE)
@routes.write(contract.PROJECT_BINDING_DELETE)
async def unbind_role(call: Call, tx: db.Tx, _: NoBody) -> contract.RoleBinding:
    return await bindings.delete(tx, call, call.params["binding_id"])


@routes.write(contract.BREAK_GLASS_CREATE)
async def take_access(call: Call, tx: db.Tx, body: contract.BreakGlass) -> contract.RoleBinding:
    return await break_glass.take(tx, call, body)


@routes.write(contract.BREAK_GLASS_END)
async def end_access(call: Call, tx: db.Tx, _: NoBody) -> contract.RoleBinding:
    return await break_glass.end(tx, call, call.params["binding_id"])
