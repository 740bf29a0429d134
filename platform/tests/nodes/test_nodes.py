"""Operators and their nodes: who is admitted, what is shown, who is lost, and how a node is taken out of service."""

import asyncio
import uuid
from typing import Any

import httpx
import msgspec
import old_store
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import capacity, errors, events, node
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, Node, World, enrol_body, login_body

REASON = {"reason": "a fan is broken"}
GPUS = [capacity.Gpu(index=index, type=kind, device=f"/dev/gpu{index}") for index, kind in enumerate(("h100", "l40s"))]


async def beat(world: World, gpu_node: Node, **changes: Any) -> None:
    facts = capacity.Facts(hostname=gpu_node.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    report = {"agent_version": "1", "boot_id": "b", "facts": facts, **changes}
    await world.call(node.STATUS, report, token=gpu_node.token)


async def pass_time(world: World, seconds: float, *, speaking: tuple[Node, ...] = ()) -> None:
    """Let time pass while the loop runs and the `speaking` nodes send heartbeats."""
    settings = world.site.settings
    for _ in range(int(seconds / settings.sweep_interval_s)):
        world.clock.forward(settings.sweep_interval_s)
        for gpu_node in speaking:
            await beat(world, gpu_node)
        await world.sweep()


async def state(world: World, gpu_node: Node) -> capacity.Node:
    return await world.call(capacity.NODE_GET, node_id=gpu_node.node_id)


async def event_payloads(world: World, kind: str = "capacity.node.changed") -> list[dict[str, Any]]:
    """Return the payloads of all events of one type, oldest first, of every owner."""
    rows = await world.site.database.reader.all("SELECT document FROM events ORDER BY cursor")
    recorded = [msgspec.json.decode(row[0], type=events.Event) for row in rows]
    return [event.payload for event in recorded if event.type == kind]


async def test_an_enrolment_token_is_refused_when_wrong_used_or_expired(world: World) -> None:
    key, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    used = await world.call(capacity.ENROLMENT_CREATE, {"name": "n1"})
    await world.call(node.ENROL, enrol_body(used.token, "n1", key), token="")
    late = await world.call(capacity.ENROLMENT_CREATE, {"name": "n2", "ttl_s": 60})
    world.clock.forward(61)
    for secret, name in ((used.token, "n1"), (late.token, "n2"), (used.token[:-1] + "x", "n1"), ("", "n1")):
        answer = await world.send(node.ENROL, enrol_body(secret, name, stranger), token="")
        assert (answer.status_code, answer.json()["code"]) == (401, "credentials_invalid")
        assert f"gpuaas node token {name}" in answer.json()["fix"]
    assert [gpu_node.name for gpu_node in (await world.call(capacity.NODE_LIST)).items] == ["n1"]


async def test_a_proof_is_refused_the_second_time_even_after_many_others(world: World) -> None:
    n1 = await world.node("n1")
    now_s = int(world.clock().timestamp())
    proofs = [login_body(n1, now_s, f"nonce-{number}") for number in range(3)]
    for proof in proofs:
        await world.call(node.NODE_TOKEN, proof, token="")
    for proof in proofs:
        with pytest.raises(errors.CredentialsInvalid):
            await world.call(node.NODE_TOKEN, proof, token="")


async def test_a_node_that_enrols_again_keeps_its_id_and_its_old_identity_ends(world: World) -> None:
    old = await world.node("n1")
    await world.call(capacity.NODE_CORDON, REASON, node_id=old.node_id)
    new = await world.node("n1")
    assert new.node_id == old.node_id
    assert (await world.send(node.TASK_NEXT, token=old.token)).status_code == 401
    with pytest.raises(errors.CredentialsInvalid):
        await world.node_login(old)
    assert (await state(world, new)).admin_state == "cordoned"


async def test_a_heartbeat_shows_what_the_node_is(world: World) -> None:
    n1 = await world.node("n1")
    facts = capacity.Facts(
        hostname="n1",
        cpus=64,
        memory_mb=512_000,
        gpus=[*GPUS, capacity.Gpu(index=2, type="h100", device="/dev/gpu2")],
        os="Debian GNU/Linux 13",
        kernel="6.12",
        architecture="x86_64",
        disk_gb=3_840,
        addresses=["10.0.0.5"],
    )
    await beat(world, n1, facts=facts, boot_id="boot-1", agent_version="1.2.3", agent_sha256="ab" * 32)
    shown = await state(world, n1)
    assert (shown.facts, shown.gpus_by_type) == (facts, {"h100": 2, "l40s": 1})
    assert (shown.boot_id, shown.agent_version, shown.agent_sha256) == ("boot-1", "1.2.3", "ab" * 32)


async def test_a_heartbeat_of_an_agent_on_trial_changes_only_the_last_seen_time(world: World) -> None:
    n1 = await world.node("n1")
    await beat(world, n1, agent_version="1")
    before = await state(world, n1)
    world.clock.forward(3)
    await beat(world, n1, agent_version="2", boot_id="other", agent_sha256="cd" * 32, trial=True)
    assert await state(world, n1) == msgspec.structs.replace(before, last_seen_at=world.clock())


async def test_a_heartbeat_that_repeats_the_last_one_changes_only_the_last_seen_time(world: World) -> None:
    n1 = await world.node("n1")
    await beat(world, n1)
    before = await state(world, n1)
    world.clock.forward(3)
    await beat(world, n1)
    assert await state(world, n1) == msgspec.structs.replace(before, last_seen_at=world.clock())


async def test_the_heartbeats_of_many_nodes_are_each_recorded(world: World) -> None:
    nodes = [await world.node(f"n{number}") for number in range(5)]
    for boot_id in ("first", "first", "second"):
        world.clock.forward(3)
        await asyncio.gather(*(beat(world, gpu_node, boot_id=f"{boot_id}-{gpu_node.name}") for gpu_node in nodes))
    shown = [await state(world, gpu_node) for gpu_node in nodes]
    assert [(seen.boot_id, seen.last_seen_at) for seen in shown] == [
        (f"second-{gpu_node.name}", world.clock()) for gpu_node in nodes
    ]


async def test_a_lost_node_that_repeats_its_last_heartbeat_is_ready_again(world: World) -> None:
    n1, speaking = await world.node("n1"), await world.node("n2")
    await beat(world, n1)
    await beat(world, n1)
    await pass_time(world, world.site.settings.node_lost_after_s + 2, speaking=(speaking,))
    assert (await state(world, n1)).status == "lost"
    await beat(world, n1)
    assert (await state(world, n1)).status == "ready"


async def test_events_report_only_what_changed_in_a_heartbeat(world: World) -> None:
    n1 = await world.node("n1")
    with_gpus = capacity.Facts(hostname="n1", cpus=4, memory_mb=1000, gpus=GPUS)
    for changes in ({}, {}, {"boot_id": "b2"}, {"boot_id": "b2", "agent_version": "2", "facts": with_gpus}):
        await beat(world, n1, **changes)
    assert [payload["reason"] for payload in await event_payloads(world)] == [
        "the node enrolled",
        "it was rebooted",
        "its agent changed from 1 to 2; its GPUs changed from none to 1 h100, 1 l40s",
    ]


async def test_an_allocation_is_reached_where_its_node_is_now(world: World) -> None:
    allocation = await world.allocation("n1")
    moved = capacity.Facts(hostname="n1", cpus=4, memory_mb=1000, addresses=["127.0.0.7"])
    await beat(world, world.nodes["n1"], facts=moved)
    shown = await world.call(capacity.ALLOCATION_GET, allocation_id=allocation.allocation_id)
    granted = await world.machine_access(world.token, allocation.allocation_id)
    assert (shown.address, granted.host) == ("127.0.0.7", "127.0.0.7")
    assert "its address changed from 127.0.0.1 to 127.0.0.7" in (await event_payloads(world))[-1]["reason"]


async def test_a_silent_node_is_lost_after_the_missed_heartbeats_and_comes_back_by_itself(world: World) -> None:
    silent, speaking = await world.node("n1"), await world.node("n2")
    await pass_time(world, world.site.settings.node_lost_after_s, speaking=(speaking,))
    assert (await state(world, silent)).status == "ready"
    await pass_time(world, 2, speaking=(speaking,))
    assert [(await state(world, gpu_node)).status for gpu_node in (silent, speaking)] == ["lost", "ready"]
    await beat(world, silent)
    assert (await state(world, silent)).status == "ready"
    changes = [payload for payload in await event_payloads(world) if payload["node_id"] == silent.node_id]
    assert [(change["status"], change["reason"]) for change in changes] == [
        ("ready", "the node enrolled"),
        ("lost", "no heartbeat for 20 s"),
        ("ready", "heartbeats arrive again"),
    ]


async def test_a_platform_that_was_away_gives_every_node_time_to_speak(world: World) -> None:
    nodes = [await world.node(f"n{number}") for number in range(3)]
    world.clock.forward(600)
    async with server.open_site(world.site.settings, world.clock) as restarted:
        away, world.site = world.site, restarted
        await world.sweep()
        assert {(await state(world, gpu_node)).status for gpu_node in nodes} == {"ready"}
        await pass_time(world, restarted.settings.node_lost_after_s - 1, speaking=(nodes[0],))
        assert {(await state(world, gpu_node)).status for gpu_node in nodes} == {"ready"}
        await pass_time(world, 2, speaking=(nodes[0],))
        assert [(await state(world, gpu_node)).status for gpu_node in nodes] == ["ready", "lost", "lost"]
        world.site = away


async def test_a_platform_that_was_paused_marks_no_node_as_lost(world: World) -> None:
    n1 = await world.node("n1")
    await pass_time(world, 30, speaking=(n1,))
    world.clock.forward(300)
    await world.sweep()
    assert (await state(world, n1)).status == "ready"


async def test_nodes_are_listed_by_what_they_are(world: World) -> None:
    first = await world.node("a", sku="gpu-8", region="north")
    second = await world.node("b", sku="gpu-8", region="south")
    await world.node("c")
    await world.call(capacity.NODE_DRAIN, REASON, node_id=second.node_id)

    async def names(**query: Any) -> list[str]:
        return [gpu_node.name for gpu_node in (await world.call(capacity.NODE_LIST, query=query)).items]

    assert await names() == ["a", "b", "c"]
    assert await names(sku="gpu-8") == ["a", "b"]
    assert await names(sku="gpu-8", region="north") == ["a"]
    assert await names(admin_state="draining") == ["b"]
    assert await names(name="c", status="ready") == ["c"]
    assert await names(status="lost") == []
    await world.call(capacity.NODE_RETIRE, REASON, node_id=first.node_id)
    assert await names() == ["b", "c"]
    assert await names(admin_state="retired") == ["a"]


async def test_sku_and_region_change_only_with_a_reason_and_a_current_etag(world: World) -> None:
    n1 = await world.node("n1")
    wanted = {"sku": "gpu-8", "region": "north", "reason": "moved to the new hall"}
    read = await world.send(capacity.NODE_GET, node_id=n1.node_id)
    tag = {"If-Match": read.headers["ETag"]}
    changed = await world.call(capacity.NODE_SET, wanted, headers=tag, node_id=n1.node_id)
    assert (changed.sku, changed.region, changed.revision) == ("gpu-8", "north", 2)
    with pytest.raises(errors.PreconditionFailed):
        await world.call(capacity.NODE_SET, {**wanted, "sku": "x"}, headers=tag, node_id=n1.node_id)
    with pytest.raises(errors.ValidationFailed):
        await world.call(capacity.NODE_SET, {**wanted, "reason": " "}, node_id=n1.node_id)
    assert (await event_payloads(world))[-1]["reason"] == "moved to the new hall"


async def test_a_heartbeat_does_not_invalidate_what_an_operator_has_read(world: World) -> None:
    n1 = await world.node("n1")
    tag = (await world.send(capacity.NODE_GET, node_id=n1.node_id)).headers["ETag"]
    await beat(world, n1, boot_id="another")
    body = {"sku": "s", "region": "r", "reason": "sorted"}
    await world.call(capacity.NODE_SET, body, headers={"If-Match": tag}, node_id=n1.node_id)


async def test_a_cordoned_node_gets_no_new_allocation_until_it_is_uncordoned(world: World) -> None:
    n1 = await world.node("n1")
    cordoned = await world.call(capacity.NODE_CORDON, REASON, node_id=n1.node_id)
    assert (cordoned.admin_state, cordoned.admin_reason, cordoned.status) == ("cordoned", REASON["reason"], "ready")
    with pytest.raises(errors.NoCapacity, match="cordoned"):
        await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    assert await world.call(capacity.NODE_CORDON, {"reason": "again"}, node_id=n1.node_id) == cordoned
    await world.call(capacity.NODE_UNCORDON, {"reason": "the fan is new"}, node_id=n1.node_id)
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    assert [payload["admin_state"] for payload in await event_payloads(world)] == ["active", "cordoned", "active"]


async def test_the_admin_state_does_not_depend_on_whether_heartbeats_arrive(world: World) -> None:
    n1 = await world.node("n1")
    await world.call(capacity.NODE_CORDON, REASON, node_id=n1.node_id)
    await pass_time(world, world.site.settings.node_lost_after_s + 2)
    shown = await state(world, n1)
    assert (shown.status, shown.admin_state) == ("lost", "cordoned")
    await beat(world, n1)
    shown = await state(world, n1)
    assert (shown.status, shown.admin_state) == ("ready", "cordoned")


async def test_draining_shows_whose_work_is_there_and_asks_its_owner_to_move(world: World) -> None:
    allocation = await world.allocation("n1")
    drained = await world.call(capacity.NODE_DRAIN, REASON, node_id=allocation.node_id)
    assert drained.node.admin_state == "draining"
    (shown,) = drained.allocations
    assert (shown.allocation_id, shown.project_id) == (allocation.allocation_id, world.project_id)
    listed = await world.call(capacity.NODE_ALLOCATIONS, node_id=allocation.node_id)
    assert listed.items == drained.allocations
    asked = (await world.call(events.EVENT_LIST, query={"limit": 500})).items[-1]
    assert (asked.type, asked.payload["reason"]) == ("capacity.allocation.draining", REASON["reason"])
    with pytest.raises(errors.NoCapacity, match="draining"):
        await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name="n1"))


