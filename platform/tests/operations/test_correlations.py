"""The correlation bundle: one document with everything that happened under one id, for callers who may see it."""

import datetime

import pytest
from gpuaas_contract import capacity, correlations, errors, identity, instances, node, policy, runtime, secrets
from gpuaas_contract.correlations import PART_MAX
from gpuaas_contract.event_types import EntitlementChanged
from gpuaas_platform.call import Owner, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.kit.recent_refusals import PER_PROJECT, RecentRefusals
from gpuaas_platform.record import service as record
from platform_world import World


async def _deployed(world: World, token: str) -> instances.Deployed:
    """Deployed under the id `ticket-1`, by a controller that passes the id on as the kit does."""
    await world.entitled_app()
    head, hand = await world.allocation("head"), await world.allocation("hand")
    inputs = {"head_allocation": head.allocation_id, "hand_allocations": [hand.allocation_id]}
    body = instances.DeployInstance(name="one", app_slug="toy", topology="pair", inputs=inputs)
    headers = {"X-Correlation-ID": "ticket-1"}
    deployed = await world.call(instances.INSTANCE_CREATE, body, headers=headers)
    claim = await world.claim(token)
    operation_id = deployed.operation.operation_id
    step = runtime.ReportStep(epoch=claim.epoch, name="install", state="succeeded")
    await world.call(runtime.STEP_REPORT, step, token=token, operation_id=operation_id, headers=headers)
    issue = {"epoch": claim.epoch, "purpose": "role_join", "name": "join"}
    await world.call(secrets.SECRET_ISSUE, issue, token=token, operation_id=operation_id, headers=headers)
    for member in claim.members:
        detail = {"slots": 4}
        await world.report(token, claim, member.member_id, "provisioning", "joining", "ready", adapter_detail=detail)
    await world.complete(token, claim)
    return deployed


async def _bundle(world: World, correlation_id: str = "ticket-1", token: str | None = None) -> correlations.Correlation:
    return await world.call(correlations.CORRELATION_GET, correlation_id=correlation_id, token=token)


async def test_the_bundle_has_the_request_the_work_and_what_became_of_it(world: World) -> None:
    token = await world.service_account()
    deployed = await _deployed(world, token)
    bundle = await _bundle(world)
    (operation,) = bundle.operations
    assert operation.operation_id == deployed.operation.operation_id
    assert (operation.status, [step.name for step in operation.steps]) == ("succeeded", ["install"])
    assert {target.outcome for target in operation.targets} == {"succeeded"}
    assert [member.adapter_detail for member in bundle.members] == [{"slots": 4}] * 2
    kinds = [event.type for event in bundle.events]
    assert {"apps.instance.requested", "apps.operation.step", "access.secret.issued", "apps.instance.running"} <= set(
        kinds
    )
    assert [event.cursor for event in bundle.events] == sorted(event.cursor for event in bundle.events)
    assert bundle.audit is not None
    assert [row.action for row in bundle.audit] == ["apps.instance.create", "access.secret.issue"]
    assert (bundle.withheld, bundle.truncated) == ({}, [])


async def test_a_caller_who_may_not_read_the_audit_trail_sees_what_is_withheld(world: World) -> None:
    token = await world.service_account()
    await _deployed(world, token)
    viewer = await world.person("viewer", "viewer", world.project_id)
    for reader in (viewer.token, await world.service_account("program", apps=[])):
        bundle = await _bundle(world, token=reader)
        assert (bundle.audit, bundle.withheld) == (None, {"audit": "record.audit.read"})
        assert len(bundle.operations) == 1
        assert bundle.events


async def test_an_id_that_only_the_audit_trail_has_is_not_found_by_a_caller_who_may_not_read_it(world: World) -> None:
    headers = {"X-Correlation-ID": "ticket-2"}
    await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"}, headers=headers)
    assert [row.action for row in (await _bundle(world, "ticket-2")).audit or []] == ["identity.service_account.create"]
    viewer = await world.person("viewer", "viewer", world.project_id)
    with pytest.raises(errors.NotFound):
        await _bundle(world, "ticket-2", viewer.token)


async def test_an_unknown_id_and_one_of_another_project_are_not_found(world: World) -> None:
    await _deployed(world, await world.service_account())
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    for project_id, correlation_id in ((world.project_id, "ticket-9"), (sibling.project_id, "ticket-1")):
        with pytest.raises(errors.NotFound):
            await world.call(correlations.CORRELATION_GET, project_id=project_id, correlation_id=correlation_id)


