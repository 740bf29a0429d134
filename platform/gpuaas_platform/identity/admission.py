"""Who a token is for, what a route names, and which of the caller's roles reach it: one read for every call.

Everything is looked up on every call, so what was revoked, disabled or expired counts from the next one on. The edge
asks and decides; nobody else needs more of a caller's roles than those that reach the target.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.identity import Binding, Project, ServiceAccount

from gpuaas_platform.call import Caller
from gpuaas_platform.identity import service_accounts
from gpuaas_platform.kit import clock, db, ids

_PROJECT = msgspec.json.Decoder(Project)
_ACCOUNT = msgspec.json.Decoder(ServiceAccount)
_ADMISSION = """
    SELECT token.actor_type, token.actor_id, token.token_id, token.expires_at, person.name, person.state,
           account.document, project.document, org.org_id, binding.role, binding.scope, binding.expires_at
    FROM tokens token
    LEFT JOIN users person ON person.user_id = token.actor_id
    LEFT JOIN service_accounts account ON account.service_account_id = token.actor_id
    LEFT JOIN projects project ON project.project_id = $2
    LEFT JOIN orgs org ON org.org_id = $3
    LEFT JOIN bindings binding ON binding.user_id = token.actor_id
        AND binding.scope IN ('platform', $2, $3, project.org_id)
        AND (binding.expires_at = 0 OR binding.expires_at > $4)
    WHERE token.digest = $1"""


@dataclass(frozen=True, slots=True)
class Admission:
    caller: Caller
    """With the roles that reach the target, or the whole platform where the route names none."""
    project: Project | None
    org_exists: bool


async def read(
    reader: db.Reader, token: str, now: datetime.datetime, *, project_id: str = "", org_id: str = ""
) -> Admission:
    rows = await reader.all(_ADMISSION, ids.digest(token), project_id, org_id, clock.micros(now))
    if not rows:
        raise errors.TokenInvalid
    first = rows[0]
    if first[3] <= clock.micros(now):
        raise errors.TokenExpired
    project = _PROJECT.decode(first[7]) if first[7] is not None else None
    return Admission(_caller(rows), project, first[8] is not None)


def _caller(rows: Sequence[db.Row]) -> Caller:
    kind, actor_id, session_id, expires_at = rows[0][0], rows[0][1], rows[0][2], clock.moment(rows[0][3])
    if kind == "node":
        return Caller("node", actor_id, session_id=session_id, session_expires_at=expires_at)
    if kind == "service_account":
        account = _ACCOUNT.decode(rows[0][6]) if rows[0][6] is not None else None
        if account is None or account.state != "active":
            raise errors.TokenInvalid
        bindings: tuple[Binding, ...] = (service_accounts.binding_of(account),)
        return Caller("service_account", actor_id, account.name, bindings, session_id, expires_at)
    if rows[0][5] != "active":
        raise errors.TokenInvalid
    bindings = tuple(
        Binding(role=row[9], scope=row[10], expires_at=clock.moment_or_none(row[11]))
        for row in rows
        if row[9] is not None
    )
    return Caller("user", actor_id, rows[0][4], bindings, session_id, expires_at)
