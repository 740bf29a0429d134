"""The ways out of an operation: each needs a permission and a reason, and leaves an audit row and an event."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.event_types import ExitWasTaken
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import (
    EXITS,
    GOALS,
    INSTANCE_KINDS,
    Exit,
    ExitName,
    ExitTaken,
    GiveUpMembers,
    Operation,
    TakeExit,
)
from gpuaas_contract.protocol import exits as exit_rules
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol.end import Ending

from gpuaas_platform.call import Call
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import breakers, changes, names, store
from gpuaas_platform.kit import db
from gpuaas_platform.operations import accept as accepting
from gpuaas_platform.operations import end as ending
from gpuaas_platform.operations import report as runtime
from gpuaas_platform.operations import service

replace = msgspec.structs.replace


async def offered(reader: db.Reader, call: Call, operation: Operation) -> Operation:
    """The operation with the exits this caller finds."""
    members = await ending.concerned(reader, operation) if operation.status == "failed" else {}
    found = [
        Exit(
            name=name,
            permission=EXITS[name].permission,
            permitted=service.may(call, EXITS[name].permission),
            meaning=exit_rules.MEANINGS[name],
        )
        for name in exit_rules.legal(operation, members)
    ]
    return replace(operation, exits=found)


async def retry(tx: db.Tx, call: Call, body: TakeExit) -> Operation:
    return await _reopen(tx, call, "retry", body.reason)


async def compensate(tx: db.Tx, call: Call, body: TakeExit) -> Operation:
    return await _reopen(tx, call, "compensate", body.reason)


async def cancel(tx: db.Tx, call: Call, body: TakeExit) -> Operation:
    """Nobody has begun: it ends at once. Otherwise its controller is asked to stop, undo, and complete."""
    operation, _ = await _leaving(tx, call, "cancel")
    if operation.attempts == 0:
        noted = _note(call, ending.fenced(operation), "cancel", body.reason)
        ended = await ending.end(tx, call.origin, noted, Ending("cancelled", noted.targets))
        return await _tell(tx, call, ended, "cancel", body.reason)
    lease = replace(operation.lease, cancel_requested=True) if operation.lease else None
    cancelling = _note(call, replace(operation, status="cancelling", lease=lease), "cancel", body.reason)
    saved = await changes.save_operation(tx, cancelling)
    tx.wake(changes.claims_topic(saved.project_id, saved.app_slug))
    return await _tell(tx, call, saved, "cancel", body.reason)


async def force_complete(tx: db.Tx, call: Call, body: TakeExit) -> Operation:
    operation, members = await _leaving(tx, call, "force_complete")
    await _check_free(tx, operation)
    outcome: Literal["succeeded", "cancelled"] = "cancelled" if operation.compensating else "succeeded"
    why = f"declared done by {call.caller.actor_id}, not observed: {body.reason}"
    moves, targets = [], []
    for target in operation.targets:
        member = members[target.member_id]
        status = exit_rules.forced_status(operation, target, member)
        if status is not None:
            moves.append(ending.Move(member, status, why))
        targets.append(target if target.outcome == "skipped" else replace(target, outcome=outcome, error=""))
    await ending.move_members(tx, call.origin, operation, moves)
    forced = _note(call, ending.fenced(operation), "force_complete", body.reason)
    ended = await ending.end(tx, call.origin, forced, Ending(outcome, targets))
    return await _tell(tx, call, ended, "force_complete", body.reason)


async def tombstone(tx: db.Tx, call: Call, body: GiveUpMembers) -> Operation:
    """Give members up. Where the operation wanted them gone, and all are, it is done."""
    operation, members = await _leaving(tx, call, "tombstone")
    await _check_free(tx, operation)
    given_up = _to_give_up(operation, members, body.member_ids)
    why = f"given up by {call.caller.actor_id}: {body.reason}"
    moves = [ending.Move(member, "tombstoned", why) for member in given_up]
    for moved in await ending.move_members(tx, call.origin, operation, moves):
        members[moved.member_id] = moved
    operation = _note(call, operation, "tombstone", body.reason)
    all_gone = all(member.status in lifecycles.GONE_MEMBER for member in members.values())
    if all_gone and "tombstoned" in GOALS[operation.kind]:
        targets = [replace(target, outcome="succeeded", error="") for target in operation.targets]
        saved = await ending.end(tx, call.origin, operation, Ending("succeeded", targets))
    else:
        saved = await changes.save_operation(tx, operation)
        await changes.settle_instance(tx, call.origin, await ending.instance_of(tx, saved), saved)
    return await _tell(tx, call, saved, "tombstone", body.reason)


async def _reopen(tx: db.Tx, call: Call, name: ExitName, reason: str) -> Operation:
    operation, members = await _leaving(tx, call, name)
    await _check_free(tx, operation)
    instance = await ending.instance_of(tx, operation)
    manifest = await catalog.manifest_of(tx, instance.app_slug, operation.to_version or instance.app_version)
    deadline_at = request_rules.deadline(manifest, operation.kind, call.now, operation.action)
    again = exit_rules.reopened(operation, members, deadline_at, compensating=name == "compensate")
    if name == "retry" and not operation.force:
        await _check_still_safe(tx, call, instance, manifest, again)
    if name == "retry":
        await _check_least(tx, instance, manifest, again)
        await _bind_again(tx, instance, manifest, again)
    saved = await changes.save_operation(tx, _note(call, again, name, reason))
    if saved.kind in INSTANCE_KINDS:
        await changes.settle_instance(tx, call.origin, instance, saved)
    tx.wake(changes.claims_topic(saved.project_id, saved.app_slug))
    return await _tell(tx, call, saved, name, reason)


async def _leaving(tx: db.Tx, call: Call, name: ExitName) -> tuple[Operation, dict[str, Member]]:
    operation = await runtime.operation_in(tx, call)
    members = await ending.concerned(tx, operation)
    exit_rules.check(operation, members, name)
    return operation, members


async def _check_free(tx: db.Tx, operation: Operation) -> None:
    others = [
        other
        for other in await store.active_operations(tx, operation.instance_id)
        if other.operation_id != operation.operation_id
    ]
    member_ids = [target.member_id for target in operation.targets]
    request_rules.check_free(others, operation.kind, member_ids, exclusive=operation.exclusive)


async def _check_still_safe(
    tx: db.Tx, call: Call, instance: Instance, manifest: Manifest, operation: Operation
) -> None:
    """Holds, budgets and breakers may have changed since: a retry is refused what a new request would be."""
    again = [target.member_id for target in operation.targets if target.outcome == "pending"]
    request_rules.check_holds(operation.kind, again, await store.standing_holds(tx, instance.instance_id, call.now))
    if operation.component_key:
        role = breakers.role_of(manifest, operation.component_key)
        members = await store.live_members(tx, instance.instance_id)
        active = await store.active_operations(tx, instance.instance_id)
        request_rules.check_budget(role, operation.kind, members, active, again)
        if operation.kind in request_rules.JOINING:
            request_rules.check_breaker(role, await breakers.state(tx, instance.instance_id, role, call.now))


async def _check_least(tx: db.Tx, instance: Instance, manifest: Manifest, operation: Operation) -> None:
    """`remove`: others may have gone since it failed."""
    if operation.kind == "remove":
        again = [target.member_id for target in operation.targets if target.outcome == "pending"]
        role = breakers.role_of(manifest, operation.component_key)
        members = await store.live_members(tx, instance.instance_id)
        active = await store.active_operations(tx, instance.instance_id)
        request_rules.check_least(role, instance, members, active, again)


async def _bind_again(tx: db.Tx, instance: Instance, manifest: Manifest, operation: Operation) -> None:
    """`replace`: the machines its members have not moved to yet were given back when it failed."""
    wanted = [
        target.allocation_id
        for target in operation.targets
        if target.outcome == "pending" and target.allocation_id and not target.previous_allocation_id
    ]
    if wanted:
        role = breakers.role_of(manifest, operation.component_key)
        members = await store.live_members(tx, instance.instance_id)
        request_rules.check_machines(role, members, await store.active_operations(tx, instance.instance_id), wanted)
    for allocation_id in wanted:
        await accepting.bind(tx, instance, allocation_id)


def _to_give_up(operation: Operation, members: Mapping[str, Member], named: Sequence[str]) -> list[Member]:
    failed = [target.member_id for target in operation.targets if target.outcome == "failed"]
    wanted = list(dict.fromkeys(names.member_ids(list(members.values()), named))) or failed
    unknown = [member_id for member_id in wanted if member_id not in members]
    if unknown:
        raise errors.NotFound(f"{operation.operation_id} is not about member {unknown[0]}.")
    found = [members[member_id] for member_id in wanted]
    return [member for member in found if member.status not in lifecycles.GONE_MEMBER]


def _note(call: Call, operation: Operation, name: ExitName, reason: str) -> Operation:
    taken = ExitTaken(name=name, taken_by=call.caller.actor_id, reason=reason, taken_at=call.now)
    return replace(operation, exits_taken=[*operation.exits_taken, taken])


async def _tell(tx: db.Tx, call: Call, operation: Operation, name: ExitName, reason: str) -> Operation:
    told = ExitWasTaken(
        operation_id=operation.operation_id, kind=operation.kind, exit=name, status=operation.status, reason=reason
    )
    await changes.tell(tx, call.origin, "apps.operation.exit", operation, told)
    return operation
