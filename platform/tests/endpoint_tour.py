"""Call every endpoint of the table once, in an order that works: the tour that audit and dry-run tests follow."""

import re
from dataclasses import dataclass, field
from typing import Any

import artifact_world
import httpx
import signed_releases
from authorisation_matrix import AGENT
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import (
    access,
    actions,
    agents,
    artifacts,
    audit,
    bindings,
    capacity,
    catalog,
    credentials,
    custody,
    entitlement_requests,
    holds,
    identity,
    instances,
    node,
    org_accounts,
    placements,
    policy,
    posix,
    registry,
    runtime,
    secrets,
    sessions,
    ssh_keys,
    stewardships,
    trust_keys,
    usage,
    users,
)
from gpuaas_contract.endpoint import Endpoint
from gpuaas_sdk.sealed import Recipient
from platform_world import MANIFEST, PASSWORD, World, ssh_private_key, ssh_public_key
from scripted_controller import CLUSTERED, Cluster, Controller, publish_version, take_exit

NOT_DRIVEN = {
    "auth.oidc.exchange": "needs an identity provider; test_identity_oidc drives it",
    "capacity.node.sanitise": "needs a provisioner; test_sanitise drives it",
}
ACTIONS = {"auth.login": "auth.token.issue", "auth.service_account_token": "auth.token.issue"}
"""Where the row is called by what happened rather than by the endpoint."""
TOLD_TWICE = {
    "identity.org.create": ["identity.org.create", "identity.org.created"],
    "identity.break_glass.create": ["identity.break_glass.create", "identity.break_glass.granted"],
    "identity.break_glass.end": ["identity.break_glass.end", "identity.break_glass.ended"],
}
"""The platform's own chain has the act; the tenant's chain reports it to the tenant."""

AUDITED = {endpoint.name for endpoint in registry.ENDPOINTS if endpoint.mutates and endpoint.audited}
_PATHS = [(endpoint, re.compile(re.sub(r"{\w+}", "[^/]+", endpoint.path))) for endpoint in registry.ENDPOINTS]


def endpoint_of(request: httpx.Request) -> Endpoint[Any, Any] | None:
    """None: the request is not of the table."""
    return next(
        (
            endpoint
            for endpoint, path in _PATHS
            if endpoint.method == request.method and path.fullmatch(request.url.path)
        ),
        None,
    )


@dataclass
class Recorder:
    """Notes every change that succeeded, by its correlation id."""

    done: dict[str, Endpoint[Any, Any]] = field(default_factory=dict)

    async def note(self, response: httpx.Response) -> None:
        endpoint = endpoint_of(response.request)
        if endpoint is not None and endpoint.mutates and response.is_success:
            self.done[response.headers["x-correlation-id"]] = endpoint


async def tour(world: World) -> None:
    """Every change there is, but for those of `NOT_DRIVEN`, each where it succeeds."""
    org_id = await org_id_of(world)
    await _people(world, org_id)
    await _service_accounts(world)
    second = await world.call(identity.PROJECT_CREATE, {"name": "second"}, org_id=org_id)
    await world.call(identity.PROJECT_RENAME, {"name": "third"}, project_id=second.project_id)
    await world.call(identity.PROJECT_DELETE, project_id=second.project_id)
    await world.call(identity.ORG_CREATE, {"name": "second"})
    for overlay in (policy.GLOBAL_SET, policy.ORG_SET, policy.PROJECT_SET):
        await world.call(overlay, {"reason": "none needed"}, org_id=org_id)
    await world.call(policy.EXPLAIN, {"region": "local"})
    await world.call(policy.CAN_I, {"permission": "capacity.node.read"})
    await world.entitled_app(**CLUSTERED)
    await _accounts_of_org(world, org_id)
    await _catalog(world)
    await _operations(world)
    await _app(world)
    await _artifacts(world)
    await _nodes(world)


