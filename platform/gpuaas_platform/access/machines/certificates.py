"""Sign a short-lived SSH certificate for the machine of an allocation, and record the grant."""

import datetime
import secrets
import socket

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from gpuaas_contract import errors
from gpuaas_contract.access import MachineAccess, MachineGrant, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import MachineGranted

from gpuaas_platform.access.machines import rules, store
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, ids, structs
from gpuaas_platform.record import service as record

_SSH_PORT = 22


async def grant(
    tx: db.Tx, call: Call, allocation: Allocation, body: RequestMachineAccess, authority: Ed25519PrivateKey
) -> MachineAccess:
    """A dry run returns no certificate: it would open the machine without a grant that can be revoked."""
    terms = rules.terms(
        allocation,
        actor_id=call.caller.actor_id,
        operation_id=body.operation_id,
        source=_source(call.peer, allocation.address),
        ttl_s=body.ttl_s,
        ttl_max_s=call.site.settings.machine_access_ttl_max_s,
        now=call.now,
    )
    granted = _new_grant(call, allocation, body, terms)
    certificate = _sign(authority, body.public_key, int(granted.serial), terms)
    await store.GRANTS.insert(tx, granted)
    await _announce(tx, call, granted)
    return MachineAccess(
        grant_id=granted.grant_id,
        certificate="" if call.dry_run else certificate,
        serial=granted.serial,
        principal=terms.principal,
        host=allocation.address,
        port=_SSH_PORT,
        user=allocation.username_on_node,
        host_public_key=await allocations.host_public_key(tx, allocation),
        expires_at=terms.valid_to,
    )


def _new_grant(
    call: Call, allocation: Allocation, body: RequestMachineAccess, terms: rules.CertificateTerms
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
        epoch=body.epoch if body.operation_id else 0,
        actor_type="user" if call.caller.actor_type == "user" else "service_account",
        actor_id=call.caller.actor_id,
        actor_name=call.caller.name,
        serial=str(secrets.randbits(62)),
        source=terms.source,
        state="active",
        granted_at=call.now,
        expires_at=terms.valid_to,
        sessions_until=None if body.operation_id else call.now + session,
    )


async def _announce(tx: db.Tx, call: Call, granted: MachineGrant) -> None:
    payload = structs.pick(MachineGranted, granted)
    await record.emit(tx, call.origin, "access.machine.granted", payload, granted)


def _source(peer: str, machine_address: str) -> str:
    """Return the address that the machine will see: for a caller on loopback, the one that this host would use."""
    if not rules.is_loopback(peer):
        return peer
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((machine_address, _SSH_PORT))
        except OSError as error:
            raise errors.Conflict(f"There is no route to {machine_address} from here.") from error
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
