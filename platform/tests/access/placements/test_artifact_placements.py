"""An artifact is placed by the holder of the operation and opened by the one node it is for, and by no one else."""

from typing import Any

import msgspec
import pytest
from artifact_world import CONTENT, MEDIA_TYPE, Signer, code_of, digest_of, promoted, published, shared, trusted
from gpuaas_contract import artifacts, capacity, catalog, errors, identity, lifecycles, node, placements
from gpuaas_contract.node import TaskError, TaskResult
from gpuaas_platform import server
from gpuaas_platform.access.placements import rules, store
from placement_world import Placing, allocated, placing
from platform_world import World


@pytest.fixture
async def placed(world: World) -> Placing:
    return await placing(world)


async def test_the_task_names_the_content_and_holds_no_secret(placed: Placing) -> None:
    placement = await placed.place(mode="0755")
    assert (placement.state, placement.digest, placement.node_name) == ("queued", digest_of(CONTENT), "n1")
    task = await placed.world.next_task(placed.node)
    assert task is not None
    assert (task["type"], task["correlation_id"]) == ("artifact.fetch", placement.correlation_id)
    assert task["params"] == {
        "placement_id": placement.placement_id,
        "allocation_id": placed.allocation_id,
        "user": (await placed.world.call(capacity.ALLOCATION_LIST)).items[0].username_on_node,
        "digest": placement.digest,
        "size_bytes": len(CONTENT),
        "mode": "0755",
    }
    answer = await placed.content(placement)
    assert (answer.content, answer.headers["content-type"]) == (CONTENT, "application/octet-stream")


