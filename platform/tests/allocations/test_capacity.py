"""Nodes enrol once, pull signed tasks of their own only, and carry allocations through their life."""

import base64

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from gpuaas_contract import capacity, errors, node
from gpuaas_platform import server
from platform_world import World, enrol_body, login_body


async def test_an_enrolment_token_works_once(world: World) -> None:
    token = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    key = Ed25519PrivateKey.generate()
    first = await world.call(node.ENROL, enrol_body(token.token, "n1", key), token="")
    again = await world.call(node.ENROL, enrol_body(token.token, "n1", key), token="")
    assert first == again
    with pytest.raises(errors.CredentialsInvalid):
        await world.call(node.ENROL, enrol_body(token.token, "n1", Ed25519PrivateKey.generate()), token="")


async def test_an_enrolment_token_expires_and_names_its_node(world: World) -> None:
    token = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    key = Ed25519PrivateKey.generate()
    with pytest.raises(errors.CredentialsInvalid):
        await world.call(node.ENROL, enrol_body(token.token, "n2", key), token="")
    world.clock.forward(3601)
    with pytest.raises(errors.CredentialsInvalid):
        await world.call(node.ENROL, enrol_body(token.token, "n1", key), token="")


async def test_an_enrolment_token_is_deleted_once_it_expired(world: World) -> None:
    async def stored() -> list[str]:
        return [row[0] for row in await world.site.database.reader.all("SELECT name FROM enrolment_tokens")]

    for name, ttl_s in (("n1", 60), ("n2", 3600)):
        await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name, ttl_s=ttl_s))
    writes: list[int] = []
    world.site.database.on_group = lambda size, _: writes.append(size)
    await server.forget_old_rows(world.site)
    assert (sorted(await stored()), writes) == (["n1", "n2"], [])
    world.clock.forward(61)
    await server.forget_old_rows(world.site)
    assert await stored() == ["n2"]


async def test_a_node_that_enrols_again_keeps_its_sku_and_region_unless_the_token_names_others(world: World) -> None:
    await world.node("n1", sku="h100x8", region="west")
    for sku, kept in (("", ("h100x8", "west")), ("l40s", ("l40s", "west"))):
        token = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1", sku=sku))
        await world.call(node.ENROL, enrol_body(token.token, "n1", Ed25519PrivateKey.generate()), token="")
        (n1,) = (await world.call(capacity.NODE_LIST, query={"name": "n1"})).items
        assert (n1.sku, n1.region) == kept


async def test_a_node_whose_token_names_no_sku_and_region_gets_the_defaults(world: World) -> None:
    token = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    await world.call(node.ENROL, enrol_body(token.token, "n1", Ed25519PrivateKey.generate()), token="")
    (n1,) = (await world.call(capacity.NODE_LIST)).items
    assert (n1.sku, n1.region) == ("standard", "local")


async def test_a_nodes_proof_is_fresh_its_own_and_used_once(world: World) -> None:
    n1 = await world.node("n1")
    now_s = int(world.clock().timestamp())
    await world.call(node.NODE_TOKEN, login_body(n1, now_s, "once"), token="")
    stranger = await world.node("n2")
    forged = msgspec.structs.replace(login_body(stranger, now_s, "abc"), node_id=n1.node_id)
    for body in (login_body(n1, now_s, "once"), login_body(n1, now_s - 900, "old"), forged):
        with pytest.raises(errors.CredentialsInvalid):
            await world.call(node.NODE_TOKEN, body, token="")


async def test_a_task_is_signed_and_reaches_its_own_node_only(world: World) -> None:
    mine, other = await world.node("n1"), await world.node("n2")
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name="n1"))
    answer = await world.call(node.TASK_NEXT, token=mine.token)
    assert answer.task is not None
    trust = await world.call(node.TRUST, token="")
    key = load_pem_public_key(trust.task_public_key_pem.encode())
    assert isinstance(key, Ed25519PublicKey)
    key.verify(base64.b64decode(answer.task.signature), answer.task.payload.encode())
    assert (await world.call(node.TASK_NEXT, token=other.token)).task is None
    task = msgspec.json.decode(answer.task.payload)
    with pytest.raises(errors.NotFound):
        await world.call(node.TASK_RESULT, {"status": "succeeded"}, token=other.token, task_id=task["task_id"])


async def test_an_allocation_lives_from_request_to_release_and_the_node_is_free_again(world: World) -> None:
    n1 = await world.node("n1")
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
    assert (created.status, created.node_name) == ("provisioning", "n1")
    await world.finish_task(n1)
    with pytest.raises(errors.NoCapacity) as full:
        await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())
    assert full.value.details["why_not"] == {"n1": "it is allocated"}
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=created.allocation_id)
    await world.finish_task(n1)
    released = await world.call(capacity.ALLOCATION_GET, allocation_id=created.allocation_id)
    assert released.status == "released"
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())


async def test_a_release_that_failed_can_be_asked_for_again(world: World) -> None:
    n1 = await world.node("n1")
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
    await world.finish_task(n1)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=created.allocation_id)
    world.clock.forward(world.site.settings.task_ttl_s + 1)
    await world.sweep()
    stuck = await world.call(capacity.ALLOCATION_GET, allocation_id=created.allocation_id)
    assert (stuck.status, "did not answer" in stuck.status_reason) == ("release_failed", True)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=created.allocation_id)
    await world.finish_task(n1)
    healed = await world.call(capacity.ALLOCATION_GET, allocation_id=created.allocation_id)
    assert healed.status == "released"


async def test_a_result_reported_twice_counts_once(world: World) -> None:
    n1 = await world.node("n1")
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation())).items
    task = await world.next_task(n1)
    assert task is not None
    for status in ("succeeded", "failed"):
        await world.call(node.TASK_RESULT, {"status": status}, token=n1.token, task_id=task["task_id"])
    allocation = await world.call(capacity.ALLOCATION_GET, allocation_id=created.allocation_id)
    assert allocation.status == "active"
