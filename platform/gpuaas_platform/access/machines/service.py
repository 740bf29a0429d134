"""Grant machine access, as a short-lived SSH certificate, to a person or to a controller that claimed an operation.

`reconcile` ends grants.
"""

import datetime
import secrets
import socket
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from gpuaas_contract import errors
from gpuaas_contract.access import GrantQuery, MachineAccess, MachineGrant, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import MachineGranted
from gpuaas_contract.paths import AllocationPath, ProjectPath

from gpuaas_platform.access.machines import authority, revoke, rules, store
from gpuaas_platform.allocations import rules as allocation_rules
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.allocations.people import rules as people_rules
from gpuaas_platform.allocations.people import service as people
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, ids, paging, peers, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.operations import fence, stewards
from gpuaas_platform.record import service as record

_SSH_PORT = 22


async def check_root(call: Call[AllocationPath], body: RequestMachineAccess) -> RequestMachineAccess:
    """Check the request before the transaction, because a denial must be recorded even if the call is rolled back."""
    rules.check_as(body)
    if body.instance_id:
        await _ask_for_observer(call)
    if body.as_ == "root" and not body.operation_id and call.caller.actor_type == "user":
        reader, project = call.site.database.reader, call.in_project()
        if not await permissions.holds(reader, call.caller, project, rules.ROOT):
            admins = await people.admins(reader, project, call.now)
            raise await permissions.denial(call, rules.ROOT, rules.no_root(admins))
    return body


async def with_signing_key(call: Call, body: RequestMachineAccess) -> tuple[RequestMachineAccess, Ed25519PrivateKey]:
    """Read the signing key before the transaction, because custody may be another server."""
    return body, await authority.signing_key(call.site)


async def grant(
    tx: db.Tx, call: Call[AllocationPath], prepared: tuple[RequestMachineAccess, Ed25519PrivateKey]
) -> MachineAccess:
    """Grant access. A controller gets it only for an operation it claimed or an instance it looks after, on a machine
    of the instance."""
    body, signing_key = prepared
    allocation = await allocations.in_project(tx, call.in_project().project_id, call.path.allocation_id)
    if body.operation_id:
        await check_claim(tx, call, allocation, body.operation_id, body.epoch)
    elif body.instance_id:
        return await _observe(tx, call, allocation, body, signing_key)
    elif call.caller.actor_type != "user":
        fix = "Send operation_id and epoch of an operation you claimed, or instance_id and epoch of your stewardship."
        raise errors.PermissionDenied(
            "A service account enters a machine only for an operation or an instance it holds.", fix=fix
        )
    rules.check_open(allocation)
    is_root = bool(body.operation_id) or body.as_ == "root"
    door = rules.root_door(allocation) if is_root else await _own_door(tx, call, allocation)
    call.details["access"] = door.access
    return await _sign_and_record(tx, call, allocation, body, door, signing_key)


async def list_grants(reader: db.Reader, call: Call[ProjectPath, GrantQuery]) -> EncodedPage[MachineGrant]:
    asked = {name: getattr(call.query, name) for name in ("state", "allocation_id", "operation_id")}
    where, values = db.equal({"project_id": call.path.project_id, **asked})
    return await paging.encoded(reader, store.GRANTS, call.query, where, *values)


async def of_controllers(reader: db.Reader, project_id: str, allocation_ids: Sequence[str]) -> list[MachineGrant]:
    """Return the grants of app controllers on these allocations, also those that have ended."""
    if not allocation_ids:
        return []
    marks = db.marks(len(allocation_ids), first=2)
    where = f"project_id = $1 AND allocation_id IN ({marks}) ORDER BY grant_id"
    granted = await store.GRANTS.find(reader, where, project_id, *allocation_ids)
    return [grant for grant in granted if grant.actor_type == "service_account"]


async def check_claim(
    tx: db.Tx, call: Call[ProjectPath], allocation: Allocation, operation_id: str, epoch: int
) -> None:
    """Refuse a caller without the newest claim of the operation, and a machine that its instance does not use."""
    operation = await fence.check(tx, call, operation_id, epoch)
    _check_used(allocation, operation.instance_id)
    await fence.check_entitled(tx, operation)


def _check_used(allocation: Allocation, instance_id: str) -> None:
    if instance_id not in allocation.used_by_instance_ids:
        raise errors.PermissionDenied(
            "The allocation does not belong to this instance.",
            details={"instance_id": instance_id},
            fix="Ask for a machine of a member of this instance.",
        )


async def _ask_for_observer(call: Call[AllocationPath]) -> None:
    """Have a machine that an earlier release prepared get its user for observers. In a transaction of its own, because
    the request itself is refused until the user exists."""
    reader, allocation_id = call.site.database.reader, call.path.allocation_id
    allocation = await allocations.in_project(reader, call.in_project().project_id, allocation_id)
    if allocation_rules.must_ask_for_observer(allocation, call.now) and not call.dry_run:
        await call.site.database.write(lambda tx: allocations.ask_for_observer(tx, call, allocation_id))


