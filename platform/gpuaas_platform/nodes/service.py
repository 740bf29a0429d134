"""Admit nodes, hear their heartbeats, hand them signed tasks. Serves the agent's routes; `service` queues the tasks."""

import base64
import datetime
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from gpuaas_contract import errors, node
from gpuaas_contract.capacity import CreateEnrolmentToken, EnrolmentToken, Node
from gpuaas_contract.event_types import NodeChanged

from gpuaas_platform.allocations import changes as allocation_changes
from gpuaas_platform.allocations import rules, store
from gpuaas_platform.allocations.keys import store as allocation_keys_store
from gpuaas_platform.call import Call, Caller, Origin, Site
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.nodes import presence as node_hearing
from gpuaas_platform.nodes import rules as node_rules
from gpuaas_platform.nodes import store as node_store
from gpuaas_platform.record import service as record

_LOGIN_SKEW_S = 300
_FIRST_SKU, _FIRST_REGION = "standard", "local"


async def create_token(tx: db.Tx, call: Call, body: CreateEnrolmentToken) -> EnrolmentToken:
    secret = ids.new_secret("enrol")
    expires_at = call.now + datetime.timedelta(seconds=body.ttl_s)
    await store.add_enrolment_token(tx, ids.digest(secret), body.name, body.sku, body.region, clock.micros(expires_at))
    return EnrolmentToken(token=secret, name=body.name, ca_sha256=call.site.ca_sha256, expires_at=expires_at)


async def enrol(tx: db.Tx, call: Call, body: node.Enrol) -> node.Enrolled:
    """A token works once. The same node asking again with it (its answer was lost) gets its id again."""
    token = await store.enrolment_token(tx, ids.digest(body.token))
    if token is None or token["expires_at"] <= clock.micros(call.now) or token["name"] != body.name:
        raise errors.CredentialsInvalid("This enrolment token is not valid for this node.")
    if token["used_by"]:
        if token["used_by"] != body.public_key_pem:
            raise errors.CredentialsInvalid("This enrolment token was used.")
        return node.Enrolled(node_id=token["node_id"])
    _public_key(body.public_key_pem)
    known = await store.NODES.find(tx, "name = $1 AND admin_state <> 'retired'", body.name)
    enrolled = _enrolled_node(call, body, token, known[0] if known else None)
    await (store.NODES.save if known else store.NODES.insert)(tx, enrolled)
    if known:
        await _move_allocation(tx, known[0], enrolled)
        await _prepare_again(tx, call, enrolled)
    await store.set_node_key(tx, enrolled.node_id, body.public_key_pem)
    await token_store.end_tokens_of(tx, enrolled.node_id)
    await store.use_enrolment_token(tx, ids.digest(body.token), body.public_key_pem, enrolled.node_id)
    await tell(tx, call.origin, enrolled, "it enrolled anew" if known else "it enrolled")
    return node.Enrolled(node_id=enrolled.node_id)


async def login(tx: db.Tx, call: Call, body: node.NodeLogin) -> node.NodeToken:
    key = await store.node_key(tx, body.node_id)
    said = f"gpuaas-node-token\n{body.node_id}\n{body.timestamp_s}\n{body.nonce}"
    fresh = abs(call.now.timestamp() - body.timestamp_s) <= _LOGIN_SKEW_S
    if key is None or not fresh:
        raise errors.CredentialsInvalid("The node is unknown, was retired, or its clock is off.")
    try:
        _public_key(key["public_key_pem"]).verify(base64.b64decode(body.signature), said.encode())
    except (InvalidSignature, ValueError) as error:
        raise errors.CredentialsInvalid("The proof was not made with this node's key.") from error
    now, outdated_at = clock.micros(call.now), (body.timestamp_s + _LOGIN_SKEW_S) * 1_000_000
    if not await node_store.use_proof(tx, body.node_id, body.nonce, now=now, expires_at=outdated_at):
        raise errors.CredentialsInvalid("This proof was used.")
    caller = Caller("node", body.node_id)
    token = await identity.issue_token(tx, call.origin, caller, call.site.settings.node_token_ttl_s)
    return node.NodeToken(access_token=token.access_token, expires_in_s=token.expires_in_s)


async def heartbeat(tx: db.Tx, call: Call, body: node.NodeStatusReport) -> node.HeartbeatAnswer:
    present = await store.NODES.get(tx, call.caller.actor_id)
    if present is None:
        raise errors.NotFound
    seen = node_rules.heard(present, body, _address(call, body.facts.addresses, present.address))
    await store.NODES.save(tx, msgspec.structs.replace(seen, last_seen_at=call.now))
    await _move_allocation(tx, present, seen)
    news = node_rules.news(present, seen)
    if news:
        await tell(tx, call.origin, seen, news)
    return node.HeartbeatAnswer(heartbeat_interval_s=call.site.settings.heartbeat_interval_s)


async def note_host_key(tx: db.Tx, node_id: str, result: dict[str, Any]) -> None:
    """A machine may get its SSH host key only after it enrolled; the first task that knows it says so."""
    host_key = result.get("ssh_host_public_key")
    present = await store.NODES.get(tx, node_id)
    if isinstance(host_key, str) and host_key and present is not None and present.ssh_host_public_key != host_key:
        await store.NODES.save(tx, msgspec.structs.replace(present, ssh_host_public_key=host_key))


