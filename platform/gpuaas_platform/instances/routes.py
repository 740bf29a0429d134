"""Instances, members, roles and holds over HTTP."""

from gpuaas_contract import holds, instances
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.instances import breakers, service, store
from gpuaas_platform.instances import holds as holds_service
from gpuaas_platform.kit import db

routes = Routes()


@routes.read(instances.INSTANCE_LIST)
async def list_instances(call: Call, reader: db.Reader) -> Page[instances.Instance]:
    where = store.LIVE_INSTANCES if call.query.live else "project_id = $1"
    return await call.page(reader, store.INSTANCES, where, call.params["project_id"])


@routes.read(instances.INSTANCE_GET)
async def get_instance(call: Call, reader: db.Reader) -> instances.Instance:
    return await service.named(reader, call)


@routes.read(instances.ROLE_LIST)
async def list_roles(call: Call, reader: db.Reader) -> instances.Roles:
    return await service.roles(reader, call)


@routes.write(instances.BREAKER_RESET)
async def reset_breaker(call: Call, tx: db.Tx, body: instances.ResetBreaker) -> instances.Role:
    instance = await service.named(tx, call)
    return await breakers.reset(tx, call, instance, call.params["component_key"], body.reason)


@routes.read(instances.MEMBER_GET)
async def get_member(call: Call, reader: db.Reader) -> instances.Member:
    instance = await service.named(reader, call)
    return await service.member_in(reader, instance, call.params["member_id"])


@routes.read(instances.MEMBER_LIST)
async def list_members(call: Call, reader: db.Reader) -> Page[instances.Member]:
    instance = await service.named(reader, call)
    where = store.LIVE_MEMBERS if call.query.live else "instance_id = $1"
    return await call.page(reader, store.MEMBERS, where, instance.instance_id)


@routes.read(instances.ACCESS_BUNDLE_GET)
async def get_access_bundle(call: Call, reader: db.Reader) -> instances.AccessBundle:
    return await service.access_bundle(reader, call)


@routes.write(holds.HOLD_PLACE)
async def place_hold(call: Call, tx: db.Tx, body: holds.PlaceHold) -> holds.Hold:
    return await holds_service.place(tx, call, body)


@routes.read(holds.HOLD_LIST)
async def list_holds(call: Call, reader: db.Reader) -> Page[holds.Hold]:
    instance = await service.named(reader, call)
    return await call.page(reader, store.HOLDS, "instance_id = $1", instance.instance_id)


@routes.write(holds.HOLD_LIFT)
async def lift_hold(call: Call, tx: db.Tx, body: NoBody) -> holds.Hold:
    return await holds_service.lift(tx, call, body)
