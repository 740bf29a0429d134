"""A dry run asks the app's controller what the operation would hit; the answer comes with the plan."""

import msgspec
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import PREVIEWED_KINDS, Operation, Preview

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import changes, store
from gpuaas_platform.kit import db
from gpuaas_platform.operations import accept as accepting
from gpuaas_platform.operations import end as ending

ANSWER_WAIT_S = 10.0


async def attach(call: Call, planned: Operation) -> Operation:
    """After a dry run: nothing of `planned` was kept. What nobody answers stays unknown; it is never called safe."""
    if not call.dry_run or planned.kind not in PREVIEWED_KINDS:
        return planned
    asked = await call.site.database.write(lambda tx: _ask(tx, call, planned))

    async def look() -> Operation:
        found = await store.OPERATIONS.get(call.site.database.reader, asked.operation_id)
        return found or asked

    answered = await call.site.hub.poll(
        changes.operation_topic(asked.operation_id), ANSWER_WAIT_S, look, lambda found: found.status in ENDED_OPERATION
    )
    preview = answered.preview or Preview(answered=False, notes=[_why_not(answered)])
    return msgspec.structs.replace(planned, preview=preview)


async def _ask(tx: db.Tx, call: Call, planned: Operation) -> Operation:
    instance = await ending.instance_of(tx, planned)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    asked = await accepting.accept(
        tx,
        call,
        instance,
        manifest,
        "preview",
        (),
        reason=planned.reason,
        component_key=planned.component_key,
        preview_of=planned.kind,
        inputs={"member_ids": [target.member_id for target in planned.targets]},
        to_version=planned.to_version,
    )
    return asked


def _why_not(asked: Operation) -> str:
    if asked.error is not None:
        return f"The app's controller could not say: {asked.error.message}"
    return f"No app controller answered within {ANSWER_WAIT_S:g} s ({asked.operation_id})."
