"""A member that may have run work is removed only when a fresh observation shows it idle, or a person forces it."""

from typing import Any

import pytest
from gpuaas_contract import audit, errors
from platform_world import World
from scripted_controller import Cluster, Held, evidence

UNSAFE: dict[str, tuple[dict[str, Any] | None, type[errors.EvidenceRequired]]] = {
    "none at all": (None, errors.EvidenceMissing),
    "too old": ({"age_s": 121}, errors.EvidenceStale),
    "from the future": ({"age_s": -6}, errors.EvidenceStale),
    "busy": ({"state": "busy"}, errors.EvidenceBusy),
    "idle, but with work": ({"state": "idle", "running_work": 1}, errors.EvidenceBusy),
    "unknown": ({"state": "unknown"}, errors.EvidenceUnknown),
    "unreachable": ({"state": "unreachable"}, errors.EvidenceUnknown),
}
"""What is shown, and what the refusal reports as missing."""


async def _removing(world: World, **more: Any) -> tuple[Cluster, Held, str]:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("remove", hand, **more)
    return cluster, await cluster.controller.take(), hand


async def test_a_removal_without_sound_evidence_is_refused_with_what_is_missing(world: World) -> None:
    cluster, held, hand = await _removing(world)
    for shown, refusal in UNSAFE.values():
        reported = evidence(world.clock(), **shown) if shown is not None else None
        with pytest.raises(refusal) as refused:
            await held.report(hand, "removing", evidence=reported)
        assert (type(refused.value), refused.value.status) == (refusal, 422)
        assert refused.value.details["missing"]
    assert await cluster.statuses(hand) == ["ready"]
    with pytest.raises(errors.Conflict, match="is not done"):
        await held.complete()


async def test_a_failed_member_that_ran_work_is_not_called_removed_without_evidence(world: World) -> None:
    _, held, hand = await _removing(world)
    await held.report(hand, "failed")
    with pytest.raises(errors.EvidenceMissing):
        await held.report(hand, "removed")


async def test_fresh_evidence_lets_a_removal_pass_and_stays_with_the_operation(world: World) -> None:
    cluster, held, hand = await _removing(world)
    await held.report(hand, "draining", "drained")
    await held.report(hand, "removing", evidence=evidence(world.clock(), age_s=119, running_work=0))
    world.clock.forward(DESTROYING_S)
    await held.report(hand, "removed")
    await held.report(hand, "removed")
    ended = await held.complete()
    assert (ended.status, ended.targets[0].outcome) == ("succeeded", "succeeded")
    assert ended.targets[0].evidence is not None
    assert ended.targets[0].evidence.state == "idle"
    assert await cluster.bound() == await cluster.occupied()


DESTROYING_S = 300
"""Evidence is not asked for again once a member is `removing`, however long the rest takes."""


async def test_decommission_and_replace_ask_for_evidence_as_remove_does(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("replace", hand, allocation_ids=await cluster.machines(1))
    replacing = await cluster.controller.take()
    with pytest.raises(errors.EvidenceMissing):
        await replacing.report(hand, "draining", "drained", "removing")
    await replacing.report(hand, "removing", "provisioning", "joining", "ready", evidence=evidence(world.clock()))
    await replacing.complete()
    await cluster.change("decommission")
    ending = await cluster.controller.take()
    for member_id in ending.member_ids:
        with pytest.raises(errors.EvidenceMissing):
            await ending.report(member_id, "removing")


async def test_a_member_that_never_was_ready_goes_without_evidence(world: World) -> None:
    cluster = await Cluster.running(world)
    (machine,) = await cluster.machines(1)
    await cluster.add(machine)
    adding = await cluster.controller.take()
    (newcomer,) = adding.member_ids
    await adding.report(newcomer, "provisioning", "failed")
    await adding.complete()
    await cluster.operate("remove", newcomer)
    removing = await cluster.controller.take()
    await removing.report(newcomer, "removing", "removed")
    assert (await removing.complete()).status == "succeeded"
    assert machine not in await cluster.bound()


async def test_only_force_lets_a_controller_give_up_a_member_that_ran_work(world: World) -> None:
    _, held, hand = await _removing(world)
    with pytest.raises(errors.EvidenceMissing, match="only by force"):
        await held.report(hand, "tombstoned")


async def test_a_forced_removal_needs_its_own_permission_and_the_denial_is_on_the_record(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    member = await world.person("mia", "project_member", world.project_id)
    with pytest.raises(errors.PermissionDenied) as denied:
        await cluster.operate("remove", hand, token=member.token, force=True, reason="it burns")
    assert denied.value.details == {"permission": "apps.operation.force"}
    assert await cluster.controller.finds_nothing()
    with pytest.raises(errors.PermissionDenied):
        await cluster.change("decommission", token=member.token, force=True, reason="all of it burns")
    trail = (await world.call(audit.AUDIT_LIST, query={"actor_id": member.user_id})).items
    refused = [(row.action, row.target, row.result, row.details) for row in trail if row.action == "authz.deny"]
    details = {"permission": "apps.operation.force"}
    assert sorted(refused, key=str) == [
        ("authz.deny", "apps.instance.decommission", "failure", details),
        ("authz.deny", "apps.member.operate", "failure", details),
    ]


async def test_a_project_admin_forces_with_a_reason_and_not_without_one(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    admin = await world.person("ada", "project_admin", world.project_id)
    for reason in ("", "  "):
        with pytest.raises(errors.ValidationFailed) as refused:
            await cluster.operate("remove", hand, token=admin.token, force=True, reason=reason)
        assert refused.value.details == {"field": "reason"}
    forced = await cluster.operate("remove", hand, token=admin.token, force=True, reason="the rack burns")
    assert (forced.force, forced.reason) == (True, "the rack burns")
    held = await cluster.controller.take()
    await held.report(hand, "removing", "removed", evidence=evidence(world.clock(), "busy"))
    ended = await held.complete()
    assert (ended.status, ended.targets[0].outcome) == ("succeeded", "succeeded")


async def test_the_controllers_own_account_cannot_force(world: World) -> None:
    cluster = await Cluster.running(world)
    with pytest.raises(errors.PermissionDenied):
        await cluster.operate(
            "remove", (await cluster.hands())[0], token=cluster.controller.token, force=True, reason="in a hurry"
        )
