"""Actions of apps: check the permission that the app declares for an action; insert an operation for its controller."""

from typing import NamedTuple

from gpuaas_contract import errors
from gpuaas_contract.actions import InvokeAction
from gpuaas_contract.catalog import ActionSpec, Manifest
from gpuaas_contract.instances import Instance
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import Operation, OperationHead, Preview
from gpuaas_contract.paths import ActionPath, ProjectPath
from gpuaas_contract.protocol import request as request_rules
from msgspec.structs import replace

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions as app_permissions
from gpuaas_platform.catalog import rules as catalog_rules
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import read, state, store
from gpuaas_platform.operations.accept import OperationDraft, accept, with_allocation_ids

CHECKED = (
    "Checked: that you may run the action, that its inputs fit its form, and that the instance can run it now.",
    "The app was not asked: what the action would do is not known, and the app can still refuse it.",
)
"""What the answer to a dry run of an action states."""


class Invocation(NamedTuple):
    instance: Instance
    manifest: Manifest
    action: ActionSpec
    body: InvokeAction


async def authorise(call: Call[ActionPath], body: InvokeAction) -> Invocation:
    """Check the permission before the transaction, so that a denial is recorded even if the call is rolled back."""
    reader = call.site.database.reader
    instance = await instances.named(reader, call)
    manifest = await catalog.manifest_of(reader, instance.app_slug, instance.app_version)
    action = catalog_rules.action_of(manifest, call.path.action)
    project, key = call.in_project(), action.permission
    if not app_permissions.holds_by(manifest, call.caller, project, key):
        raise await app_permissions.denial(call, key, f"{action.name} needs {key}.")
    inputs = await with_allocation_ids(reader, project.project_id, action.input_schema, (), body.inputs)
    fix = f"gpuaas action describe {instance.name} {action.name} shows each input, with its form."
    catalog_rules.check_action_inputs(action, inputs, fix)
    return Invocation(instance, manifest, action, replace(body, inputs=inputs))


async def invoke(tx: db.Tx, call: Call[ProjectPath], asked: Invocation) -> Operation:
    instance = await instances.in_project(tx, call, asked.instance.instance_id)
    if instance.status not in request_rules.UP:
        raise errors.Conflict(
            f"The instance is {instance.status}; {asked.action.name} needs it running.",
            fix=request_rules.fix_of_status(instance),
        )
    if instance.app_version != asked.instance.app_version:
        raise errors.Conflict(
            f"The instance was upgraded to {instance.app_version}; the action was not run.", fix="Ask again."
        )
    active = await read.active(tx, instance.instance_id)
    request_rules.check_free(active, "action", (), exclusive=asked.action.exclusive, reading=asked.action.reading)
    draft = OperationDraft(
        "action",
        reason=asked.body.reason,
        action=asked.action.name,
        exclusive=asked.action.exclusive,
        reading=asked.action.reading,
        inputs=asked.body.inputs,
    )
    return await accept(tx, call, instance, asked.manifest, draft)


async def wait(call: Call, accepted: Operation) -> Operation:
    """Wait for the end of the action, as long as the caller requested, so that a short action needs one request. A dry
    run returns what was checked."""
    if call.dry_run:
        return replace(accepted, preview=Preview(answered=False, notes=list(CHECKED)))
    if not call.query.wait_s:
        return accepted
    return await ended(call, accepted, call.query.wait_s)


async def ended(call: Call, accepted: Operation, wait_s: float) -> Operation:
    """Return the operation when it ends, or its current state after `wait_s` seconds."""
    reader = call.site.database.reader

    async def look() -> OperationHead:
        return await store.get(reader, accepted.operation_id) or accepted

    latest = await call.poll(
        state.topic(accepted.operation_id), wait_s, look, lambda operation: operation.status in ENDED_OPERATION
    )
    return await read.shown(reader, latest)
