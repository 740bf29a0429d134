"""Admit nodes: operators create enrolment tokens; agents enrol with them and sign in."""

import base64
import datetime
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from gpuaas_contract import errors, node
from gpuaas_contract.capacity import CreateEnrolmentToken, EnrolmentToken, Node
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Caller
from gpuaas_platform.identity import service as identity
from gpuaas_platform.kit import clock, db, ids, peers
from gpuaas_platform.nodes import rules, service, store
from gpuaas_platform.nodes.sanitise import rules as sanitise_rules
from gpuaas_platform.nodes.tasks import service as tasks

end_tokens = store.end_tokens
"""Delete all enrolment tokens: after a restore, a token that was used since the backup would work again."""
_LOGIN_SKEW_S = 300
_FIRST_SKU, _FIRST_REGION = "standard", "local"


async def trust(call: Call, _: NoBody) -> node.Trust:
    """Return what a node must trust: the TLS authority of the listener, and the public key of node tasks."""
    return node.Trust(ca_pem=call.site.ca_pem, task_public_key_pem=call.site.keys.tasks_public_pem())


async def create_token(tx: db.Tx, call: Call, body: CreateEnrolmentToken) -> EnrolmentToken:
    secret = ids.new_secret("enrol")
    expires_at = call.now + datetime.timedelta(seconds=body.ttl_s)
    await store.add_token(tx, ids.digest(secret), body.name, body.sku, body.region, clock.micros(expires_at))
    return EnrolmentToken(token=secret, name=body.name, ca_sha256=call.site.ca_sha256, expires_at=expires_at)


async def enrol(tx: db.Tx, call: Call, body: node.Enrol) -> node.Enrolled:
    """Admit a node. A token works once. If the node repeats the request with the same key, it gets the same id."""
    digest = ids.digest(body.token)
    token = await store.enrolment_token(tx, digest)
    if token is None or token["expires_at"] <= clock.micros(call.now) or token["name"] != body.name:
        raise errors.CredentialsInvalid("This enrolment token is not valid for this node.", fix=_new_token(body.name))
    if token["used_by"]:
        if token["used_by"] != body.public_key_pem:
            text = "This enrolment token was used before; each works once."
            raise errors.CredentialsInvalid(text, fix=_new_token(body.name))
        return node.Enrolled(node_id=token["node_id"])
    _public_key(body.public_key_pem)
    known = await service.by_name(tx, body.name)
    has_new_key = known is None or await store.last_key(tx, known.node_id) != body.public_key_pem
    sanitise_rules.check_enrolment(known, token["attempt_id"], has_new_key=has_new_key)
    enrolled = _enrolled_node(call, body, token, known, has_new_key=has_new_key)
    await service.admit(tx, call, known, enrolled)
    await store.set_key(tx, enrolled.node_id, body.public_key_pem)
    await _end_tokens(tx, enrolled.node_id)
    await store.use_token(tx, digest, body.public_key_pem, enrolled.node_id)
    if enrolled.sanitising is not None:
        tx.wake(service.SANITISE)
    return node.Enrolled(node_id=enrolled.node_id)


async def login(tx: db.Tx, call: Call, body: node.NodeLogin) -> node.NodeToken:
    """Issue an access token to a node. The node proves its identity: it signs the current time with its key."""
    key = await store.node_key(tx, body.node_id)
    is_fresh = abs(call.now.timestamp() - body.timestamp_s) <= _LOGIN_SKEW_S
    if key is None or not is_fresh:
        fix = "Set the clock of the node; if it was retired, enrol it again: gpuaas node token NAME"
        raise errors.CredentialsInvalid("The node is unknown, was retired, or its clock is off.", fix=fix)
    _check_proof(key, body)
    now, outdated_at = clock.micros(call.now), (body.timestamp_s + _LOGIN_SKEW_S) * 1_000_000
    if not await store.use_proof(tx, body.node_id, body.nonce, now=now, expires_at=outdated_at):
        raise errors.CredentialsInvalid("This sign-in proof was used before; each works once.")
    caller = Caller("node", body.node_id)
    token = await identity.issue_token(tx, call.origin, caller, call.site.settings.node_token_ttl_s)
    return node.NodeToken(access_token=token.access_token, expires_in_s=token.expires_in_s)


async def withdraw(tx: db.Tx, node_id: str) -> None:
    """End the node's key and tokens, so that its next call is refused, and the one that waits."""
    await store.end_key(tx, node_id)
    await _end_tokens(tx, node_id)


async def _end_tokens(tx: db.Tx, node_id: str) -> None:
    """End the node's tokens, and the long poll that waits for its next task."""
    await identity.end_tokens_of(tx, node_id)
    tx.wake(tasks.queue_topic(node_id))


def _enrolled_node(call: Call, body: node.Enrol, token: db.Row, known: Node | None, *, has_new_key: bool) -> Node:
    fields: dict[str, Any] = {
        "status": "ready",
        "address": rules.address(peers.remote(call.peer), body.facts.addresses, ""),
        "ssh_host_public_key": body.ssh_host_public_key,
        "facts": body.facts,
        "gpus_by_type": rules.gpus_by_type(body.facts),
        "agent_version": "",
        "agent_sha256": "",
        "boot_id": "",
        "last_seen_at": call.now,
    }
    if known is None:
        return Node(
            node_id=ids.new("node"),
            name=body.name,
            region=token["region"] or _FIRST_REGION,
            sku=token["sku"] or _FIRST_SKU,
            enrolled_at=call.now,
            allocation_id=None,
            **fields,
        )
    return msgspec.structs.replace(
        sanitise_rules.enrolled(known),
        region=token["region"] or known.region,
        sku=token["sku"] or known.sku,
        enrolled_at=call.now if has_new_key else known.enrolled_at,
        revision=known.revision + 1,
        **fields,
    )


def _check_proof(public_key_pem: str, body: node.NodeLogin) -> None:
    signed = f"gpuaas-node-token\n{body.node_id}\n{body.timestamp_s}\n{body.nonce}"
    try:
        _public_key(public_key_pem).verify(base64.b64decode(body.signature), signed.encode())
    except (InvalidSignature, ValueError) as error:
        raise errors.CredentialsInvalid("The sign-in proof was not signed with this node's key.") from error


def _new_token(name: str) -> str:
    return f"Make a new token and put it into the agent's configuration: gpuaas node token {name}"


def _public_key(pem: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem.encode())
    except ValueError as error:
        raise errors.ValidationFailed("public_key_pem is not a public key.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise errors.ValidationFailed("public_key_pem is not an Ed25519 key.")
    return key
