"""Previews: a dry run asks the app's controller which work the operation would interrupt, and returns the answer."""

import msgspec
from gpuaas_contract.operations import PREVIEWED_KINDS, Operation, Preview

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import actions
from gpuaas_platform.operations.accept import OperationDraft, accept

ANSWER_WAIT_S = 10.0


async def attach(call: Call, planned: Operation) -> Operation:
    """Add the controller's preview to the response of a dry run. Without an answer, report the effect as unknown."""
    if not call.dry_run or planned.kind not in PREVIEWED_KINDS:
        return planned
    asked = await call.site.database.write(lambda tx: _ask(tx, call, planned))
    answered = await actions.ended(call, asked, ANSWER_WAIT_S)
    preview = answered.preview or Preview(answered=False, notes=[_why_not(answered)])
    return msgspec.structs.replace(planned, preview=preview)


async def _ask(tx: db.Tx, call: Call, planned: Operation) -> Operation:
    instance = await instances.get(tx, planned.instance_id)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    draft = OperationDraft(
        "preview",
        reason=planned.reason,
        force=planned.force,
        component_key=planned.component_key,
        preview_of=planned.kind,
        inputs=_inputs(planned),
        to_version=planned.to_version,
    )
    return await accept(tx, call, instance, manifest, draft)


def _inputs(planned: Operation) -> dict[str, object]:
    """Return what the controller needs to know: the members and, if they would change, the inputs of the instance."""
    members: dict[str, object] = {"member_ids": [target.member_id for target in planned.targets]}
    return members | {"inputs": planned.inputs} if planned.inputs else members


def _why_not(asked: Operation) -> str:
    if asked.error is not None:
        return f"The app's controller could not say: {asked.error.message}"
    return f"No app controller answered within {ANSWER_WAIT_S:g} s ({asked.operation_id})."