async def test_a_node_with_an_allocation_is_not_retired_and_the_allocation_is_named(world: World) -> None:
    allocation = await world.allocation("n1")
    with pytest.raises(errors.Conflict, match=allocation.allocation_id) as refused:
        await world.call(capacity.NODE_RETIRE, REASON, node_id=allocation.node_id)
    assert refused.value.details == {"allocation_ids": [allocation.allocation_id]}
    assert world.project_id in refused.value.message


async def test_a_retired_nodes_identity_is_refused_from_the_next_call_on(world: World) -> None:
    n1 = await world.node("n1")
    await world.call(capacity.NODE_RETIRE, REASON, node_id=n1.node_id)
    routes: tuple[Endpoint[Any, Any], ...] = (node.STATUS, node.TASK_NEXT, node.TASK_RESULT, node.AGENT_FILE)
    for endpoint in routes:
        answer = await world.send(endpoint, {}, token=n1.token, task_id="task_0", sha256="0" * 64)
        assert answer.status_code == 401
    with pytest.raises(errors.CredentialsInvalid):
        await world.node_login(n1)


async def test_retiring_is_final_and_the_name_is_free_for_a_new_node(world: World) -> None:
    old = await world.node("n1")
    await world.call(capacity.NODE_RETIRE, REASON, node_id=old.node_id)
    moves: tuple[Endpoint[Any, Any], ...] = (capacity.NODE_UNCORDON, capacity.NODE_CORDON, capacity.NODE_DRAIN)
    for endpoint in moves:
        with pytest.raises(errors.Conflict, match="retired"):
            await world.call(endpoint, REASON, node_id=old.node_id)
    with pytest.raises(errors.Conflict, match="retired"):
        await world.call(capacity.NODE_SET, {"sku": "s", "region": "r", **REASON}, node_id=old.node_id)
    new = await world.node("n1")
    assert new.node_id != old.node_id
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name="n1"))).items
    assert created.node_id == new.node_id
    await pass_time(world, world.site.settings.node_lost_after_s + 2, speaking=(new,))
    assert (await state(world, old)).status == "ready", "a retired node is not expected to send heartbeats"