async def _observe(
    tx: db.Tx,
    call: Call[AllocationPath],
    allocation: Allocation,
    body: RequestMachineAccess,
    signing_key: Ed25519PrivateKey,
) -> MachineAccess:
    """Grant observer access to the steward of the instance. It replaces the access that was granted before: the steward
    asks again only if its connection broke."""
    instance = await instances.in_project(tx, call, body.instance_id)
    await stewards.check(tx, call, instance, body.epoch)
    _check_used(allocation, instance.instance_id)
    rules.check_open(allocation)
    allocation_rules.check_observer(allocation, call.now)
    call.details["access"] = "observer"
    body = msgspec.structs.replace(body, instance_id=instance.instance_id)
    replaced = [grant for grant in await store.active(tx) if rules.is_replaced(grant, allocation, body)]
    for grant in replaced:
        await revoke.end(tx, call.origin, grant, "a newer certificate replaces it")
    if replaced:
        await revoke.send(tx, call.site, call.origin, allocation.node_id)
    return await _sign_and_record(tx, call, allocation, body, rules.observer_door(allocation), signing_key)


async def _own_door(reader: db.Reader, call: Call, allocation: Allocation) -> rules.Door:
    """Return the door to the caller's own account, which the agent must have made on the machine."""
    user_id = call.caller.actor_id
    identity = await posix.identity_of(reader, allocation.org_id, user_id)
    await people.check_has_account(reader, allocation, user_id)
    if identity is None:
        raise errors.AccountPending
    return rules.Door("person", identity.login, people_rules.principal(allocation.allocation_id, user_id))


async def _sign_and_record(
    tx: db.Tx,
    call: Call,
    allocation: Allocation,
    body: RequestMachineAccess,
    door: rules.Door,
    signing_key: Ed25519PrivateKey,
) -> MachineAccess:
    """Sign and save a grant. A dry run returns no certificate: it could not be revoked, as no grant is saved."""
    terms = rules.terms(
        allocation,
        door,
        actor_id=call.caller.actor_id,
        held_id=body.operation_id or body.instance_id,
        source=_source(call.peer, allocation.address),
        ttl_s=body.ttl_s,
        ttl_max_s=call.site.settings.machine_access_ttl_max_s,
        now=call.now,
    )
    granted = _new_grant(call, allocation, body, terms, door)
    certificate = _sign(signing_key, body.public_key, int(granted.serial), terms)
    await store.GRANTS.insert(tx, granted)
    await record.emit(tx, call.origin, "access.machine.granted", structs.pick(MachineGranted, granted), granted)
    return structs.pick(
        MachineAccess,
        granted,
        certificate="" if call.dry_run else certificate,
        principal=terms.principal,
        host=allocation.address,
        port=_SSH_PORT,
        user=door.user,
        host_public_key=await allocations.host_public_key(tx, allocation),
    )


def _new_grant(
    call: Call, allocation: Allocation, body: RequestMachineAccess, terms: rules.CertificateTerms, door: rules.Door
) -> MachineGrant:
    session = datetime.timedelta(seconds=call.site.settings.machine_session_s_max)
    return MachineGrant(
        grant_id=ids.new("grant"),
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        allocation_id=allocation.allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        operation_id=body.operation_id,
        instance_id=body.instance_id,
        epoch=body.epoch if body.operation_id or body.instance_id else 0,
        actor_type="user" if call.caller.actor_type == "user" else "service_account",
        actor_id=call.caller.actor_id,
        actor_name=call.caller.name,
        session_id=call.caller.session_id,
        serial=str(secrets.randbits(62)),
        source=terms.source,
        state="active",
        granted_at=call.now,
        expires_at=terms.valid_to,
        access=door.access,
        sessions_until=None if body.operation_id or body.instance_id else call.now + session,
    )


def _source(peer: str, machine_address: str) -> str:
    """Return the caller's address as the machine sees it; for a caller on loopback, the platform's own address."""
    if remote := peers.remote(peer):
        return remote
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((machine_address, _SSH_PORT))
        except OSError as error:
            raise errors.Conflict(
                f"The platform has no route to the machine at {machine_address}.",
                fix="Request access from a machine that reaches it, or have the operator add a route to the server.",
            ) from error
        return str(probe.getsockname()[0])


def _sign(authority: Ed25519PrivateKey, public_key: str, serial: int, terms: rules.CertificateTerms) -> str:
    try:
        key = serialization.load_ssh_public_key(public_key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise errors.ValidationFailed("public_key is not an OpenSSH public key.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise errors.ValidationFailed("public_key must be an Ed25519 key.")
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .serial(serial)
        .type(serialization.SSHCertificateType.USER)
        .key_id(terms.key_id.encode())
        .valid_principals([terms.principal.encode()])
        .valid_after(int(terms.valid_from.timestamp()))
        .valid_before(int(terms.valid_to.timestamp()))
        .add_critical_option(b"source-address", terms.source.encode())
    )
    if terms.interactive:
        builder = builder.add_extension(b"permit-pty", b"")
    return builder.sign(authority).public_bytes().decode()
