"""Observations: what a controller reports about its instances and members outside of operations."""

from gpuaas_contract import errors
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.paths import InstancePath
from gpuaas_contract.protocol import observation as observation_rules
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.runtime import ObservedMember, RefusedObservation, ReportRuntime, RuntimeReported

from gpuaas_platform.call import Call
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db
from gpuaas_platform.operations import controllers, members, state, stewards, store

_CONDITIONS_MAX = 64
"""Limit of condition types per instance; each reported type is stored until the instance is deleted."""


async def report(tx: db.Tx, call: Call[InstancePath], body: ReportRuntime) -> RuntimeReported:
    """Record observations. Refuse those of a member that an operation works on, and those of an older state."""
    instance = await instances.named(tx, call)
    await stewards.check_reporter(tx, call, instance, body.epoch)
    if body.observed_revision > instance.revision:
        raise errors.ValidationFailed(
            f"The report is about another revision: the instance is at revision {instance.revision}.",
            details={"field": "observed_revision"},
        )
    busy = await store.busy_members(tx, instance.instance_id, {observed.member_id for observed in body.members})
    results = [await _observe(tx, call, instance, observed, busy) for observed in body.members]
    conditions = observation_rules.conditions(body, call.now)
    types = {condition.type for condition in (*instance.conditions, *conditions)} - status_rules.PLATFORM_CONDITIONS
    if len(types) > _CONDITIONS_MAX:
        raise errors.ValidationFailed(
            f"An instance has at most {_CONDITIONS_MAX} conditions.", details={"field": "conditions"}
        )
    conditions += await stewards.note_look(tx, call, instance)
    derived = await state.derive_instance(tx, call.origin, instance, None, conditions)
    await controllers.note(tx, call, instance.app_slug, body.holder)
    return RuntimeReported(
        instance=derived,
        members=[result for result in results if isinstance(result, Member)],
        refused=[result for result in results if isinstance(result, RefusedObservation)],
    )


async def _observe(
    tx: db.Tx, call: Call, instance: Instance, observed: ObservedMember, busy: set[str]
) -> Member | RefusedObservation:
    member = await instances.find_member(tx, instance.instance_id, observed.member_id)
    if member is None:
        return observation_rules.unknown_member(observed)
    refused = observation_rules.refusal(member, observed, busy=observed.member_id in busy)
    if refused is not None:
        return refused
    changed = members.reported(member, observed)
    if changed == member:
        return member
    return await instance_members.save(tx, call.origin, instance.app_slug, member, changed)
