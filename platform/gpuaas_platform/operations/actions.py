"""Actions an app declares: authorised by the key it named, recorded, and routed to its controller as operations."""

from typing import NamedTuple

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.actions import InvokeAction
from gpuaas_contract.catalog import ActionSpec, Manifest
from gpuaas_contract.instances import Instance
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import Operation
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.allocations import service as capacity
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions as app_permissions
from gpuaas_platform.catalog import rules as catalog_rules
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import changes, names, store
from gpuaas_platform.kit import db
from gpuaas_platform.operations import accept as accepting
from gpuaas_platform.operations import service


class Invocation(NamedTuple):
    instance: Instance
    manifest: Manifest
    action: ActionSpec
    body: InvokeAction


async def authorise(call: Call, body: InvokeAction) -> Invocation:
    """Comes before the transaction, because a denial is recorded whatever becomes of the call."""
    reader = call.site.database.reader
    instance = await service.in_project(reader, call, call.params["instance_id"])
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    action = catalog_rules.action_of(manifest, call.params["action"])
    project, key = call.in_project(), action.permission
    if not await app_permissions.holds(reader, call.caller, project, key, app_slug=instance.app_slug):
        raise await app_permissions.denial(call, key, f"{action.name} needs {key}.")
    named = names.allocations_in(action.input_schema, (), body.inputs)
    ids_by_name = await capacity.ids_of(reader, project.project_id, named)
    inputs = names.with_allocations(action.input_schema, (), body.inputs, ids_by_name)
    catalog_rules.check_action_inputs(action, inputs)
    body = msgspec.structs.replace(body, inputs=inputs)
    return Invocation(instance, manifest, action, body)


async def invoke(tx: db.Tx, call: Call, asked: Invocation) -> Operation:
    instance = await service.in_project(tx, call, asked.instance.instance_id)
    if instance.status not in ("running", "degraded"):
        raise errors.Conflict(f"The instance is {instance.status}; {asked.action.name} needs it running.")
    if instance.app_version != asked.instance.app_version:
        raise errors.Conflict(f"The instance was upgraded to {instance.app_version} meanwhile.", fix="Ask again.")
    active = await store.active_operations(tx, instance.instance_id)
    request_rules.check_free(active, "action", (), exclusive=asked.action.exclusive)
    return await accepting.accept(
        tx,
        call,
        instance,
        asked.manifest,
        "action",
        (),
        reason=asked.body.reason,
        action=asked.action.name,
        exclusive=asked.action.exclusive,
        inputs=asked.body.inputs,
    )


async def wait(call: Call, accepted: Operation) -> Operation:
    """Short actions answer at once: the caller waits for the end with the same request."""
    if call.dry_run or not call.query.wait_s:
        return accepted

    async def look() -> Operation:
        return await store.OPERATIONS.get(call.site.database.reader, accepted.operation_id) or accepted

    return await call.site.hub.poll(
        changes.operation_topic(accepted.operation_id),
        call.query.wait_s,
        look,
        lambda found: found.status in ENDED_OPERATION,
    )
