"""Instances as other domains use them: find one, read its members, insert one, change its operator."""

from collections.abc import Collection

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.event_types import OperatorChanged
from gpuaas_contract.instances import (
    AccessBundle,
    Instance,
    InstanceCounts,
    InstanceListQuery,
    Member,
    MemberListQuery,
    ResetBreaker,
    Role,
    Roles,
)
from gpuaas_contract.paths import InstancePath, MemberPath, ProjectPath, RolePath
from gpuaas_contract.protocol import status as status_rules

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, events, filters, names, store
from gpuaas_platform.kit import db, paging
from gpuaas_platform.kit.paging import EncodedPage

live_members = store.live_members
members_named = store.members_named
live_count = store.live_count
live_count_of_app = store.live_count_of_app
live_member_count_of_app = store.live_member_count_of_app
deleted_among = store.deleted_among
add = store.INSTANCES.insert
put_access_bundle = store.put_bundle
add_missing = store.add_missing
fill_missing = store.fill_missing
forget_missing = store.forget_missing


async def in_project(reader: db.Reader, call: Call[ProjectPath], instance_id: str) -> Instance:
    """Return the instance of the call's project with this id or, if it is not deleted, with this name."""
    project_id = call.path.project_id
    instance = await store.INSTANCES.get(reader, instance_id)
    if instance is None:
        instance = await store.live_instance_named(reader, project_id, instance_id)
    if instance is None or instance.project_id != project_id:
        raise errors.NotFound(f"There is no instance {instance_id} in this project.")
    return instance


async def named(reader: db.Reader, call: Call[InstancePath]) -> Instance:
    """Return the instance that the path of the call names."""
    return await in_project(reader, call, call.path.instance_id)


async def shown(reader: db.Reader, call: Call[InstancePath]) -> Instance:
    """Return the instance that the path of the call names, with its steward."""
    instance = await named(reader, call)
    return await store.SHOWN.get(reader, instance.instance_id) or instance


async def get(reader: db.Reader, instance_id: str) -> Instance:
    """Return an instance that must exist, because something in the store refers to it."""
    instance = await store.INSTANCES.get(reader, instance_id)
    if instance is None:
        raise LookupError(instance_id)
    return instance


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's instances that are not deleted."""
    return await store.INSTANCES.keys(reader, store.LIVE_INSTANCES, project_id)


async def member_in(reader: db.Reader, instance: Instance, member_id: str) -> Member:
    """Return a member by its id. A live member can be named by its node, or by `node/role` if the node has several."""
    member = await store.MEMBERS.get(reader, member_id)
    if member is None:
        on_node = await store.live_members_on(reader, instance.instance_id, names.split(member_id)[0])
        member = names.pick(on_node, member_id)
    if member is None or member.instance_id != instance.instance_id:
        raise errors.NotFound(f"There is no member {member_id} in this instance.", fix="gpuaas get members")
    return member


async def find_member(reader: db.Reader, instance_id: str, member_id: str) -> Member | None:
    """Return the member of the instance with this id, even if it was removed; None if there is none."""
    member = await store.MEMBERS.get(reader, member_id)
    return member if member is not None and member.instance_id == instance_id else None


async def members_among(reader: db.Reader, instance: Instance, member_ids: Collection[str]) -> set[str]:
    """Return which of the ids are members of the instance. Removed members count too."""
    members = await store.members_named(reader, list(member_ids))
    return {member.member_id for member in members if member.instance_id == instance.instance_id}


async def page(reader: db.Reader, call: Call[ProjectPath, InstanceListQuery]) -> EncodedPage[Instance]:
    where, values = filters.instances(call.path.project_id, call.query)
    return await paging.encoded(reader, store.SHOWN, call.query, where, *values)


async def counts(reader: db.Reader, call: Call[ProjectPath]) -> InstanceCounts:
    return InstanceCounts(items=await store.live_counts(reader, call.path.project_id))


async def members_page(reader: db.Reader, call: Call[InstancePath, MemberListQuery]) -> EncodedPage[Member]:
    instance = await named(reader, call)
    where, values = filters.members(instance.instance_id, call.query)
    return await paging.encoded(reader, store.MEMBERS, call.query, where, *values)


async def named_member(reader: db.Reader, call: Call[MemberPath]) -> Member:
    """Return the member that the route names."""
    return await member_in(reader, await named(reader, call), call.path.member_id)


async def roles(reader: db.Reader, call: Call[InstancePath]) -> Roles:
    instance = await named(reader, call)
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    members = await store.live_member_counts(reader, instance.instance_id)
    states = {
        role.component_key: await breakers.state(reader, instance.instance_id, role, call.now)
        for role in manifest.roles
    }
    missing = await store.missing(reader, instance.instance_id)
    return Roles(items=status_rules.roles(manifest, members, states, missing))


async def reset_breaker(tx: db.Tx, call: Call[RolePath], body: ResetBreaker) -> Role:
    component_key = call.path.component_key
    await breakers.close(tx, call, await named(tx, call), component_key, body.reason)
    return next(role for role in (await roles(tx, call)).items if role.component_key == component_key)


async def access_bundle(reader: db.Reader, call: Call[InstancePath]) -> AccessBundle:
    instance = await named(reader, call)
    bundle = await store.bundle(reader, instance.instance_id)
    if bundle is None:
        raise errors.NotFound("The app's controller has not published yet how to reach it.")
    return bundle


async def check_name_free(tx: db.Tx, project_id: str, name: str) -> None:
    if await store.live_instance_named(tx, project_id, name):
        raise errors.Conflict(
            f"There is an instance named {name} already.",
            details={"field": "name"},
            fix="Take another name; gpuaas get instances lists those there are.",
        )


async def set_operator(tx: db.Tx, call: Call, instance: Instance, account_id: str, reason: str) -> Instance:
    """Save the operator service account of the instance. `operations` hands over the open operations."""
    changed = msgspec.structs.replace(
        instance, operator_service_account_id=account_id, revision=instance.revision + 1, updated_at=call.now
    )
    await store.INSTANCES.change(tx, instance, changed)
    payload = OperatorChanged(
        operator_service_account_id=account_id, was=instance.operator_service_account_id, reason=reason
    )
    await events.emit(tx, call.origin, "apps.instance.operator_changed", changed, payload)
    return changed