async def test_a_caller_can_wait_for_the_end_of_a_placement(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    ended = await placed.now(placement, wait_s=30)
    assert (ended.state, ended.path, ended.error, ended.ended_at) == ("placed", "/there", None, placed.world.clock())
    again = await placed.place()
    await _finish(placed, {"status": "failed", "error": {"code": "disk_full", "message": "there is no room"}})
    assert (await placed.now(again)).error == TaskError(code="disk_full", message="there is no room")
    assert await placed.event_states() == [("queued", ""), ("placed", ""), ("queued", ""), ("failed", "disk_full")]


async def test_a_shared_artifact_is_placed_as_the_projects_own(placed: Placing) -> None:
    placement = await placed.place(await shared(placed.world, Signer(), b"for all"))
    assert (await placed.content(placement)).content == b"for all"


async def test_two_requests_with_one_idempotency_key_place_the_artifact_once(placed: Placing) -> None:
    where = {"token": placed.held.token, "key": "once", "artifact_id": placed.artifact.artifact_id}
    first = await placed.world.call(placements.PLACEMENT_CREATE, placed.body(), **where)
    assert await placed.world.call(placements.PLACEMENT_CREATE, placed.body(), **where) == first
    assert await placed.event_states() == [("queued", "")]


async def test_only_the_node_it_is_for_can_open_it(placed: Placing) -> None:
    placement = await placed.place()
    hidden = await placed.content(placement, placed.other.token)
    absent = await placed.content(msgspec.structs.replace(placement, placement_id="plc_none"), placed.other.token)
    assert _refusal(hidden) == _refusal(absent) == (404, "not_found", absent.json()["message"])
    assert (await placed.content(placement, placed.held.token)).status_code == 401
    assert (await placed.content(placement, "nonsense")).status_code == 401


async def test_the_content_is_closed_when_the_time_is_over_and_the_placement_fails_without_an_answer(
    placed: Placing,
) -> None:
    placement = await placed.place()
    placed.world.clock.forward((placement.expires_at - placed.world.clock()).total_seconds())
    assert code_of(await placed.content(placement)) == "not_found"
    assert await placed.world.next_task(placed.node) is None
    await placed.world.sweep()
    ended = await placed.now(placement)
    assert ended.error is not None
    assert (ended.state, ended.error.code) == ("failed", "no_answer")


async def test_the_content_is_closed_when_the_placement_has_ended(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    assert code_of(await placed.content(placement)) == "not_found"


@pytest.mark.parametrize("end", [artifacts.REVOKE, artifacts.RETIRE])
async def test_an_artifact_that_is_no_longer_trusted_is_not_opened_any_more(placed: Placing, end: Any) -> None:
    placement = await placed.place()
    where = {"artifact_id": placed.artifact.artifact_id}
    await placed.world.call(end, {"reason": "the build machine was broken into"}, **where)
    with pytest.raises((errors.ArtifactRevoked, errors.ArtifactRetired)) as refused:
        await placed.place()
    assert code_of(await placed.content(placement)) == refused.value.code


async def test_a_machine_that_is_given_back_gets_nothing_more(placed: Placing) -> None:
    placement = await placed.place()
    where = {"allocation_id": placed.allocation_id}
    await placed.world.call(capacity.ALLOCATION_RELEASE_USED, {"reason": "needed elsewhere"}, **where)
    ended = await placed.now(placement)
    assert ended.error is not None
    assert (ended.state, ended.error.code) == ("failed", "allocation_released")
    task = await placed.world.next_task(placed.node)
    assert task is not None
    assert task["type"] == "allocation.release"
    assert code_of(await placed.content(placement)) == "not_found"
    with pytest.raises(errors.Conflict, match="releasing"):
        await placed.place()


async def test_a_lost_lease_places_nothing(placed: Placing) -> None:
    with pytest.raises(errors.LeaseLost):
        await placed.place(epoch=placed.held.claim.epoch - 1)
    placed.world.clock.forward(61)
    taken_over = await placed.world.claim(placed.held.token)
    assert taken_over.epoch > placed.held.claim.epoch
    with pytest.raises(errors.LeaseLost):
        await placed.place()
    assert (await placed.place(epoch=taken_over.epoch)).state == "queued"


async def test_another_account_places_nothing(placed: Placing) -> None:
    with pytest.raises(errors.PermissionDenied):
        await placed.place(token=await placed.world.service_account("other"))
    person = await placed.world.person("ann", "project_admin", placed.world.project_id)
    with pytest.raises(errors.PermissionDenied):
        await placed.place(token=person.token)


async def test_a_machine_of_no_member_is_left_alone(placed: Placing) -> None:
    _, spare = await allocated(placed.world, "spare")
    with pytest.raises(errors.PermissionDenied, match="does not belong"):
        await placed.place(allocation_id=spare)
    with pytest.raises(errors.NotFound):
        await placed.place(allocation_id="alloc_none")


async def test_nothing_crosses_into_a_sibling_project(placed: Placing) -> None:
    world = placed.world
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, identity.CreateProject(name="next-door"), org_id=org_id)
    token = await world.service_account("theirs", sibling.project_id)
    placement = await placed.place()
    where = {"token": token, "project_id": sibling.project_id, "artifact_id": placed.artifact.artifact_id}
    with pytest.raises(errors.NotFound):
        await world.call(placements.PLACEMENT_CREATE, placed.body(), **where)
    with pytest.raises(errors.NotFound):
        await world.call(placements.PLACEMENT_GET, placement_id=placement.placement_id, **where)
    own = World(world.site, world.clock, world.http, world.token, sibling.project_id)
    theirs = await promoted(own, await trusted(own), b"theirs")
    with pytest.raises(errors.NotFound):
        await placed.place(theirs)
    where["artifact_id"] = theirs.artifact_id
    with pytest.raises(errors.NotFound):
        await world.call(placements.PLACEMENT_CREATE, placed.body(), **where)


async def test_a_placement_is_found_under_its_artifact_only(placed: Placing) -> None:
    placement = await placed.place()
    other = await published(placed.world, b"another", name="other", media_type=MEDIA_TYPE)
    with pytest.raises(errors.NotFound):
        await placed.now(msgspec.structs.replace(placement, artifact_id=other.artifact_id))


async def test_an_artifact_that_is_not_promoted_or_not_entitled_is_not_placed(placed: Placing) -> None:
    signer = await trusted(placed.world, "second")
    raw = await published(placed.world, b"raw", signer, name="raw")
    with pytest.raises(errors.ArtifactUnverified):
        await placed.place(raw)
    await placed.world.call(artifacts.VERIFY, {}, artifact_id=raw.artifact_id)
    with pytest.raises(errors.ArtifactNotPromoted):
        await placed.place(raw)
    await placed.world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=False), app_slug="toy")
    with pytest.raises(errors.NotEntitled):
        await placed.place()


async def test_a_placement_is_forgotten_a_day_after_its_time(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "failed", "error": {"code": "disk_full", "message": "there is no room"}})
    reader, over_s = placed.world.site.database.reader, (placement.expires_at - placed.world.clock()).total_seconds()
    for passed_s, is_kept in ((over_s + 86_400, True), (1, False)):
        placed.world.clock.forward(passed_s)
        await server.forget_old_rows(placed.world.site)
        assert (await store.PLACEMENTS.get(reader, placement.placement_id) is not None) == is_kept