async def mark_lost(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Age is measured from our receipt: a node's own clock can be wrong. Nobody is lost before the platform could have
    heard them for long enough."""
    settings = site.settings
    if await node_hearing.note(tx, site, origin.now) < settings.node_lost_after_s:
        return
    silent_since = clock.micros(origin.now - datetime.timedelta(seconds=settings.node_lost_after_s))
    silent = "status = 'ready' AND admin_state <> 'retired' AND last_seen_at < $1"
    for found in await store.NODES.find(tx, silent, silent_since):
        lost = msgspec.structs.replace(found, status="lost")
        await store.NODES.save(tx, lost)
        await tell(tx, origin, lost, f"no heartbeat for {settings.node_lost_after_s:g} s")


async def queue_task(
    tx: db.Tx,
    site: Site,
    origin: Origin,
    node_id: str,
    kind: str,
    subject_id: str,
    params: dict[str, object],
    *,
    ttl_s: int | None = None,
) -> str:
    """The new task's id."""
    task_id = ids.new("task")
    expires_at = origin.now + datetime.timedelta(seconds=site.settings.task_ttl_s if ttl_s is None else ttl_s)
    payload = msgspec.json.encode(
        {
            "task_id": task_id,
            "node_id": node_id,
            "type": kind,
            "params": params,
            "issued_at_s": int(origin.now.timestamp()),
            "expires_at_s": int(expires_at.timestamp()),
            "correlation_id": origin.correlation_id,
        }
    )
    signature = base64.b64encode(site.keys.tasks.sign(payload)).decode()
    await store.add_task(
        tx,
        task_id,
        node_id=node_id,
        kind=kind,
        subject_id=subject_id,
        expires_at=clock.micros(expires_at),
        payload=payload.decode(),
        signature=signature,
    )
    tx.wake(tasks_topic(node_id))
    return task_id


async def forget_tasks(tx: db.Tx, site: Site, origin: Origin) -> None:
    kept_from = origin.now - datetime.timedelta(seconds=site.settings.node_tasks_kept_s)
    await node_store.forget_tasks(tx, clock.micros(kept_from))


async def tell(tx: db.Tx, origin: Origin, changed: Node, reason: str) -> None:
    payload = NodeChanged(
        node_id=changed.node_id,
        name=changed.name,
        status=changed.status,
        admin_state=changed.admin_state,
        sku=changed.sku,
        region=changed.region,
        reason=reason,
    )
    await record.emit(tx, origin, "capacity.node.changed", payload, org_id="", project_id="")


def tasks_topic(node_id: str) -> str:
    return f"tasks:{node_id}"


def _enrolled_node(call: Call, body: node.Enrol, token: db.Row, known: Node | None) -> Node:
    return Node(
        node_id=known.node_id if known else ids.new("node"),
        name=body.name,
        region=token["region"] or (known.region if known else _FIRST_REGION),
        sku=token["sku"] or (known.sku if known else _FIRST_SKU),
        status="ready",
        admin_state=known.admin_state if known else "active",
        admin_reason=known.admin_reason if known else "",
        address=_address(call, body.facts.addresses, ""),
        ssh_host_public_key=body.ssh_host_public_key,
        facts=body.facts,
        gpus_by_type=node_rules.gpus_by_type(body.facts),
        agent_version="",
        boot_id="",
        enrolled_at=call.now,
        last_seen_at=call.now,
        allocation_id=known.allocation_id if known else None,
        revision=known.revision + 1 if known else 1,
    )


async def _move_allocation(tx: db.Tx, before: Node, after: Node) -> None:
    """Whoever holds the node finds it at its new address."""
    if after.allocation_id is None or after.address == before.address:
        return
    held = await store.ALLOCATIONS.get(tx, after.allocation_id)
    if held is not None:
        await store.ALLOCATIONS.save(tx, msgspec.structs.replace(held, address=after.address))


async def _prepare_again(tx: db.Tx, call: Call, enrolled: Node) -> None:
    """Whoever enrols anew comes with an empty disk: the user, trust and keys of the allocation it carries are gone."""
    held = await store.ALLOCATIONS.get(tx, enrolled.allocation_id) if enrolled.allocation_id else None
    if held is None or held.status != "active":
        return
    call.details["allocation_id"] = held.allocation_id
    await allocation_changes.save(tx, call.origin, held, rules.installed_anew(held, call.now))
    await allocation_keys_store.start_anew(tx, held.allocation_id)
    tx.wake(store.LOOP)


def _address(call: Call, said: list[str], present: str) -> str:
    """The address the node calls from, unless it sits on our own host; then the first it names."""
    if call.peer not in ("127.0.0.1", "::1", ""):
        return call.peer
    return said[0] if said else present


def _public_key(pem: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem.encode())
    except ValueError as error:
        raise errors.ValidationFailed("public_key_pem is not a public key.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise errors.ValidationFailed("public_key_pem is not an Ed25519 key.")
    return key