async def _nodes(world: World) -> None:
    veteran = await world.node("veteran")
    facts = {"hostname": "veteran", "cpus": 4, "memory_mb": 1000, "addresses": ["127.0.0.1"]}
    status = {"agent_version": "1", "boot_id": "b1", "facts": facts}
    await world.call(node.STATUS, status, token=veteran.token)
    release = await signed_releases.approved(world, AGENT)
    upgrade = {"sha256": release.sha256, "reason": "the new one is quieter"}
    await world.call(agents.NODE_UPGRADE_AGENT, upgrade, node_id=veteran.node_id)
    await world.call(agents.NODE_INSPECT, {"type": "host.health"}, node_id=veteran.node_id)
    why = {"reason": "the fan is loud"}
    await world.call(capacity.NODE_SET, {"sku": "old", "region": "local", **why}, node_id=veteran.node_id)
    changes: tuple[Endpoint[capacity.ChangeNode, Any], ...] = (
        capacity.NODE_CORDON,
        capacity.NODE_UNCORDON,
        capacity.NODE_DRAIN,
        capacity.NODE_MARK_SANITISED,
        capacity.NODE_RETIRE,
    )
    for endpoint in changes:
        await world.call(endpoint, why, node_id=veteran.node_id)


async def _people(world: World, org_id: str) -> None:
    ada = await world.person("ada")
    login = {"user_id": ada.user_id, "login": "ada", "uid": 31_000}
    await world.call(posix.POSIX_IDENTITY_SET, login, org_id=org_id)
    for create, delete, role in (
        (bindings.PLATFORM_BINDING_CREATE, bindings.PLATFORM_BINDING_DELETE, "platform_admin"),
        (bindings.APP_BINDING_CREATE, bindings.APP_BINDING_DELETE, "app_publisher"),
        (bindings.ORG_BINDING_CREATE, bindings.ORG_BINDING_DELETE, "tenant_admin"),
        (bindings.PROJECT_BINDING_CREATE, bindings.PROJECT_BINDING_DELETE, "viewer"),
    ):
        bound = await world.call(create, {"user_id": ada.user_id, "role": role}, org_id=org_id, app_slug="toy")
        await world.call(delete, org_id=org_id, app_slug="toy", binding_id=bound.binding_id)
    glass = {"project_id": world.project_id, "reason": "the disk of the head is full"}
    taken = await world.call(bindings.BREAK_GLASS_CREATE, glass)
    await world.call(bindings.BREAK_GLASS_END, binding_id=taken.binding_id)
    other = await world.sign_in("ada")
    change = {"present_password": PASSWORD, "new_password": PASSWORD + "!"}
    mine = (await world.call(sessions.SESSION_LIST, token=ada.token)).items
    ended = next(session.session_id for session in mine if not session.current)
    await world.call(sessions.SESSION_END, token=ada.token, session_id=ended)
    assert (await world.send(identity.ME, token=other)).status_code == 401
    await world.call(users.MY_PASSWORD, change, token=ada.token)
    await world.call(sessions.LOGOUT, token=ada.token)
    await world.call(users.USER_SET_PASSWORD, {"password": PASSWORD}, user_id=ada.user_id)
    await world.call(users.USER_DISABLE, user_id=ada.user_id)
    await world.call(users.USER_ENABLE, user_id=ada.user_id)


async def _service_accounts(world: World) -> None:
    account = (await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "spare"})).service_account_id
    await world.call(identity.SERVICE_ACCOUNT_BIND, {"apps": []}, service_account_id=account)
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account)
    new = await world.call(identity.SERVICE_ACCOUNT_KEY_ROTATE, {}, service_account_id=account, key_id=key.key_id)
    await world.call(identity.SERVICE_ACCOUNT_KEY_REVOKE, service_account_id=account, key_id=new.key_id)
    for endpoint in (
        identity.SERVICE_ACCOUNT_DISABLE,
        identity.SERVICE_ACCOUNT_ENABLE,
        identity.SERVICE_ACCOUNT_DELETE,
    ):
        await world.call(endpoint, service_account_id=account)