async def test_an_artifact_that_is_still_on_its_machine_stays_on_record(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    placed.world.clock.forward(30 * 86_400)
    await server.forget_old_rows(placed.world.site)
    reader = placed.world.site.database.reader
    assert await store.PLACEMENTS.get(reader, placement.placement_id) is not None


async def test_a_removal_ends_every_placement_of_the_same_content(placed: Placing) -> None:
    placed_twice = [await placed.place(), await placed.place()]
    for _ in placed_twice:
        await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    removal = await placed.unplace()
    task = await placed.world.next_task(placed.node)
    assert task is not None
    assert (removal.state, task["type"]) == ("removing", "artifact.remove")
    assert task["params"] == {
        "placement_id": removal.placement_id,
        "allocation_id": placed.allocation_id,
        "user": (await placed.world.call(capacity.ALLOCATION_LIST)).items[0].username_on_node,
        "digest": removal.digest,
    }
    await _finish(placed, {"status": "succeeded", "result": {"removed": ["/there"]}})
    assert [(await placed.now(item)).state for item in (*placed_twice, removal)] == ["removed"] * 3


async def test_a_removal_that_fails_leaves_the_placement_on_record(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    removal = await placed.unplace()
    await _finish(placed, {"status": "failed", "error": {"code": "io_error", "message": "read-only file system"}})
    ended = await placed.now(removal)
    assert ended.placement_id == placement.placement_id
    assert (ended.state, ended.error) == ("placed", TaskError(code="io_error", message="read-only file system"))
    again = await placed.unplace()
    assert (again.state, again.error) == ("removing", None)


async def test_a_removal_of_what_was_not_placed_fails_with_the_error_of_the_node(placed: Placing) -> None:
    removal = await placed.unplace()
    await _finish(placed, {"status": "failed", "error": {"code": "unknown_type", "message": "an older agent"}})
    ended = await placed.now(removal)
    assert (ended.state, ended.error) == ("failed", TaskError(code="unknown_type", message="an older agent"))


async def test_content_that_is_placed_after_the_request_to_remove_it_stays(placed: Placing) -> None:
    removal = await placed.unplace()
    placed.world.clock.forward(1)
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"removed": []}})
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    assert [(await placed.now(item)).state for item in (removal, placement)] == ["removed", "placed"]


async def test_a_revoked_artifact_can_be_removed(placed: Placing) -> None:
    where = {"artifact_id": placed.artifact.artifact_id}
    await placed.world.call(artifacts.REVOKE, {"reason": "the build machine was broken into"}, **where)
    assert (await placed.unplace()).state == "removing"


async def test_only_the_holder_of_the_newest_claim_removes_and_only_from_machines_of_the_instance(
    placed: Placing,
) -> None:
    with pytest.raises(errors.LeaseLost):
        await placed.unplace(epoch=placed.held.claim.epoch - 1)
    with pytest.raises(errors.PermissionDenied):
        await placed.unplace(token=await placed.world.service_account("other"))
    person = await placed.world.person("ann", "project_admin", placed.world.project_id)
    with pytest.raises(errors.PermissionDenied):
        await placed.unplace(token=person.token)
    _, spare = await allocated(placed.world, "spare")
    with pytest.raises(errors.PermissionDenied, match="does not belong"):
        await placed.unplace(allocation_id=spare)
    assert await placed.world.next_task(placed.node) is None


async def test_the_release_of_a_machine_ends_placements_and_removals(placed: Placing) -> None:
    placement = await placed.place()
    await _finish(placed, {"status": "succeeded", "result": {"path": "/there"}})
    removal = await placed.unplace()
    where = {"allocation_id": placed.allocation_id}
    await placed.world.call(capacity.ALLOCATION_RELEASE_USED, {"reason": "needed elsewhere"}, **where)
    assert [(await placed.now(item)).state for item in (placement, removal)] == ["removed", "removed"]
    task = await placed.world.next_task(placed.node)
    assert task is not None
    assert task["type"] == "allocation.release"


def test_the_time_to_fetch_grows_with_the_size() -> None:
    assert rules.fetch_s_max(5, 120) == 120
    assert rules.fetch_s_max(2 << 30, 120) == 120 + 512


async def test_a_success_without_a_path_counts_as_failed(placed: Placing) -> None:
    silent = rules.with_result(await placed.place(), TaskResult(status="succeeded"), placed.world.clock())
    assert silent.error is not None
    assert (silent.state, silent.error.code) == ("failed", "no_reason")


async def test_a_placement_that_has_ended_never_moves_again(placed: Placing) -> None:
    now = placed.world.clock()
    failed = rules.failed(await placed.place(), TaskError(code="disk_full", message="The disk is full."), now)
    with pytest.raises(lifecycles.IllegalMove, match="from failed to placed"):
        rules.with_result(failed, TaskResult(status="succeeded", result={"path": "/there"}), now)


async def _finish(placed: Placing, result: dict[str, Any]) -> None:
    task = await placed.world.next_task(placed.node)
    assert task is not None
    await placed.world.call(node.TASK_RESULT, result, token=placed.node.token, task_id=task["task_id"])


def _refusal(answer: Any) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["code"], answer.json()["message"]
