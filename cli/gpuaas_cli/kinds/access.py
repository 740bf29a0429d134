"""Who may enter machines: grants of certificates, customers' credentials, people's own SSH keys."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.access import GRANT_LIST
from gpuaas_contract.credentials import CREDENTIAL_LIST
from gpuaas_contract.ssh_keys import SSH_KEY_LIST

from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, listed, names
from gpuaas_cli.output import Column, age, clock_time


async def _grants(session: Session, filters: Filters) -> Sequence[Any]:
    return await session.every(GRANT_LIST, query={} if filters.everything else {"state": "active"})


async def _credentials(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(CREDENTIAL_LIST)
    return [one for one in found if filters.everything or one.state != "revoked"]


KINDS: tuple[Kind, ...] = (
    Kind(
        "grants",
        names("grant", "grants", "machine-grant", "machine-grants"),
        _grants,
        (
            Column("GRANT", lambda one: one.grant_id),
            Column("STATE", lambda one: one.state),
            Column("NODE", lambda one: one.node_name),
            Column("WHO", lambda one: one.actor_name or one.actor_id),
            Column("FROM", lambda one: one.source),
            Column("UNTIL", lambda one: clock_time(one.expires_at)),
            Column("SERIAL", lambda one: str(one.serial), wide=True),
            Column("ALLOCATION", lambda one: one.allocation_id, wide=True),
            Column("ENDED_BY", lambda one: one.ended_by, wide=True),
            Column("OPERATION", lambda one: one.operation_id),
            Column("WHY_ENDED", lambda one: one.end_reason),
        ),
        lambda one: one.grant_id,
        lambda one: (one.grant_id,),
    ),
    Kind(
        "credentials",
        names("credential", "credentials", "cred", "creds"),
        _credentials,
        (
            Column("NAME", lambda one: one.name),
            Column("STATE", lambda one: one.state),
            Column("VERSION", lambda one: str(one.version)),
            Column("USER", lambda one: one.username),
            Column("USED", lambda one: age(one.last_used_at) if one.last_used_at else ""),
            Column("OPENED", lambda one: f"{one.deliveries_opened}/{one.deliveries}"),
            Column("AGE", lambda one: age(one.created_at)),
            Column("CREDENTIAL", lambda one: one.credential_id),
            Column("USED_FOR", lambda one: one.last_used_for, wide=True),
            Column("PUBLIC_KEY", lambda one: one.public_key, wide=True),
            Column("FINGERPRINT", lambda one: one.fingerprint),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.credential_id, one.fingerprint),
        find=lookup.credential,
    ),
    Kind(
        "ssh-keys",
        names("ssh-key", "ssh-keys", "sshkey", "sshkeys"),
        listed(SSH_KEY_LIST),
        (
            Column("KEY", lambda one: one.ssh_key_id),
            Column("ALGORITHM", lambda one: one.algorithm),
            Column("FINGERPRINT", lambda one: one.fingerprint),
            Column("AGE", lambda one: age(one.created_at)),
            Column("COMMENT", lambda one: one.comment),
        ),
        lambda one: one.ssh_key_id,
        lambda one: (one.ssh_key_id, one.fingerprint, one.comment),
    ),
)