async def _accounts_of_org(world: World, org_id: str) -> None:
    fleet = await world.org_account(accept=[world.project_id])
    where = {"org_id": org_id, "service_account_id": fleet.service_account_id}
    await world.call(org_accounts.BIND, {"apps": ["toy"]}, **where)
    new = await world.call(org_accounts.KEY_ROTATE, {}, key_id=fleet.key_id, **where)
    await world.call(org_accounts.KEY_REVOKE, key_id=new.key_id, **where)
    await world.call(org_accounts.DISMISS, service_account_id="fleet")
    for endpoint in (org_accounts.DISABLE, org_accounts.ENABLE, org_accounts.DELETE):
        await world.call(endpoint, **where)


async def _catalog(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "version": "0.9.0"})
    moves: tuple[tuple[Endpoint[Any, Any], dict[str, str]], ...] = (
        (catalog.VERSION_PUBLISH, {}),
        (catalog.VERSION_DEPRECATE, {"reason": "1.0.0 is faster"}),
        (catalog.VERSION_WITHDRAW, {"reason": "loses data"}),
    )
    for endpoint, body in moves:
        await world.call(endpoint, body, app_slug="toy", version="0.9.0")
    await world.call(catalog.APP_VERSION_REGISTER, {**MANIFEST, "slug": "other"}, app_slug="other")
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version=MANIFEST["version"])
    await world.call(entitlement_requests.ENTITLEMENT_REQUEST_CREATE, {"app_slug": "other"})
    await world.call(entitlement_requests.ENTITLEMENT_REQUEST_GET, app_slug="other")
    await world.call(entitlement_requests.ENTITLEMENT_REQUEST_LIST)
    await world.call(entitlement_requests.OFFER_LIST)
    await world.call(entitlement_requests.ENTITLEMENT_REQUEST_REFUSE, {"reason": "use toy"}, app_slug="other")


async def _app(world: World) -> None:
    """Deploy, use, break, tear down, give back."""
    token = await world.service_account()
    credential_id = (await world.credential()).credential_id
    deployed = await world.running_instance(token, host_key=credential_id)
    instance_id = deployed.instance.instance_id
    spare = await world.allocation("spare")
    granted = await world.machine_access(world.token, spare.allocation_id)
    await world.call(access.GRANT_REVOKE, {"reason": "no longer needed"}, grant_id=granted.grant_id)
    add = {"kind": "add", "component_key": "hand", "allocation_ids": [spare.allocation_id]}
    await world.call(instances.MEMBER_OPERATION_CREATE, add, instance_id=instance_id)
    claim = await world.claim(token)
    assert claim.operation is not None
    operation_id = claim.operation.operation_id
    await world.call(runtime.HEARTBEAT, {"epoch": claim.epoch}, token=token, operation_id=operation_id)
    step = {"epoch": claim.epoch, "name": "join", "state": "running"}
    await world.call(runtime.STEP_REPORT, step, token=token, operation_id=operation_id)
    bundle = {"epoch": claim.epoch, "notes": ["hello"]}
    await world.call(runtime.ACCESS_PUBLISH, bundle, token=token, operation_id=operation_id)
    seen = {"holder": "test", "observed_revision": 1}
    await world.call(runtime.RUNTIME_REPORT, seen, token=token, instance_id=instance_id)
    await _secrets_and_usage(world, token, claim)
    await _placement(world, token, claim, spare.allocation_id)
    await _credentials(world, token, claim, credential_id)
    failure = {"epoch": claim.epoch, "code": "boom", "message": "it broke", "failure_class": "needs_operator"}
    await world.call(runtime.FAIL, failure, token=token, operation_id=operation_id)
    free = await world.allocation("free")
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=free.allocation_id)
    await _allocations(world)
    body = {"force": True, "reason": "no longer needed"}
    await world.call(instances.DECOMMISSION, body, instance_id=instance_id)


async def _allocations(world: World) -> None:
    """Keys come and go, then the machine is given back against every obstacle."""
    key = await world.call(ssh_keys.SSH_KEY_CREATE, {"public_key": ssh_public_key(Ed25519PrivateKey.generate())})
    burnt = await world.node("burnt")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {"node_name": "burnt"})).items
    await world.finish_task(burnt)
    here, why = {"allocation_id": made.allocation_id}, {"reason": "it burnt down"}
    await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": []}, **here)
    await world.call(ssh_keys.SSH_KEY_DELETE, ssh_key_id=key.ssh_key_id)
    await world.call(capacity.ALLOCATION_RELEASE_USED, why, **here)
    await world.finish_task(burnt, "failed")
    await world.call(capacity.ALLOCATION_FORCE_RELEASE, why, **here)


