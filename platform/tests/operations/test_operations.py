"""An app controller with nothing but a token: claim, report, complete; fences, deadlines, locks."""

import datetime
import uuid

import pytest
from gpuaas_contract import capacity, catalog, errors, events, instances, operations, runtime
from gpuaas_platform import server
from gpuaas_platform.operations import reconcile
from platform_world import MANIFEST, World


async def test_a_deploy_runs_from_request_to_running(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token)
    instance = await world.call(instances.INSTANCE_GET, instance_id=deployed.instance.instance_id)
    assert (instance.status, deployed.operation.status) == ("running", "accepted")
    assert (await world.operation(deployed.operation.operation_id)).status == "succeeded"
    recorded = await world.call(events.EVENT_LIST, query={"app_instance_id": instance.instance_id})
    kinds = [event.type for event in recorded.items if event.type.startswith("apps.instance.")]
    assert kinds == ["apps.instance.requested", "apps.instance.deploying", "apps.instance.running"]
    assert {event.correlation_id for event in recorded.items} == {deployed.operation.correlation_id}


async def test_a_project_deploys_only_what_it_is_entitled_to(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, MANIFEST)
    await world.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug="toy", version="1.0.0")
    with pytest.raises(errors.NotEntitled):
        await world.deploy()


async def test_a_service_account_cannot_change_entitlements(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    with pytest.raises(errors.PermissionDenied):
        await world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=False), token=token, app_slug="toy")


async def test_inputs_that_do_not_fit_the_form_are_refused_by_field(world: World) -> None:
    await world.entitled_app()
    body = instances.DeployInstance(name="x", app_slug="toy", topology="pair", inputs={"color": "blue"})
    with pytest.raises(errors.ValidationFailed) as refused:
        await world.call(instances.INSTANCE_CREATE, body)
    fields = refused.value.details["fields"]
    assert fields.keys() == {"color", "head_allocation", "hand_allocations"}
    assert fields["head_allocation"] == "it is missing"


