"""What people can do with an operation that failed or hangs: retry, cancel, undo, give up. Each such exit needs a
permission and a reason, and writes an audit row and an event."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.event_types import ExitWasTaken
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import (
    EXITS,
    GOALS,
    INSTANCE_KINDS,
    JOINING,
    Exit,
    ExitName,
    ExitTaken,
    GiveUpMembers,
    Operation,
    OperationQuery,
    TakeExit,
)
from gpuaas_contract.paths import OperationPath
from gpuaas_contract.protocol import exits as exit_rules
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol.end import Ending
from gpuaas_contract.wire import NoBody
from msgspec.structs import replace

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, events, holds, names
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, structs
from gpuaas_platform.operations import accept, end, members, read, service, state, store
from gpuaas_platform.policy import service as policy


async def offered(reader: db.Reader, call: Call, operation: Operation) -> Operation:
    """Return the operation with the exits that it has now."""
    concerned = await members.concerned(reader, operation) if operation.status == "failed" else {}
    superseded = await _is_superseded(reader, operation, concerned)
    exits = []
    for name in exit_rules.legal(operation, concerned, superseded=superseded):
        permission, meaning = EXITS[name].permission, exit_rules.meaning(operation, name)
        permitted = service.may(call, permission)
        exits.append(Exit(name=name, permission=permission, permitted=permitted, meaning=meaning))
    return replace(operation, exits=exits)


async def wait_for_change(call: Call[OperationPath, OperationQuery], _: NoBody) -> Operation:
    """Wait until the operation's revision differs from the caller's, then return the operation with its exits."""
    reader, query, operation_id = call.site.database.reader, call.query, call.path.operation_id
    latest = await call.poll(
        state.topic(operation_id),
        query.wait_s,
        lambda: read.head(reader, call, operation_id),
        lambda operation: operation.revision != query.revision,
    )
    return await offered(reader, call, await read.shown(reader, latest))


async def retry(tx: db.Tx, call: Call[OperationPath], body: TakeExit) -> Operation:
    return await _reopen(tx, call, body, "retry")


async def compensate(tx: db.Tx, call: Call[OperationPath], body: TakeExit) -> Operation:
    return await _reopen(tx, call, body, "compensate")


async def cancel(tx: db.Tx, call: Call[OperationPath], body: TakeExit) -> Operation:
    """End an operation that was never claimed. Otherwise ask its controller to stop, undo and complete."""
    operation, _ = await _leaving(tx, call, "cancel")
    noted = _note(call, operation, "cancel", body.reason)
    if operation.attempts == 0:
        await _emit(tx, call, replace(noted, status="cancelled"), "cancel", body.reason)
        return await end.end(tx, call.origin, operation, end.fenced(noted), Ending("cancelled", operation.targets))
    lease = replace(operation.lease, cancel_requested=True) if operation.lease else None
    saved = await state.save(tx, operation, replace(noted, status="cancelling", lease=lease))
    tx.wake(state.claims_topic(saved.project_id, saved.app_slug))
    return await _emit(tx, call, saved, "cancel", body.reason)


async def force_complete(tx: db.Tx, call: Call[OperationPath], body: TakeExit) -> Operation:
    operation, concerned = await _leaving(tx, call, "force_complete")
    await _check_free(tx, operation)
    outcome: Literal["succeeded", "cancelled"] = "cancelled" if operation.compensating else "succeeded"
    why = f"declared done by {call.caller.actor_id}, not observed: {body.reason}"
    moves, targets = [], []
    for target in operation.targets:
        member = concerned[target.member_id]
        status = exit_rules.forced_status(operation, target, member)
        if status is not None:
            moves.append(members.Move(member, status, why))
        targets.append(target if target.outcome == "skipped" else replace(target, outcome=outcome, error=""))
    forced = end.fenced(_note(call, operation, "force_complete", body.reason))
    await _emit(tx, call, replace(forced, status=outcome), "force_complete", body.reason)
    await members.move(tx, call.origin, operation, moves)
    return await end.end(tx, call.origin, operation, forced, Ending(outcome, targets))


async def tombstone(tx: db.Tx, call: Call[OperationPath], body: GiveUpMembers) -> Operation:
    """Give members up. An operation that removes members succeeds when all its members are gone."""
    operation, concerned = await _leaving(tx, call, "tombstone")
    await _check_free(tx, operation)
    why = f"given up by {call.caller.actor_id}: {body.reason}"
    given_up = _to_give_up(operation, concerned, body.member_ids)
    moves = [members.Move(member, "tombstoned", why) for member in given_up]
    for moved in await members.move(tx, call.origin, operation, moves):
        concerned[moved.member_id] = moved
    noted = _note(call, operation, "tombstone", body.reason)
    all_gone = all(member.status in lifecycles.GONE_MEMBER for member in concerned.values())
    if all_gone and "tombstoned" in GOALS[operation.kind]:
        targets = [replace(target, outcome="succeeded", error="") for target in operation.targets]
        await _emit(tx, call, replace(noted, status="succeeded"), "tombstone", body.reason)
        return await end.end(tx, call.origin, operation, noted, Ending("succeeded", targets))
    saved = await state.save(tx, operation, noted)
    await state.derive_instance(tx, call.origin, await instances.get(tx, saved.instance_id), saved)
    return await _emit(tx, call, saved, "tombstone", body.reason)


async def _leaving(tx: db.Tx, call: Call[OperationPath], name: ExitName) -> tuple[Operation, dict[str, Member]]:
    """Return the operation and its members; refuse if the operation does not have this exit now."""
    operation = await read.named(tx, call)
    concerned = await members.concerned(tx, operation)
    superseded = await _is_superseded(tx, operation, concerned)
    exit_rules.check(operation, concerned, name, superseded=superseded)
    return operation, concerned


async def _is_superseded(reader: db.Reader, operation: Operation, concerned: Mapping[str, Member]) -> bool:
    """Return whether an operation other than a repair came later. Asked only if a member has had a later one."""
    if operation.status != "failed" or not exit_rules.has_later(operation, concerned):
        return False
    return await store.has_later(reader, operation, exit_rules.SUPERSEDES_NOTHING)


async def _reopen(
    tx: db.Tx, call: Call[OperationPath], body: TakeExit, name: Literal["retry", "compensate"]
) -> Operation:
    operation, concerned = await _leaving(tx, call, name)
    await _check_free(tx, operation)
    instance = await instances.get(tx, operation.instance_id)
    manifest = await catalog.manifest_of(tx, instance.app_slug, operation.to_version or instance.app_version)
    deadline_at = request_rules.deadline(manifest, operation.kind, call.now, operation.action)
    again = exit_rules.reopened(operation, concerned, deadline_at, compensating=name == "compensate")
    wanted = _machines_left(again)
    if name == "retry":
        await _check_still_safe(tx, call, instance, manifest, again, wanted)
        for allocation_id in wanted:
            await instance_members.bind(tx, instance, allocation_id)
    else:
        await _bind_for_undo(tx, instance, wanted)
    noted = _note(call, again, name, body.reason, repeats_steps=exit_rules.has_later(operation, concerned))
    saved = await state.save(tx, operation, noted)
    saved = await state.save_targets(tx, replace(saved, targets=operation.targets), again.targets)
    repaired = [item for item in concerned.values() if item.last_operation_id != saved.operation_id]
    await accept.take(tx, call, saved, [item for item in repaired if item.status not in lifecycles.GONE_MEMBER])
    if saved.kind in INSTANCE_KINDS:
        await state.derive_instance(tx, call.origin, instance, saved)
    tx.wake(state.claims_topic(saved.project_id, saved.app_slug))
    return await _emit(tx, call, saved, name, body.reason)


def _machines_left(operation: Operation) -> list[str]:
    """Return the new machines of a `replace` whose members have not moved. They were released when it failed."""
    pending = [target for target in operation.targets if target.outcome == "pending"]
    return [target.allocation_id for target in pending if target.allocation_id and not target.previous_allocation_id]


async def _bind_for_undo(tx: db.Tx, instance: Instance, allocation_ids: Sequence[str]) -> None:
    """Bind the new machines of a `replace`, so that its controller can take back what it did there. If another instance
    has one by now, or it was released, the undo continues without it."""
    for allocation_id in allocation_ids:
        with contextlib.suppress(errors.Conflict):
            await instance_members.bind(tx, instance, allocation_id)


async def _check_free(tx: db.Tx, operation: Operation) -> None:
    active = await read.active(tx, operation.instance_id)
    others = [other for other in active if other.operation_id != operation.operation_id]
    member_ids = [target.member_id for target in operation.targets]
    request_rules.check_free(
        others, operation.kind, member_ids, exclusive=operation.exclusive, reading=operation.reading
    )


async def _check_still_safe(
    tx: db.Tx, call: Call, instance: Instance, manifest: Manifest, operation: Operation, wanted: Sequence[str]
) -> None:
    """Check a retry like a new request, because policy, holds, budgets, breakers and members may have changed since
    then. `wanted` are the machines that the retry binds again."""
    if operation.kind in ("deploy", "upgrade"):
        layers = await policy.of_project(tx, call.in_project())
        await catalog.check_still_allowed(tx, instance.app_slug, manifest.version, layers)
    member_ids = [target.member_id for target in operation.targets if target.outcome == "pending"]
    forced = operation.force and not operation.by_steward
    if not forced:
        standing = await holds.standing(tx, instance.instance_id, call.now)
        request_rules.check_holds(operation.kind, member_ids, standing)
    if not operation.component_key or (forced and operation.kind != "remove" and not wanted):
        return
    role = breakers.role_of(manifest, operation.component_key)
    live, active = await instances.live_members(tx, instance.instance_id), await read.active(tx, instance.instance_id)
    if not forced:
        request_rules.check_budget(role, operation.kind, live, active, member_ids)
        if operation.kind in JOINING:
            request_rules.check_breaker(role, await breakers.state(tx, instance.instance_id, role, call.now))
    if operation.kind == "remove":
        request_rules.check_least(role, instance, live, active, member_ids)
    request_rules.check_machines(role, live, active, wanted)


def _to_give_up(operation: Operation, concerned: Mapping[str, Member], named: Sequence[str]) -> list[Member]:
    failed = [target.member_id for target in operation.targets if target.outcome == "failed"]
    wanted = list(dict.fromkeys(names.member_ids(list(concerned.values()), named))) or failed
    unknown = [member_id for member_id in wanted if member_id not in concerned]
    if unknown:
        raise errors.NotFound(f"{operation.operation_id} is not about member {unknown[0]}.")
    present = [concerned[member_id] for member_id in wanted]
    return [member for member in present if member.status not in lifecycles.GONE_MEMBER]


def _note(call: Call, operation: Operation, name: ExitName, reason: str, *, repeats_steps: bool = False) -> Operation:
    taken = ExitTaken(
        name=name, taken_by=call.caller.actor_id, reason=reason, taken_at=call.now, repeats_steps=repeats_steps
    )
    return replace(operation, exits_taken=[*operation.exits_taken, taken])


async def _emit(tx: db.Tx, call: Call, operation: Operation, name: ExitName, reason: str) -> Operation:
    """Emit that the exit was taken, with the status of the operation after it. Watchers receive it before the end that
    it causes."""
    payload = structs.pick(ExitWasTaken, operation, exit=name, reason=reason)
    await events.emit(tx, call.origin, "apps.operation.exit", operation, payload)
    return operation