async def _operations(world: World) -> None:
    """Every change of a whole instance, every exit of an operation, and what people do to its members beside that."""
    controller = await Controller.start(world, "operator")
    cluster = Cluster(world, controller, (await world.deploy("two", hands=2)).instance.instance_id)
    await controller.carry_out()
    await publish_version(world, "1.1.0", upgrades_from=["1.0.0"], rollback_to=["1.0.0"])
    bodies: dict[str, Any] = {"upgrade": {"version": "1.1.0"}, "reconfigure": {"inputs": {"speed": 1}}}
    for verb in ("stop", "start", "restart", "upgrade", "rollback", "reconfigure"):
        await cluster.change(verb, **bodies.get(verb, {}))
        await controller.carry_out()
    first, second = await cluster.hands()
    held = await cluster.hold(first, "no_work")
    await world.call(holds.HOLD_LIFT, instance_id=cluster.instance_id, hold_id=held.hold_id)
    why = {"reason": "the image is repaired"}
    await world.call(instances.BREAKER_RESET, why, instance_id=cluster.instance_id, component_key="hand")
    operator = {"operator_service_account_id": "", "reason": "any controller may take it"}
    await world.call(instances.OPERATOR_SET, operator, instance_id=cluster.instance_id)
    await _steward(cluster, first)
    await world.call(actions.ACTION_INVOKE, {}, instance_id=cluster.instance_id, action="paint")
    await (await controller.take()).complete(result={"coats": 2})
    await take_exit(world, await cluster.operate("drain", first), "cancel")
    for name in ("retry", "compensate", "force_complete"):
        drain = await cluster.operate("drain", first)
        await (await controller.take()).fail()
        await take_exit(world, drain, name)
        if name != "force_complete":
            await (await controller.take()).fail()
    remove = await cluster.operate("remove", second, force=True, reason="it burnt down")
    await (await controller.take()).fail("lost")
    await take_exit(world, remove, "tombstone")


async def _steward(cluster: Cluster, member_id: str) -> None:
    """What a controller does between operations."""
    world, token, where = cluster.world, cluster.controller.token, {"instance_id": cluster.instance_id}
    body = {"app_slug": "toy", "holder": "one", "take_max": 100}
    held = (await world.call(stewardships.RENEW, body, token=token)).held
    epoch = next(item.epoch for item in held if item.instance_id == cluster.instance_id)
    await world.call(stewardships.ACCESS_PUBLISH, {"epoch": epoch, "notes": ["hello"]}, token=token, **where)
    repair = {"epoch": epoch, "kind": "repair", "member_ids": [member_id], "reason": "it does not answer"}
    await world.call(stewardships.OPERATION_REQUEST, repair, token=token, **where)
    await (await cluster.controller.take()).complete()


async def _credentials(world: World, token: str, claim: runtime.Claim, credential_id: str) -> None:
    assert claim.operation is not None
    operation_id, epoch = claim.operation.operation_id, claim.epoch
    asked = {"epoch": epoch, "credential_id": credential_id, "recipient_key": Recipient().public_key}
    delivered = await world.call(credentials.CREDENTIAL_DELIVER, asked, token=token, operation_id=operation_id)
    opening = {"operation_id": operation_id, "epoch": epoch}
    await world.call(credentials.CREDENTIAL_OPEN, opening, token=token, delivery_id=delivered.delivery_id)
    renewed = {"private_key": ssh_private_key()}
    await world.call(credentials.CREDENTIAL_ROTATE, renewed, credential_id=credential_id)
    await world.call(credentials.CREDENTIAL_REVOKE, {"reason": "no longer needed"}, credential_id=credential_id)
    await world.call(custody.UNSEAL, {"passphrase": "open already"})


