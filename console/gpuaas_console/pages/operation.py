"""The page of an operation: its steps as a time line, the outcome for each member, the log, and the exits."""

import asyncio
import uuid
from collections import Counter
from typing import Any

import msgspec
from gpuaas_cli import output
from gpuaas_cli.show import steps
from gpuaas_contract import operations
from gpuaas_contract.events import Event
from gpuaas_contract.instances import INSTANCE_GET, MEMBER_GET, MEMBER_LIST, Member
from gpuaas_contract.lifecycles import ENDED_OPERATION
from gpuaas_contract.statements import STATED_KINDS, STATEMENT_GET
from starlette.responses import Response

from gpuaas_console import attention, commands, timeline, view, web
from gpuaas_console.web import Failure, Outcome, Visit, or_none

LOG_SHOWN = 100
TARGETS_SHOWN = 50
"""Members with their outcome. An operation can have a thousand; the page has the numbers of all."""
LOG_PAGES_MAX = 10


async def show(visit: Visit) -> Response:
    operation = await _read(visit)
    subject = visit.read(INSTANCE_GET, instance_id=operation.instance_id)
    members, log, instance, _ = await asyncio.gather(
        _members(visit, operation), _log(visit), subject, visit.learn_names()
    )
    names, now = steps.names_of(members), output.now()
    by_id = {member.member_id: member for member in members}
    spec = None
    if instance is not None and operation.kind == "action" and (manifest := await visit.manifest(instance)):
        spec = next((item for item in manifest.actions if item.name == operation.action), None)
    return visit.page(
        "operation.html",
        operation=operation,
        bars=timeline.bars(operation, operation.steps, names, now),
        names=names,
        members=by_id,
        targets=_shown(operation),
        outcomes=Counter(item.outcome for item in operation.targets),
        log=log,
        ended=operation.status in ENDED_OPERATION,
        has_statement=operation.kind in STATED_KINDS,
        share=attention.used_share(operation, now),
        columns=spec.result.columns if spec and spec.result else [],
        read_at=now,
    )


async def stream(visit: Visit) -> Response:
    operation = await _read(visit)

    def concerns(event: Event) -> bool:
        return event.payload.get("operation_id") == operation.operation_id

    return visit.stream([visit.project], concerns)


async def statement(visit: Visit) -> Response:
    """Return the signed statement of what was removed and left, as a file."""
    signed = await visit.calls().call(STATEMENT_GET, operation_id=visit.path("operation"))
    headers = {**web.NO_STORE, "Content-Disposition": 'attachment; filename="statement.json"'}
    return Response(msgspec.json.encode(signed), media_type="application/json", headers=headers)


async def take_exit(visit: Visit) -> Response:
    """Show what an exit does, then take it with a reason and the typed name of the instance."""
    operation, name = await _read(visit), visit.path("exit")
    chosen = next((item for item in operation.exits if item.name == name), None)
    page = view.link("p", visit.project, "operations", operation.operation_id)
    if chosen is None:
        raise Failure(
            409,
            "This exit is not possible now",
            f"The operation is {operation.status}.",
            "Go back to the operation; its page shows the exits that are possible.",
        )
    reason, outcome = visit.form.text("reason"), Outcome[operations.Operation]()
    if visit.request.method == "POST":
        missing = _missing(operation, visit)
        outcome = Outcome(None, missing, 400) if missing else await _take(visit, chosen.name, operation, reason)
    if outcome.answer is not None:
        return visit.go(page)
    line = commands.leave(name, operation.operation_id, reason, visit.project)
    body = operations.TakeExit(reason=reason or "REASON")
    return visit.page(
        "exit.html",
        status=outcome.status,
        operation=operation,
        exit=chosen,
        reason=reason,
        errors=outcome.errors,
        key=visit.form.text("key") or uuid.uuid4().hex,
        same=commands.same(visit, line, operations.EXITS[chosen.name], body, operation_id=operation.operation_id),
        back=page,
    )


def _missing(operation: operations.Operation, visit: Visit) -> dict[str, str]:
    """Return what people must still write before the exit is taken."""
    errors = {} if visit.form.text("reason") else {"reason": "Write why you do this."}
    is_confirmed = visit.form.text("confirm") == operation.instance_name
    return errors | ({} if is_confirmed else {"confirm": f"Type {operation.instance_name} to confirm."})


async def _take(
    visit: Visit, name: operations.ExitName, operation: operations.Operation, reason: str
) -> Outcome[operations.Operation]:
    body = operations.GiveUpMembers(reason=reason) if name == "tombstone" else operations.TakeExit(reason=reason)
    path = {"project_id": visit.project, "operation_id": operation.operation_id}
    return await visit.attempt(operations.EXITS[name], body, is_check=False, **path)


async def _read(visit: Visit) -> operations.Operation:
    return await visit.calls().call(operations.OPERATION_GET, operation_id=visit.path("operation"))


async def _members(visit: Visit, operation: operations.Operation) -> list[Member]:
    """Return the members that the page names: those of the steps and of the shown targets."""
    named = [step.member_id for step in operation.steps] + [item.member_id for item in _shown(operation)]
    ids = list(dict.fromkeys(member_id for member_id in named if member_id))
    path: dict[str, Any] = {"instance_id": operation.instance_id}
    first = await or_none(visit.calls().first(web.ROWS_MAX, MEMBER_LIST, query=None, **path))
    known = {member.member_id: member for member in first[0]} if first else {}
    missing = [member_id for member_id in ids if member_id not in known][: 2 * TARGETS_SHOWN] if first else []

    async def read(key: str) -> Member | None:
        return await visit.read(MEMBER_GET, member_id=key, **path)

    others = await asyncio.gather(*(read(item) for item in missing))
    return [*known.values(), *(member for member in others if member is not None)]


def _shown(operation: operations.Operation) -> list[operations.Target]:
    """Return the targets that are shown: those that did not succeed before the others."""
    return sorted(operation.targets, key=lambda item: item.outcome == "succeeded")[:TARGETS_SHOWN]


async def _log(visit: Visit) -> list[operations.LogLine]:
    """Return the last lines of the controller's log."""
    lines, _ = await visit.calls().first(
        500 * LOG_PAGES_MAX, operations.OPERATION_LOG, query=None, operation_id=visit.path("operation")
    )
    return lines[-LOG_SHOWN:]