async def test_a_lost_lease_can_be_claimed_again_and_the_old_holder_is_refused(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    first = await world.claim(token, lease_s=5)
    assert (await world.claim(token)).operation is None
    world.clock.forward(6)
    second = await world.claim(token)
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.operation is not None
    with pytest.raises(errors.LeaseLost):
        await world.report(token, first, first.members[0].member_id, "provisioning")
    with pytest.raises(errors.LeaseLost):
        await world.call(
            runtime.HEARTBEAT,
            runtime.Heartbeat(epoch=first.epoch),
            token=token,
            operation_id=first.operation.operation_id,
        )
    with pytest.raises(errors.LeaseLost):
        await world.complete(token, first)


async def test_a_claim_asked_again_with_its_id_gets_the_same_lease(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim_id = str(uuid.uuid4())
    first = await world.claim(token, claim_id=claim_id)
    again = await world.claim(token, claim_id=claim_id)
    assert again.operation == first.operation
    assert again.epoch == 1


async def test_a_heartbeat_keeps_the_lease(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim = await world.claim(token, lease_s=10)
    assert claim.operation is not None
    for _ in range(3):
        world.clock.forward(8)
        await world.call(
            runtime.HEARTBEAT,
            runtime.Heartbeat(epoch=1, lease_s=10),
            token=token,
            operation_id=claim.operation.operation_id,
        )
    assert (await world.claim(token)).operation is None


async def test_finished_steps_stay_finished(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim = await world.claim(token)
    assert claim.operation is not None
    for state in ("running", "succeeded", "running"):
        body = runtime.ReportStep(epoch=1, name="install", state=state)
        await world.call(runtime.STEP_REPORT, body, token=token, operation_id=claim.operation.operation_id)
    steps = (await world.operation(claim.operation.operation_id)).steps
    assert [(step.name, step.state) for step in steps] == [("install", "succeeded")]


async def test_what_passes_its_deadline_fails_as_expired(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.deploy()
    claim = await world.claim(token)
    world.clock.forward(601)
    await reconcile.sweep(world.site)
    ended = await world.operation(deployed.operation.operation_id)
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.failure_class == "expired"
    instance = await world.call(instances.INSTANCE_GET, instance_id=deployed.instance.instance_id)
    assert instance.status == "failed"
    with pytest.raises(errors.LeaseLost):
        await world.complete(token, claim)


async def test_a_deadline_that_passes_while_the_platform_is_down_counts_when_it_is_up_again(world: World) -> None:
    await world.entitled_app()
    deployed = await world.deploy()
    claim = await world.claim(await world.service_account())
    world.clock.forward(599)
    async with server.open_site(world.site.settings, world.clock) as restarted:
        await reconcile.sweep(restarted)
        assert (await world.operation(deployed.operation.operation_id)).status == "running"
        world.clock.forward(1)
        await reconcile.sweep(restarted)
    ended = await world.operation(deployed.operation.operation_id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.epoch) == ("failed", "controller_lost", claim.epoch + 1)


async def test_an_operation_that_cannot_be_ended_keeps_no_other_from_expiring(world: World) -> None:
    await world.entitled_app()
    broken, sound = await world.deploy("one"), await world.deploy("two")
    member_id = broken.members[0].member_id
    await world.site.database.write(lambda tx: tx.run("DELETE FROM members WHERE member_id = $1", member_id))
    world.clock.forward(601)
    await reconcile.sweep(world.site)
    assert (await world.operation(sound.operation.operation_id)).status == "failed"
    assert (await world.operation(broken.operation.operation_id)).status == "accepted"


async def test_an_operation_completes_only_when_its_members_are_where_they_should_be(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim = await world.claim(token)
    with pytest.raises(errors.Conflict, match="not done"):
        await world.complete(token, claim)


async def test_a_member_has_one_operation_at_a_time(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token, hands=2)
    draining, other = [
        member for member in await world.members(deployed.instance.instance_id) if member.component_key == "hand"
    ]
    first = await _operate(world, deployed, "drain", draining.member_id)
    with pytest.raises(errors.OperationInProgress) as held:
        await _operate(world, deployed, "remove", draining.member_id)
    assert held.value.details["operation_id"] == first.operation_id
    await _operate(world, deployed, "drain", other.member_id)
    with pytest.raises(errors.OperationInProgress):
        await world.call(instances.DECOMMISSION, instances.Decommission(), instance_id=deployed.instance.instance_id)


async def test_a_failed_deploy_can_be_decommissioned_and_frees_its_allocations(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.deploy()
    claim = await world.claim(token)
    assert claim.operation is not None
    failure = runtime.FailOperation(epoch=1, code="app_failed", message="no", failure_class="repairable")
    await world.call(runtime.FAIL, failure, token=token, operation_id=claim.operation.operation_id)
    instance_id = deployed.instance.instance_id
    await world.call(instances.DECOMMISSION, instances.Decommission(), instance_id=instance_id)
    teardown = await world.claim(token)
    for member in teardown.members:
        await world.report(token, teardown, member.member_id, "removing", "removed")
    await world.complete(token, teardown)
    assert (await world.call(instances.INSTANCE_GET, instance_id=instance_id)).status == "deleted"
    allocations = (await world.call(capacity.ALLOCATION_LIST)).items
    assert [allocation.used_by_instance_ids for allocation in allocations] == [[], []]


async def test_an_allocation_carries_members_of_one_instance_only(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token)
    taken = deployed.instance.placement["head"][0]
    body = instances.DeployInstance(
        name="two", app_slug="toy", topology="pair", inputs={"head_allocation": taken, "hand_allocations": [taken]}
    )
    with pytest.raises(errors.Conflict, match="used by"):
        await world.call(instances.INSTANCE_CREATE, body)
    with pytest.raises(errors.Conflict, match="uses this allocation"):
        await world.call(capacity.ALLOCATION_RELEASE, allocation_id=taken)


async def test_machine_access_needs_the_newest_epoch_and_an_allocation_of_the_instance(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    foreign = await world.allocation("foreign")
    await world.deploy()
    claim = await world.claim(token, lease_s=5)
    assert claim.operation is not None
    operation_id, own = claim.operation.operation_id, claim.members[0].allocation_id
    granted = await world.machine_access(token, own, operation_id=operation_id, epoch=1)
    assert (granted.principal, granted.expires_at - world.clock()) == (own, datetime.timedelta(seconds=600))
    with pytest.raises(errors.PermissionDenied):
        await world.machine_access(token, foreign.allocation_id, operation_id=operation_id, epoch=1)
    with pytest.raises(errors.PermissionDenied):
        await world.machine_access(token, own)
    world.clock.forward(6)
    await world.claim(token)
    with pytest.raises(errors.LeaseLost):
        await world.machine_access(token, own, operation_id=operation_id, epoch=1)


async def test_roles_report_how_many_members_they_have_and_their_health(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.running_instance(token, hands=2)
    roles = (await world.call(instances.ROLE_LIST, instance_id=deployed.instance.instance_id)).items
    assert [(role.component_key, role.desired, role.ready, role.health) for role in roles] == [
        ("head", 1, 1, "healthy"),
        ("hand", 2, 2, "healthy"),
    ]


async def _operate(world: World, deployed: instances.Deployed, kind: str, member_id: str) -> operations.Operation:
    body = {"kind": kind, "member_ids": [member_id]}
    return await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id=deployed.instance.instance_id)