async def _secrets_and_usage(world: World, token: str, claim: runtime.Claim) -> None:
    assert claim.operation is not None
    operation_id, instance_id = claim.operation.operation_id, claim.operation.instance_id
    asked = {"epoch": claim.epoch, "purpose": "role_join", "name": "join"}
    issued = await world.call(secrets.SECRET_ISSUE, asked, token=token, operation_id=operation_id)
    opening = {"operation_id": operation_id, "epoch": claim.epoch}
    await world.call(secrets.DELIVERY_OPEN, opening, token=token, delivery_id=issued.delivery_id)
    await world.call(secrets.SECRET_REVOKE, instance_id=instance_id, secret_id=issued.secret.secret_id)
    record = {"record_id": "r1", "meter": "time", "quantity": "1", "unit": "hour"}
    moments = {"started_at": world.clock(), "ended_at": world.clock()}
    await world.call(usage.USAGE_REPORT, {"records": [record | moments]}, token=token, instance_id=instance_id)


async def _placement(world: World, token: str, claim: runtime.Claim, allocation_id: str) -> None:
    assert claim.operation is not None
    signer = await artifact_world.trusted(world, "placing")
    artifact = await artifact_world.promoted(world, signer, b"placed", name="placed")
    body = {"allocation_id": allocation_id, "operation_id": claim.operation.operation_id, "epoch": claim.epoch}
    await world.call(placements.PLACEMENT_CREATE, body, token=token, artifact_id=artifact.artifact_id)
    await world.call(placements.PLACEMENT_REMOVE, body, token=token, artifact_id=artifact.artifact_id)


async def _artifacts(world: World) -> None:
    """From publishing to revoking, in the project and for all projects; the first of each kind is ended gently."""
    signer = artifact_world.Signer()
    await artifact_world.trust(world, signer, "release")
    first = await artifact_world.promoted(world, signer)
    await artifact_world.delivery(world, first)
    shared = await artifact_world.shared(world, signer)
    envelope = signer.envelope(first.digest)
    for sign, deprecate, retire, revoke, artifact in (
        (artifacts.SIGNATURE_PUT, artifacts.DEPRECATE, artifacts.RETIRE, artifacts.REVOKE, first),
        (
            artifacts.SHARED_SIGNATURE_PUT,
            artifacts.SHARED_DEPRECATE,
            artifacts.SHARED_RETIRE,
            artifacts.SHARED_REVOKE,
            shared,
        ),
    ):
        await world.call(sign, envelope, artifact_id=artifact.artifact_id)
        for endpoint in (deprecate, retire, revoke):
            await world.call(endpoint, {"reason": "no longer needed"}, artifact_id=artifact.artifact_id)
    await _app_artifact(world, signer)
    await artifact_world.attach_card(world, signer, {**MANIFEST, "slug": "other"})
    for revoke_key in (trust_keys.TRUST_KEY_REVOKE, trust_keys.SHARED_TRUST_KEY_REVOKE):
        await world.call(revoke_key, trust_key_id="release")


async def _app_artifact(world: World, signer: artifact_world.Signer) -> None:
    """The life of a shared artifact that the publishers of an app look after."""
    artifact = await artifact_world.of_app(world, signer, b"of the app", "other")
    where = {"app_slug": "other", "artifact_id": artifact.artifact_id}
    await world.call(artifacts.APP_SIGNATURE_PUT, signer.envelope(artifact.digest), **where)
    await world.call(artifacts.APP_VERIFY, {}, **where)
    await world.call(artifacts.APP_PROMOTE, {"channel": "stable"}, **where)
    for endpoint in (artifacts.APP_DEPRECATE, artifacts.APP_RETIRE):
        await world.call(endpoint, {"reason": "no longer needed"}, **where)


async def audit_rows(world: World, correlation_id: str) -> list[audit.AuditRow]:
    return (await world.call(audit.PLATFORM_AUDIT_LIST, query={"correlation_id": correlation_id})).items


async def org_id_of(world: World) -> str:
    return next(org.org_id for org in (await world.call(identity.ORG_LIST)).items if org.name == "acme")