@pytest.mark.parametrize("endpoint", [capacity.NODE_CORDON, capacity.NODE_DRAIN, capacity.NODE_RETIRE])
async def test_the_audit_log_shows_the_reason_of_a_change(world: World, endpoint: Any) -> None:
    n1 = await world.node("n1")
    reason = f"because {uuid.uuid4().hex}"
    await world.call(endpoint, {"reason": reason}, node_id=n1.node_id)
    rows = await world.site.database.reader.all("SELECT document FROM audit ORDER BY cursor DESC LIMIT 1")
    assert endpoint.name in rows[0][0]
    assert reason in rows[0][0]


async def test_nodes_of_the_first_release_are_migrated_and_still_accepted(
    settings: Settings, clock: FakeClock, database_url: str
) -> None:
    settings.data_dir.mkdir()
    key = Ed25519PrivateKey.generate()
    public = enrol_body("", "n1", key).public_key_pem
    document = (
        '{"node_id":"node_1","name":"n1","region":"north","sku":"gpu-8","status":"lost","address":"10.0.0.5",'
        '"ssh_host_public_key":"","facts":{"hostname":"n1","cpus":1,"memory_mb":1},"agent_version":"0.1.0",'
        '"boot_id":"b","enrolled_at":"2026-01-01T00:00:00Z","last_seen_at":"2026-01-01T00:00:00Z","allocation_id":null}'
    )
    await old_store.first_schema(
        settings.data_dir / "gpuaas.sqlite",
        database_url,
        f"INSERT INTO nodes VALUES ('node_1', 'n1', 'lost', 0, '{document}')",
        f"INSERT INTO node_keys VALUES ('node_1', '{public}', 'nonce')",
        "INSERT INTO enrolment_tokens VALUES ('digest', 'n1', 'gpu-8', 'north', 1, 'key', 'node_1')",
    )
    async with server.open_site(settings, clock) as site:
        transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            world = await World.make(site, clock, client)
            old = Node("node_1", "n1", key, "")
            old.token = await world.node_login(old)
            await beat(world, old)
            query = {"sku": "gpu-8", "region": "north"}
            (migrated,) = (await world.call(capacity.NODE_LIST, query=query)).items
    assert (migrated.node_id, migrated.status, migrated.admin_state, migrated.revision) == (
        "node_1",
        "ready",
        "active",
        1,
    )
