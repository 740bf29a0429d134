"""Start attempts to sanitise nodes, record their progress, and record what operators declare as sanitised."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.capacity import ChangeNode, Node
from gpuaas_contract.paths import NodePath

from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.nodes import enrolment
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import store as nodes_store
from gpuaas_platform.nodes.sanitise import rules, store
from gpuaas_platform.nodes.sanitise.port import Enrolment, Order, Progress


async def sanitise(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> Node:
    call.details["reason"] = body.reason
    node = await nodes.get(tx, call)
    if not call.site.settings.sanitise_url:
        declare = f"gpuaas node mark-sanitised {node.name} --reason REASON"
        fix = f"Reinstall the machine, enrol it again (gpuaas node token {node.name}), then: {declare}"
        raise errors.Conflict("The platform has no provisioner (--sanitise-url).", fix=fix)
    return await _begin(tx, call.site, call.origin, node, body.reason)


async def mark_sanitised(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> Node:
    call.details["reason"] = body.reason
    before = await nodes.get(tx, call)
    after = rules.declared(before, call.caller.actor_id, body.reason, call.now)
    return await nodes.save(tx, call.origin, before, after, f"sanitised: {body.reason}")


async def is_any_due(reader: db.Reader, site: Site, now: datetime.datetime) -> bool:
    return bool(await store.due(reader, _released_before(site, now)))


async def begin_due(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Start an attempt for each free node that its last project has not taken again in time."""
    for node in await store.due(tx, _released_before(site, origin.now)):
        await _begin(tx, site, origin, node, rules.RELEASED)


async def make_order(tx: db.Tx, site: Site, node: Node) -> Order | None:
    """Return the order for the provisioner, with a fresh enrolment token; None if the attempt has ended since."""
    attempt, present = node.sanitising, await nodes.by_id(tx, node.node_id)
    if attempt is None or present is None or not _is_same(attempt.attempt_id, present):
        return None
    token = ids.new_secret("enrol")
    await nodes_store.add_token(
        tx, ids.digest(token), node.name, "", "", clock.micros(attempt.ends_at), attempt_id=attempt.attempt_id
    )
    return Order(
        attempt_id=attempt.attempt_id,
        node_id=node.node_id,
        node_name=node.name,
        address=node.address,
        enrolment=Enrolment(token=token, ca_sha256=site.ca_sha256),
    )


async def note(tx: db.Tx, origin: Origin, node_id: str, attempt_id: str, progress: Progress, by: str) -> None:
    """Record an answer of the provisioner, unless the attempt has ended since."""
    before = await nodes.by_id(tx, node_id)
    if before is not None and _is_same(attempt_id, before):
        after = rules.progressed(before, progress, by, origin.now)
        await nodes.save(tx, origin, before, after, rules.news(after))


async def _begin(tx: db.Tx, site: Site, origin: Origin, node: Node, reason: str) -> Node:
    timeout_s = site.settings.sanitise_timeout_s
    after = rules.begun(node, ids.new("sanitise"), reason=reason, now=origin.now, timeout_s=timeout_s)
    await enrolment.withdraw(tx, node.node_id)
    tx.wake(nodes.SANITISE)
    return await nodes.save(tx, origin, node, after, f"sanitising: {reason}")


def _is_same(attempt_id: str, node: Node) -> bool:
    return node.sanitising is not None and node.sanitising.attempt_id == attempt_id


def _released_before(site: Site, now: datetime.datetime) -> int:
    return clock.micros(now - datetime.timedelta(seconds=site.settings.sanitise_after_s))
