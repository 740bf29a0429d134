"""Every route × every kind of caller × every kind of target: the cells of the authorisation matrix, and what a leak is.

Mutations are sent as dry runs, so asking changes nothing and the order of asking does not matter.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import artifact_world
import httpx
import msgspec
import scripted_controller
import signed_releases
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import (
    bindings,
    credentials,
    holds,
    identity,
    instances,
    operations,
    org_accounts,
    placements,
    registry,
    runtime,
    secrets,
    ssh_keys,
)
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.permissions import PUBLISHER
from gpuaas_sdk.sealed import Recipient
from platform_world import MANIFEST, PASSWORD, World, enrol_body, login_body, ssh_private_key, ssh_public_key

AnyEndpoint = Endpoint[Any, Any]

ARTIFACT = msgspec.json.encode("matrix")
"""Content that is a JSON text too, so that one way of sending fits every route."""
SIGNER = artifact_world.Signer()

PLACES = ("own", "sibling", "other_org", "absent")
"""A project of mine, another of the same organisation, one of another organisation, none at all."""
MIXTURES = ("own/foreign", "own/absent")
"""My project (or organisation) in the path, and in it ids of the sibling (or the other one), or of nothing."""
_CORRELATION = re.compile(r'"correlation_id":"[^"]*"')


@dataclass
class Place:
    params: dict[str, str]
    controller: str = ""
    """Token of the service account that holds its operation."""
    of_org: str = ""
    """Token of a service account of its organisation, which only this place accepts."""
    secrets: list[str] = field(default_factory=list)
    """Ids that no caller from outside this place may ever see."""


@dataclass(frozen=True)
class Actor:
    name: str
    token: str
    reaches: frozenset[str] = frozenset()
    """Places where this caller has a role."""


@dataclass
class Cast:
    actors: list[Actor]
    places: dict[str, Place]
    node_login: dict[str, Any]


@dataclass(frozen=True)
class Cell:
    route: str
    target: str
    actor: str
    status: int
    body: str
    """Without correlation id, and with names in place of the ids that were sent."""
    shown: str
    """As it came."""


async def cast(world: World) -> Cast:
    expired = await world.service_account("expired")
    world.clock.forward(world.site.settings.service_account_token_ttl_s + 1)
    world.token = await world.sign_in("admin")
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    other_org = (await world.call(identity.ORG_CREATE, {"name": "other"})).org_id
    await world.entitled_app()
    await artifact_world.shared(world, SIGNER, ARTIFACT)
    await artifact_world.of_app(world, SIGNER, msgspec.json.encode("of the app"))
    await artifact_world.attach_card(world, SIGNER)
    own = await _place(world, org_id, world.project_id, "own")
    places = {
        "own": own,
        "sibling": await _place(world, org_id, await _project(world, org_id, "sibling"), "sibling"),
        "other_org": await _place(world, other_org, await _project(world, other_org, "elsewhere"), "elsewhere"),
        "absent": Place({name: _absent(value) for name, value in own.params.items()}),
    }
    # A project accepts accounts of its own organisation only, so the account of another one is the foreign one.
    places["sibling"].params["accepted_account_id"] = places["other_org"].params["accepted_account_id"]
    nodes = [await world.node("agent"), await world.node("agent-2")]
    for name, node in zip(("own", "sibling"), nodes, strict=True):
        created = await world.send(
            registry.BY_NAME["capacity.allocation.create"], {"node_name": node.name}, project_id=world.project_id
        )
        assert created.status_code == 202
        task = await world.next_task(node)
        assert task is not None
        places[name].params |= {"task_id": task["task_id"], "node_id": node.node_id}
    await scripted_controller.publish_version(world, "1.1.0", upgrades_from=["1.0.*"])
    release = await signed_releases.approved(world, AGENT)
    for place in places.values():
        place.params.setdefault("task_id", "task_" + "0" * 26)
        place.params.setdefault("node_id", "node_" + "0" * 26)
        place.params["sha256"] = release.sha256
    places["absent"].params["sha256"] = "0" * 64
    everywhere = frozenset(PLACES)
    only = {place: frozenset({place}) for place in PLACES}
    people = {
        "platform_admin": await _person(world, "padmin", "platform_admin", "platform", places),
        "break_glass": await _in_an_emergency(world, places["own"]),
        "platform_ops": await _person(world, "pops", "platform_ops", "platform", places),
        "publisher": await _person(world, "publisher", PUBLISHER, "app", places),
        "other_publisher": await _person(world, "opublisher", PUBLISHER, "app", places, app_slug="other"),
        "tenant_admin": await _person(world, "tadmin", "tenant_admin", "org", places),
        "project_admin": await _person(world, "jadmin", "project_admin", "project", places),
        "project_member": await _person(world, "member", "project_member", "project", places),
        "viewer": await _person(world, "viewer", "viewer", "project", places),
        "stranger": await _person(world, "stranger", "", "", places),
        "other_tenant": await _person(world, "oadmin", "tenant_admin", "org", {"own": places["other_org"]}),
    }
    reaches = {
        "platform_admin": everywhere,
        "break_glass": everywhere,
        "platform_ops": everywhere,
        "tenant_admin": frozenset({"own", "sibling"}),
        "stranger": frozenset[str](),
        "other_publisher": frozenset[str](),
        "other_tenant": only["other_org"],
    }
    actors = [Actor(name, token, reaches.get(name, only["own"])) for name, token in people.items()]
    revoked = await world.service_account("revoked")
    await _revoke(world)
    actors += [
        Actor("sa_own", places["own"].controller, only["own"]),
        Actor("sa_sibling", places["sibling"].controller, only["sibling"]),
        Actor("sa_of_org", places["own"].of_org, only["own"]),
        Actor("sa_revoked", revoked),
        Actor("sa_expired", expired),
        Actor("node", nodes[0].token, only["own"]),
        Actor("anonymous", ""),
        Actor("garbage", "gpuaas_session_garbage"),
    ]
    login = msgspec.to_builtins(login_body(nodes[0], int(world.clock().timestamp()), "n" * 16))
    world.site.hub.close()
    return Cast(actors, places, login)


def targets_of(endpoint: AnyEndpoint) -> Sequence[str]:
    if "{project_id}" in endpoint.path or "{org_id}" in endpoint.path or endpoint.name in _PLACE_IN_BODY:
        deeper = endpoint.path.count("{") > 1
        return (*PLACES, *MIXTURES) if deeper else PLACES
    if "{task_id}" in endpoint.path:
        return ("own", "sibling", "absent")
    return ("own", "absent") if "{" in endpoint.path else ("own",)


async def cells(
    client: httpx.AsyncClient, full_cast: Cast, endpoints: Iterable[AnyEndpoint] = registry.ENDPOINTS
) -> list[Cell]:
    made = []
    for endpoint in endpoints:
        for target in targets_of(endpoint):
            place = _target(full_cast, endpoint, target)
            for actor in full_cast.actors:
                answer = await client.send(_request(client, endpoint, place, actor, full_cast))
                body = _normal(answer.text, place.params)
                made.append(Cell(endpoint.name, target, actor.name, answer.status_code, body, answer.text))
    return made


def leaks(full_cast: Cast, asked: Sequence[Cell]) -> Iterator[str]:
    """Beyond reach everything answers as if it were absent, and no answer names what its caller may not see."""
    by_key = {(cell.route, cell.target, cell.actor): cell for cell in asked}
    reaches = {actor.name: actor.reaches for actor in full_cast.actors}
    for cell in asked:
        twin = "own/absent" if cell.target == "own/foreign" else "absent"
        hidden = cell.target == "own/foreign" or (cell.target in PLACES and cell.target not in reaches[cell.actor])
        absent = by_key.get((cell.route, twin, cell.actor))
        if hidden and absent is not None and (cell.status, cell.body) != (absent.status, absent.body):
            yield f"{cell.route} on {cell.target} differs from absent for {cell.actor}: {cell.status} {absent.status}"
        sent = _target(full_cast, registry.BY_NAME[cell.route], cell.target).params.values()
        for name, place in full_cast.places.items():
            if name not in reaches[cell.actor]:
                shown = [secret for secret in place.secrets if secret in cell.shown and secret not in sent]
                if shown:
                    yield f"{cell.route} on {cell.target} shows {cell.actor} {shown[0]} of {name}"


COLUMNS = {
    "platform_admin": "padm",
    "break_glass": "glas",
    "platform_ops": "pops",
    "publisher": "publ",
    "other_publisher": "opub",
    "tenant_admin": "tadm",
    "project_admin": "jadm",
    "project_member": "memb",
    "viewer": "view",
    "stranger": "none",
    "other_tenant": "othr",
    "sa_own": "sacc",
    "sa_sibling": "sibl",
    "sa_of_org": "oacc",
    "sa_revoked": "revo",
    "sa_expired": "expi",
    "node": "node",
    "anonymous": "anon",
    "garbage": "garb",
}


def table(full_cast: Cast, asked: Sequence[Cell]) -> str:
    """One line per route and target, one column per caller."""
    names = [actor.name for actor in full_cast.actors]
    statuses = {(cell.route, cell.target, cell.actor): cell.status for cell in asked}
    lines = [f"{'route':36} {'target':11} " + " ".join(COLUMNS[name] for name in names)]
    for route, target in dict.fromkeys((cell.route, cell.target) for cell in asked):
        lines.append(f"{route:36} {target:11} " + " ".join(f"{statuses[route, target, name]:>4}" for name in names))
    return "\n".join(lines) + "\n"


def without_a_control(asked: Sequence[Cell]) -> set[str]:
    """Routes that admit no caller at all: they could be broken and would look safe."""
    through = {cell.route for cell in asked if cell.status not in (401, 403, 404)}
    return {cell.route for cell in asked} - through


def _target(full_cast: Cast, endpoint: AnyEndpoint, target: str) -> Place:
    if target not in MIXTURES:
        return full_cast.places[target]
    foreign = "other_org" if "{org_id}" in endpoint.path else "sibling"
    own, inside = full_cast.places["own"], full_cast.places[foreign if target == "own/foreign" else "absent"]
    outer = {name: own.params[name] for name in ("org_id", "project_id")}
    return dataclasses.replace(inside, params={**inside.params, **outer})


def _request(
    client: httpx.AsyncClient, endpoint: AnyEndpoint, place: Place, actor: Actor, full_cast: Cast
) -> httpx.Request:
    headers = {"X-Idempotency-Key": "matrix", "If-Match": "*"}
    if actor.token:
        headers["Authorization"] = f"Bearer {actor.token}"
    body = _body(endpoint, place, full_cast)
    content = msgspec.json.encode(body) if body is not None else b""
    query = {"dry_run": "true"} if endpoint.mutates else {}
    params = dict(place.params)
    if endpoint.name == "runtime.controller.log":
        query["controller_id"] = f"{params['project_id']}/toy/test"
    for level in ("org", "app", "platform"):
        if endpoint.name.startswith(f"identity.{level}_binding."):
            params["binding_id"] = params[f"{level}_binding_id"]
    if endpoint.name.startswith("identity.org_service_account"):
        params |= {"service_account_id": params["org_account_id"], "key_id": params["org_account_key_id"]}
    if endpoint.name in (org_accounts.ACCEPT.name, org_accounts.DISMISS.name):
        params["service_account_id"] = params["accepted_account_id"]
    if endpoint.name == "identity.break_glass.end":
        params["binding_id"] = params["break_glass_binding_id"]
    if endpoint.name == "access.credential.open":
        params["delivery_id"] = params["credential_delivery_id"]
    if endpoint.name.startswith("artifacts.shared_"):
        params["artifact_id"] = params["shared_artifact_id"]
    if endpoint.name.startswith("artifacts.app_"):
        params["artifact_id"] = params["app_artifact_id"]
    return client.build_request(
        endpoint.method, endpoint.path.format(**params), content=content, params=query, headers=headers
    )


_PLACE_IN_BODY = frozenset({"auth.can_i", "identity.break_glass.create"})


def _body(endpoint: AnyEndpoint, place: Place, full_cast: Cast) -> Any:
    params = place.params
    facts = {"hostname": "agent", "cpus": 1, "memory_mb": 1, "addresses": ["127.0.0.1"]}
    role = {
        "identity.platform_binding.create": "platform_ops",
        "identity.org_binding.create": "tenant_admin",
        "identity.app_binding.create": PUBLISHER,
    }
    bodies: dict[str, Any] = {
        "auth.login": {"name": "admin", "password": PASSWORD},
        "auth.service_account_token": {"key_id": "key_none", "client_secret": "none"},
        "auth.oidc.exchange": {"code": "none", "state": "none"},
        "auth.password.change": {"present_password": PASSWORD, "new_password": "short"},
        "auth.can_i": {"permission": "apps.instance.read", "project_id": params["project_id"]},
        "identity.org.create": {"name": "made", "first_admin": "admin"},
        "identity.project.create": {"name": "made"},
        "identity.project.rename": {"name": "made-again"},
        "identity.service_account.create": {"name": "made"},
        "identity.service_account.bind": {"apps": []},
        "identity.service_account_key.rotate": {},
        "identity.org_service_account.create": {"name": "made", "apps": ["toy"]},
        "identity.org_service_account.bind": {"apps": ["toy"]},
        "identity.org_service_account_key.rotate": {},
        "identity.user.create": {"name": "made"},
        "identity.user.set_password": {"password": "short"},
        "identity.break_glass.create": {"project_id": params["project_id"], "reason": "testing the glass"},
        "policy.explain": {"region": "local"},
        "catalog.version.register": {**MANIFEST, "version": "9.9.9"},
        "catalog.app_version.register": {**MANIFEST, "version": "9.9.9"},
        "catalog.conformance.attach": artifact_world.card(SIGNER),
        "catalog.version.publish": {"channels": ["stable"]},
        "catalog.version.deprecate": {"reason": "matrix"},
        "catalog.version.withdraw": {"reason": "matrix"},
        "catalog.entitlement.set": {"enabled": True},
        "catalog.entitlement_request.create": {"app_slug": "toy", "reason": "matrix"},
        "catalog.entitlement_request.refuse": {"reason": "matrix"},
        "capacity.enrolment.create": {"name": "made"},
        "capacity.node.set": {"sku": "made", "region": "made", "reason": "matrix"},
        **{f"capacity.node.{verb}": {"reason": "matrix"} for verb in ("cordon", "uncordon", "drain", "retire")},
        **{f"capacity.node.{verb}": {"reason": "matrix"} for verb in ("sanitise", "mark_sanitised")},
        "capacity.node.inspect": {"type": "host.facts"},
        "capacity.node.upgrade_agent": {"sha256": params["sha256"], "reason": "matrix"},
        "capacity.agent_release.register": signed_releases.body(AGENT),
        "capacity.agent_release.approve": {"reason": "matrix"},
        "capacity.allocation.create": {},
        **{f"capacity.allocation.{verb}": {"reason": "matrix"} for verb in ("release_used", "force_release")},
        "capacity.allocation_keys.set": {"user_ids": []},
        "ssh_key.create": {"public_key": _PUBLIC_KEY},
        "access.machine.grant": {"public_key": _PUBLIC_KEY, "as": "root"},
        "identity.posix.set": {"user_id": params.get("user_id", ""), "login": "matrix", "uid": 31_000},
        "access.machine.revoke": {"reason": "matrix"},
        "access.credential.create": {"name": "made", "private_key": _PRIVATE_KEY},
        "access.credential.rotate": {"private_key": _PRIVATE_KEY},
        "access.credential.revoke": {"reason": "matrix"},
        "access.credential.deliver": {
            "epoch": 1,
            "credential_id": params["credential_id"],
            "recipient_key": _RECIPIENT.public_key,
        },
        "access.credential.open": {"operation_id": params["operation_id"], "epoch": 1},
        "custody.seal.open": {"passphrase": "matrix"},
        "apps.instance.create": {"name": "made", "app_slug": "toy", "topology": "pair", "inputs": {}},
        **{f"apps.instance.{verb}": {"reason": "matrix"} for verb in _VERBS},
        "apps.instance.upgrade": {"version": "1.1.0"},
        "apps.instance.reconfigure": {"inputs": {"speed": 1}},
        "apps.instance.set_operator": {"operator_service_account_id": "", "reason": "matrix"},
        **{f"apps.operation.{way}": {"reason": "matrix"} for way in operations.EXITS},
        "apps.role.reset_breaker": {"reason": "matrix"},
        "apps.hold.place": {"name": "made", "kind": "no_work", "reason": "matrix"},
        "apps.action.invoke": {"reason": "matrix"},
        "apps.member.operate": {"kind": "drain", "member_ids": [params["member_id"]], "reason": "matrix"},
        "runtime.claim": {"app_slug": "toy", "holder": "matrix", "claim_id": "matrix"},
        "runtime.heartbeat": {"epoch": 1},
        "runtime.step": {"epoch": 1, "name": "matrix", "state": "running"},
        "runtime.member": {"epoch": 1, "status": "provisioning"},
        "runtime.access": {"epoch": 1},
        "runtime.complete": {"epoch": 1},
        "steward.renew": {"app_slug": "toy", "holder": "matrix"},
        "steward.access": {"epoch": 1},
        "steward.request": {"epoch": 1, "kind": "repair", "member_ids": ["mem_1"], "reason": "matrix"},
        "runtime.report": {"holder": "matrix", "observed_revision": 1},
        "runtime.fail": {"epoch": 1, "code": "x", "message": "x", "failure_class": "retryable"},
        "access.secret.issue": {"epoch": 1, "purpose": "role_join", "name": "made"},
        "access.secret.open": {"operation_id": params["operation_id"], "epoch": 1},
        "usage.record.report": {"records": [_USAGE]},
        "node.enrol": msgspec.to_builtins(enrol_body("none", "agent", Ed25519PrivateKey.generate())),
        "node.token": full_cast.node_login,
        "node.status": {"agent_version": "1", "boot_id": "1", "facts": facts},
        "node.task.result": {"status": "succeeded"},
    }
    if endpoint.name.startswith("artifacts."):
        return _artifact_body(endpoint.name.replace(".shared_", ".").replace(".app_", "."), params)
    if endpoint.name.endswith("_binding.create"):
        return {"user_id": params["user_id"], "role": role.get(endpoint.name, "viewer")}
    return bodies.get(endpoint.name, {} if endpoint.name.startswith("policy.") and endpoint.mutates else None)


def _artifact_body(name: str, params: Mapping[str, str]) -> Any:
    on_machine = {"allocation_id": params["allocation_id"], "operation_id": params["operation_id"], "epoch": 1}
    bodies: dict[str, Any] = {
        "artifacts.artifact.publish": artifact_world.intent(ARTIFACT, name="made"),
        "artifacts.content.put": "matrix",
        "artifacts.signature.put": SIGNER.envelope(artifact_world.digest_of(ARTIFACT)),
        "artifacts.artifact.verify": {},
        "artifacts.artifact.promote": {"channel": "matrix"},
        "artifacts.artifact.deprecate": {"reason": "matrix"},
        "artifacts.artifact.retire": {"reason": "matrix"},
        "artifacts.artifact.revoke": {"reason": "matrix"},
        "artifacts.trust_key.put": {"public_key_pem": SIGNER.public_pem()},
        "artifacts.delivery.create": {"purpose": "matrix"},
        "artifacts.placement.create": on_machine,
        "artifacts.placement.remove": on_machine,
    }
    return bodies.get(name)


_VERBS = ("stop", "start", "restart", "rollback", "decommission")
AGENT = b"PK\x05\x06" + bytes(18)
"""An archive with nothing in it."""
_PUBLIC_KEY = ssh_public_key(Ed25519PrivateKey.generate())
_PRIVATE_KEY = ssh_private_key()
_RECIPIENT = Recipient()
_USAGE = {
    "record_id": "matrix",
    "meter": "time",
    "quantity": "1",
    "unit": "hour",
    "started_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T01:00:00Z",
}


def _normal(text: str, params: dict[str, str]) -> str:
    text = _CORRELATION.sub("", text)
    for name, value in sorted(params.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, f"<{name}>")
    return text


def _absent(value: str) -> str:
    prefix, _, rest = value.partition("_")
    return f"{prefix}_{'0' * 26}" if rest else value


_MORE_SECRETS = (
    "hold_id",
    "secret_id",
    "delivery_id",
    "grant_id",
    "credential_id",
    "credential_delivery_id",
    "correlation_id",
    "artifact_id",
    "artifact_delivery_id",
    "placement_id",
)


async def _place(world: World, org_id: str, project_id: str, name: str) -> Place:
    """A project with one of everything in it, an operation held by its own controller included."""
    at_home, world.project_id = world.project_id, project_id
    # The first place is entitled before; a request is possible only without the entitlement.
    await world.send(registry.BY_NAME["catalog.entitlement.set"], {"enabled": False}, app_slug="toy")
    requested = await world.send(registry.BY_NAME["catalog.entitlement_request.create"], {"app_slug": "toy"})
    assert requested.status_code == 201
    entitled = await world.send(registry.BY_NAME["catalog.entitlement.set"], {"enabled": True}, app_slug="toy")
    assert entitled.status_code == 200
    controller = await world.service_account("controller")
    credential = await world.credential()
    deployed: instances.Deployed = await world.deploy(name, host_key=credential.credential_id)
    claim: runtime.Claim = await world.claim(controller, lease_s=15)
    assert claim.operation is not None
    operation_id = claim.operation.operation_id
    await world.call(runtime.ACCESS_PUBLISH, {"epoch": claim.epoch}, token=controller, operation_id=operation_id)
    asked = {"epoch": claim.epoch, "purpose": "role_join", "name": "made"}
    issued = await world.call(secrets.SECRET_ISSUE, asked, token=controller, operation_id=operation_id)
    wanted = {
        "epoch": claim.epoch,
        "credential_id": credential.credential_id,
        "recipient_key": _RECIPIENT.public_key,
    }
    delivered = await world.call(credentials.CREDENTIAL_DELIVER, wanted, token=controller, operation_id=operation_id)
    granted = await world.machine_access(world.token, claim.members[0].allocation_id)
    held = await world.call(
        holds.HOLD_PLACE,
        {"name": "made", "kind": "no_removal", "reason": "matrix"},
        instance_id=deployed.instance.instance_id,
        member_id=claim.members[0].member_id,
    )
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "target"})
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
    of_org = await world.org_account(f"fleet-{name}", org_id=org_id, accept=[project_id])
    await artifact_world.trust(world, SIGNER, "release")
    artifact = await artifact_world.promoted(world, SIGNER, ARTIFACT)
    handed_out = await artifact_world.delivery(world, artifact)
    there = {"allocation_id": claim.members[0].allocation_id, "operation_id": operation_id, "epoch": claim.epoch}
    where = {"token": controller, "artifact_id": artifact.artifact_id}
    placement = await world.call(placements.PLACEMENT_CREATE, there, **where)
    listed = (await world.call(registry.BY_NAME["artifacts.shared_artifact.list"])).items
    shared, of_app = sorted(listed, key=lambda item: item.app_slug)
    person = await world.person(f"guest-of-{name}")
    ssh_key = await world.call(ssh_keys.SSH_KEY_CREATE, {"public_key": _PUBLIC_KEY}, token=person.token)
    role = {"user_id": person.user_id, "role": "tenant_admin"}
    bound_org = await world.call(bindings.ORG_BINDING_CREATE, role, org_id=org_id)
    bound_above = await world.call(bindings.PLATFORM_BINDING_CREATE, {**role, "role": "platform_ops"})
    bound = await world.call(bindings.PROJECT_BINDING_CREATE, {**role, "role": "viewer"})
    bound_app = await world.call(bindings.APP_BINDING_CREATE, {**role, "role": PUBLISHER}, app_slug="toy")
    glass = await world.call(bindings.BREAK_GLASS_CREATE, {"project_id": project_id, "reason": "testing the glass"})
    world.project_id = at_home
    params = {
        "org_id": org_id,
        "project_id": project_id,
        "instance_id": deployed.instance.instance_id,
        "operation_id": operation_id,
        "member_id": claim.members[0].member_id,
        "allocation_id": claim.members[0].allocation_id,
        "hold_id": held.hold_id,
        "component_key": "hand",
        "action": "paint",
        "secret_id": issued.secret.secret_id,
        "delivery_id": issued.delivery_id,
        "grant_id": granted.grant_id,
        "credential_id": credential.credential_id,
        "credential_delivery_id": delivered.delivery_id,
        "correlation_id": claim.operation.correlation_id,
        "service_account_id": account.service_account_id,
        "key_id": key.key_id,
        "org_account_id": of_org.service_account_id,
        "org_account_key_id": of_org.key_id,
        "accepted_account_id": of_org.service_account_id,
        "binding_id": bound.binding_id,
        "org_binding_id": bound_org.binding_id,
        "platform_binding_id": bound_above.binding_id,
        "app_binding_id": bound_app.binding_id,
        "break_glass_binding_id": glass.binding_id,
        "user_id": person.user_id,
        "session_id": "ses_" + "0" * 26,
        "ssh_key_id": ssh_key.ssh_key_id,
        "artifact_id": artifact.artifact_id,
        "shared_artifact_id": shared.artifact_id,
        "app_artifact_id": of_app.artifact_id,
        "artifact_delivery_id": handed_out.delivery_id,
        "placement_id": placement.placement_id,
        "trust_key_id": "release",
        "app_slug": "toy",
        "version": "1.0.0",
    }
    secret = ("project_id", "instance_id", "operation_id", "member_id", "allocation_id", "service_account_id", "key_id")
    return Place(params, controller, of_org.token, [params[name] for name in (*secret, *_MORE_SECRETS)])


async def _project(world: World, org_id: str, name: str) -> str:
    return (await world.call(identity.PROJECT_CREATE, {"name": name}, org_id=org_id)).project_id


async def _person(
    world: World, name: str, role: str, level: str, places: dict[str, Place], app_slug: str = "toy"
) -> str:
    """Roles are given over the API, by the admin who made everything."""
    person = await world.person(name)
    if role:
        endpoint = registry.BY_NAME[f"identity.{level}_binding.create"]
        params: dict[str, Any] = {key: places["own"].params[key] for key in ("org_id", "project_id")}
        answer = await world.send(endpoint, {"user_id": person.user_id, "role": role}, app_slug=app_slug, **params)
        assert answer.status_code == 201, answer.text
    return person.token


async def _in_an_emergency(world: World, place: Place) -> str:
    """An admin of the platform who has taken access to one project."""
    person = await world.person("gadmin", "platform_admin", "platform")
    body = {"project_id": place.params["project_id"], "reason": "testing the glass", "minutes": 60}
    await world.call(bindings.BREAK_GLASS_CREATE, body, token=person.token)
    return person.token


async def _revoke(world: World) -> None:
    accounts = (await world.call(identity.SERVICE_ACCOUNT_LIST)).items
    revoked = next(account for account in accounts if account.name == "revoked")
    endpoint = registry.BY_NAME["identity.service_account.disable"]
    answer = await world.send(endpoint, service_account_id=revoked.service_account_id)
    assert answer.status_code == 200
