"""Tables of an instance that its app offers for reading: an open table is read again while people look at it."""

import datetime

from gpuaas_cli import output
from gpuaas_contract.actions import ACTION_INVOKE, InvokeAction
from gpuaas_contract.instances import INSTANCE_GET
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.operations import OPERATION_GET, Operation
from starlette.responses import Response

from gpuaas_console.web import Failure, Visit

WAIT_S = 10.0
SHARED_S = 10
"""Pages of a person that read the same table within this time share one request: each is an operation of the app."""


async def show(visit: Visit) -> Response:
    instance = await visit.calls().call(INSTANCE_GET, instance_id=visit.path("instance"))
    manifest, name = await visit.manifest(instance), visit.path("action")
    spec = next((item for item in manifest.actions if item.name == name and item.reading), None) if manifest else None
    if spec is None:
        raise Failure(404, "The app has no such table", f"{name} is not declared as reading.", "Reload the page.")
    operation = await _unfinished(visit, instance.instance_id, name) or await _start(visit, instance.instance_id, name)
    _note(visit, instance.instance_id, name, operation)
    return visit.page(
        "_reading.html",
        spec=spec,
        operation=operation,
        columns=spec.result.columns if spec.result else [],
        has_ended=operation.status in ENDED_OPERATION,
        read_at=operation.ended_at or output.now(),
    )


async def _unfinished(visit: Visit, instance_id: str, name: str) -> Operation | None:
    """Return the reading that had not ended when this session last saw it. A busy app gets no second one."""
    operation_id = visit.session.readings.get((instance_id, name))
    if operation_id is None:
        return None
    return await visit.read(OPERATION_GET, operation_id=operation_id)


async def _start(visit: Visit, instance_id: str, name: str) -> Operation:
    return await visit.session.client.call(
        ACTION_INVOKE,
        InvokeAction(),
        query={"wait_s": WAIT_S},
        idempotency_key=key(instance_id, name, output.now()),
        project_id=visit.project,
        instance_id=instance_id,
        action=name,
    )


def _note(visit: Visit, instance_id: str, name: str, operation: Operation) -> None:
    if operation.status in ENDED_OPERATION:
        visit.session.readings.pop((instance_id, name), None)
    else:
        visit.session.readings[instance_id, name] = operation.operation_id


def key(instance_id: str, action: str, now: datetime.datetime) -> str:
    return f"console-{instance_id}-{action}-{int(now.timestamp()) // SHARED_S}"
