"""A remove or decommission that has ended has a statement of what it removed and left, which the platform signs."""

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import errors
from gpuaas_contract.operations import OPERATION_FORCE_COMPLETE, OPERATION_GET, Leftover
from gpuaas_contract.statements import STATEMENT_GET, STATEMENT_KEY_GET, SignedStatement, StatedPart
from gpuaas_platform.access.secrets import reconcile
from gpuaas_sdk import statements
from platform_world import World
from scripted_controller import Cluster, evidence

REMOVED = ["service queue", "3 packages"]
LEFT = [Leftover(what="/data", why="it existed before")]


async def _statement(world: World, operation_id: str) -> SignedStatement:
    return await world.call(STATEMENT_GET, operation_id=operation_id)


async def _removed(world: World) -> tuple[Cluster, str, str]:
    """A hand was removed, with lines for the statement."""
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    operation = await cluster.operate("remove", hand, reason="smaller")
    held = await cluster.controller.take()
    allocation_id = (await cluster.member(hand)).allocation_id
    await held.enter(allocation_id)
    await held.report(hand, "removing", evidence=evidence(world.clock()), removed=REMOVED)
    await held.report(hand, "removed", left=msgspec.to_builtins(LEFT))
    await held.complete()
    return cluster, operation.operation_id, hand


def _part(signed: SignedStatement, what: str) -> StatedPart:
    return next(part for part in signed.statement.platform if part.what == what)


async def test_a_statement_has_the_lines_that_the_controller_reported_and_what_the_platform_kept(world: World) -> None:
    cluster, operation_id, hand = await _removed(world)
    signed = await _statement(world, operation_id)
    assert [(member.member_id, member.status) for member in signed.statement.members] == [(hand, "removed")]
    assert signed.statement.members[0].removed == REMOVED
    assert signed.statement.members[0].left == LEFT
    assert signed.statement.members[0].evidence is not None
    assert (signed.statement.kind, signed.statement.status, signed.statement.reason) == (
        "remove",
        "succeeded",
        "smaller",
    )
    allocation = (await cluster.member(hand)).allocation_id
    assert allocation in _part(signed, "allocations").left[0].what
    assert "belongs to the project" in _part(signed, "allocations").left[0].why
    access = _part(signed, "machine access of the app")
    assert access.removed == 0
    assert "certificate" in access.left[0].what


async def test_the_platforms_public_key_verifies_a_statement_and_no_other_key_does(world: World) -> None:
    _, operation_id, _ = await _removed(world)
    signed = await _statement(world, operation_id)
    key = await world.call(STATEMENT_KEY_GET, token="")
    assert signed.key_id == key.key_id
    assert statements.verify(signed, key.public_key_pem) == signed.statement
    other = Ed25519PrivateKey.generate().public_key()
    pem = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(statements.NotVerified):
        statements.verify(signed, pem)


async def test_a_changed_statement_is_not_verified(world: World) -> None:
    _, operation_id, _ = await _removed(world)
    signed, key = await _statement(world, operation_id), await world.call(STATEMENT_KEY_GET, token="")
    rewritten = signed.document.replace("/data", "/nothing")
    for forged in (
        msgspec.structs.replace(signed, document=rewritten),
        msgspec.structs.replace(signed, statement=msgspec.structs.replace(signed.statement, reason="another")),
        msgspec.structs.replace(signed, signature="no base64"),
    ):
        with pytest.raises(statements.NotVerified):
            statements.verify(forged, key.public_key_pem)


async def test_a_decommission_states_every_member_and_the_secrets_that_were_destroyed(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.add(*await cluster.machines(1))
    held = await cluster.controller.take()
    await held.issue()
    await held.bring(held.member_ids)
    await held.complete()
    members = sorted(await cluster.members())
    operation = await cluster.change("decommission")
    await cluster.controller.carry_out()
    assert _part(await _statement(world, operation.operation_id), "runtime secrets").left
    await reconcile.end_secrets_of_deleted(world.site)
    signed = await _statement(world, operation.operation_id)
    assert sorted(member.member_id for member in signed.statement.members) == members
    assert (_part(signed, "runtime secrets").removed, _part(signed, "runtime secrets").left) == (1, [])


async def test_a_member_without_a_report_of_its_controller_is_not_stated_as_clean(world: World) -> None:
    cluster = await Cluster.running(world)
    operation = await cluster.change("decommission")
    held = await cluster.controller.take()
    await held.fail("needs_operator")
    path = {"operation_id": operation.operation_id}
    await world.call(OPERATION_FORCE_COMPLETE, {"reason": "checked by hand"}, **path)
    signed = await _statement(world, operation.operation_id)
    assert signed.statement.members
    for member in signed.statement.members:
        assert member.removed == []
        assert "not known to be removed" in member.left[0].why


async def test_only_a_remove_or_decommission_that_has_ended_has_a_statement(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    drain = await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    with pytest.raises(errors.StatementUnavailable, match="Only a decommission or remove"):
        await _statement(world, drain.operation_id)
    removal = await cluster.operate("remove", hand)
    with pytest.raises(errors.StatementUnavailable, match="has not ended"):
        await _statement(world, removal.operation_id)
    assert (await world.call(OPERATION_GET, operation_id=removal.operation_id)).targets[0].removed == []