async def test_a_part_that_is_too_long_is_cut_and_listed_as_truncated(world: World) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    origin = system_origin(world.clock(), "ticket-3")

    async def emit_too_many(tx: db.Tx) -> None:
        for _ in range(PART_MAX + 1):
            changed = EntitlementChanged(app_slug="toy", enabled=True)
            owner = Owner(org_id, world.project_id)
            await record.emit(tx, origin, "catalog.entitlement.changed", changed, owner)

    await world.site.database.write(emit_too_many)
    bundle = await _bundle(world, "ticket-3")
    assert (len(bundle.events), bundle.truncated) == (PART_MAX, ["events"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_events_are_found_by_the_id_and_not_by_walking_through_the_project(world: World) -> None:
    rows = await world.site.database.reader.all(
        """EXPLAIN QUERY PLAN SELECT cursor, document FROM events WHERE correlation_id = $1 AND scope = $2
           ORDER BY cursor LIMIT $3""",
        "x",
        "y",
        1,
    )
    assert [row["detail"] for row in rows] == [
        "SEARCH events USING INDEX events_by_correlation (correlation_id=? AND scope=?)"
    ]


async def test_a_refused_request_is_found_by_the_id_in_its_error(world: World) -> None:
    headers = {"X-Correlation-ID": "ticket-9"}
    body = instances.DeployInstance(name="one", app_slug="nosuch", topology="pair")
    with pytest.raises(errors.ApiError) as failed:
        await world.call(instances.INSTANCE_CREATE, body, headers=headers)
    (refused,) = (await _bundle(world, "ticket-9")).refused
    assert (refused.route, refused.code, refused.status) == (
        "apps.instance.create",
        failed.value.code,
        failed.value.status,
    )
    assert (refused.message, refused.fix, refused.actor_name) == (failed.value.message, failed.value.fix, "admin")


async def test_a_refused_request_is_shown_to_its_caller_and_to_readers_of_the_audit_trail(world: World) -> None:
    member = await world.person("member", "project_member", world.project_id)
    viewer = await world.person("viewer", "viewer", world.project_id)
    body = instances.DeployInstance(name="one", app_slug="nosuch", topology="pair")
    with pytest.raises(errors.ApiError):
        await world.call(instances.INSTANCE_CREATE, body, token=member.token, headers={"X-Correlation-ID": "ticket-9"})
    assert len((await _bundle(world, "ticket-9", member.token)).refused) == 1
    assert len((await _bundle(world, "ticket-9")).refused) == 1
    with pytest.raises(errors.NotFound) as missing:
        await _bundle(world, "ticket-9", viewer.token)
    assert "search the logs" in missing.value.fix


def test_refused_requests_of_one_project_do_not_push_out_those_of_another(world: World) -> None:
    recent, request = RecentRefusals(), _refusal(world)
    recent.add("p-1", "cor-1", request)
    for number in range(PER_PROJECT + 1):
        recent.add("p-2", f"cor-{number}", request)
    assert recent.under("p-1", "cor-1") == [request]
    assert (recent.under("p-2", "cor-0"), recent.under("p-2", "cor-1")) == ([], [request])


async def test_refused_requests_of_strangers_do_not_push_out_those_of_a_project(world: World) -> None:
    stranger = await world.person("stranger")
    body = instances.DeployInstance(name="one", app_slug="nosuch", topology="pair")
    await world.send(instances.INSTANCE_CREATE, body, headers={"X-Correlation-ID": "ticket-9"})
    for _ in range(PER_PROJECT):
        await world.send(instances.INSTANCE_LIST, token=stranger.token, headers={"X-Correlation-ID": "ticket-9"})
    (refused,) = (await _bundle(world, "ticket-9")).refused
    assert refused.actor_name == "admin"


def _refusal(world: World) -> correlations.RefusedRequest:
    texts = dict.fromkeys(("route", "actor_type", "actor_id", "actor_name", "code", "message", "fix"), "x")
    return correlations.RefusedRequest(occurred_at=world.clock(), status=409, **texts)


async def test_what_a_policy_denies_is_found_by_the_id_in_its_error(world: World) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    await world.call(policy.ORG_SET, {"regions": {"allow": ["eu-*"]}, "reason": "eu only"}, org_id=org_id)
    with pytest.raises(errors.PolicyDenied):
        await world.call(
            capacity.ALLOCATION_CREATE,
            capacity.CreateAllocation(region="local"),
            headers={"X-Correlation-ID": "ticket-7"},
        )
    bundle = await _bundle(world, "ticket-7")
    assert [row.action for row in bundle.audit or ()] == ["policy.deny"]
    assert [request.code for request in bundle.refused] == ["policy_denied"]


async def test_tasks_of_nodes_are_found_with_their_result_in_the_project_that_they_were_for(world: World) -> None:
    machine = await world.node("gpu-1")
    wanted = capacity.CreateAllocation(node_name="gpu-1")
    await world.call(capacity.ALLOCATION_CREATE, wanted, headers={"X-Correlation-ID": "ticket-8"})
    queued = (await _bundle(world, "ticket-8")).node_tasks
    assert [(task.type, task.state, task.ended_at) for task in queued] == [("allocation.provision", "queued", None)]
    issued = world.clock()
    world.clock.forward(3)
    task = await world.next_task(machine)
    assert task is not None
    error = {"code": "command_failed", "message": "useradd: no space left"}
    # The clock of the node is an hour ahead, so the start is moved to before the end.
    ahead = issued.timestamp() + 3600
    body = {"status": "failed", "error": error, "started_at_s": ahead, "took_s": 2.0}
    await world.call(node.TASK_RESULT, body, token=machine.token, task_id=task["task_id"])
    (ended,) = (await _bundle(world, "ticket-8")).node_tasks
    assert (ended.node_name, ended.state, ended.error) == ("gpu-1", "failed", node.TaskError(**error))
    assert (ended.started_at, ended.ended_at) == (issued + datetime.timedelta(seconds=1), world.clock())
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    with pytest.raises(errors.NotFound):
        await world.call(correlations.CORRELATION_GET, project_id=sibling.project_id, correlation_id="ticket-8")


async def test_the_newest_lines_of_the_controllers_log_are_part_of_the_bundle(world: World) -> None:
    token = await world.service_account()
    await world.entitled_app()
    deployed = await world.deploy()
    claim = await world.claim(token)
    first = 1
    while first <= PART_MAX + 1:
        lines = [
            {"number": number, "logged_at": world.clock().isoformat(), "level": "info", "event": f"e{number}"}
            for number in range(first, first + runtime.LOG_BATCH_MAX)
        ]
        beat = {"epoch": claim.epoch, "log": lines}
        await world.call(runtime.HEARTBEAT, beat, token=token, operation_id=deployed.operation.operation_id)
        first += runtime.LOG_BATCH_MAX
    bundle = await _bundle(world, deployed.operation.correlation_id)
    assert (len(bundle.log), bundle.log[-1].event, bundle.truncated) == (PART_MAX, f"e{first - 1}", ["log"])


async def test_links_lead_to_the_log_and_trace_systems_of_the_operator(world: World) -> None:
    log_url = "https://logs.example/search?q=%7Bid%3D%22{correlation_id}%22%7D&from={start_ms}&to={end_ms}"
    settings = {"log_url_template": log_url, "trace_url_template": "https://traces.example/t/{trace_id}"}
    for name, value in settings.items():
        object.__setattr__(world.site.settings, name, value)
    headers = {"X-Correlation-ID": "a/b", "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    for headers_sent in (headers, {**headers, "X-Correlation-ID": 'x" or "y'}):
        with pytest.raises(errors.NotFound):
            await world.call(instances.STOP, {}, instance_id="nosuch", headers=headers_sent)
    start_ms = int(world.clock().timestamp() * 1000) - 300_000
    bundle = await _bundle(world, "a%2Fb")
    assert [(link.kind, link.url) for link in bundle.links] == [
        ("log", f"https://logs.example/search?q=%7Bid%3D%22a%2Fb%22%7D&from={start_ms}&to={start_ms + 600_000}"),
        ("trace", f"https://traces.example/t/{'ab' * 16}"),
    ]
    assert [link.kind for link in (await _bundle(world, "x%22%20or%20%22y")).links] == ["trace"]
    with pytest.raises(errors.NotFound) as missing:
        await _bundle(world, "ticket-unknown")
    assert "https://logs.example/search?q=%7Bid%3D%22ticket-unknown%22%7D&from=" in missing.value.fix
