"""SQL of organisations, projects, users, service accounts and role bindings. `tokens.store` has tokens and keys."""

import datetime
from collections import defaultdict
from collections.abc import Sequence

from gpuaas_contract.bindings import RoleBinding
from gpuaas_contract.identity import Binding, Org, Project, ServiceAccount
from gpuaas_contract.users import User
from gpuaas_contract.wire import Timestamp, Wire

from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.kit.tables import Table


class Acceptance(Wire):
    """The row of a service account that a project accepts. `acceptances` adds what the account itself stores."""

    service_account_id: str
    name: str
    org_id: str
    project_id: str
    app_slug: str
    accepted_by: str
    accepted_at: Timestamp

    @property
    def acceptance_id(self) -> str:
        return f"{self.project_id}/{self.service_account_id}"


ORGS = Table("orgs", Org, "org_id", name=lambda org: org.name)
PROJECTS = Table(
    "projects", Project, "project_id", org_id=lambda project: project.org_id, name=lambda project: project.name
)
SERVICE_ACCOUNTS = Table(
    "service_accounts",
    ServiceAccount,
    "service_account_id",
    project_id=lambda account: owner_of(account),
    name=lambda account: account.name,
    state=lambda account: account.state,
)
"""The column `project_id` has the owner: for an account of an organisation, the id of the organisation."""
ACCEPTED_ACCOUNTS = Table(
    "accepted_accounts",
    Acceptance,
    "acceptance_id",
    project_id=lambda accepted: accepted.project_id,
    service_account_id=lambda accepted: accepted.service_account_id,
)

PEOPLE_TOPIC = "people"
"""Topic that wakes the loop that compares people, their accounts on machines, and what was announced."""

_USER = "SELECT user_id, name, state, password_hash, issuer, subject, created_by, created_at FROM users"
_LIVE_BINDING = """SELECT bindings.binding_id, bindings.user_id, users.name, bindings.role, bindings.scope,
    bindings.created_by, bindings.created_at, bindings.expires_at, bindings.reason
    FROM bindings JOIN users ON users.user_id = bindings.user_id
    WHERE (bindings.expires_at = 0 OR bindings.expires_at > $1)"""


async def user_by_name(reader: db.Reader, name: str) -> db.Row | None:
    return await reader.one(f"{_USER} WHERE name = $1", name)


async def user(reader: db.Reader, user_id: str) -> db.Row | None:
    return await reader.one(f"{_USER} WHERE user_id = $1", user_id)


async def user_by_name_or_id(reader: db.Reader, name_or_id: str) -> db.Row | None:
    return await user(reader, name_or_id) or await user_by_name(reader, name_or_id)


async def user_by_subject(reader: db.Reader, issuer: str, subject: str) -> db.Row | None:
    return await reader.one(f"{_USER} WHERE issuer = $1 AND subject = $2 AND issuer <> ''", issuer, subject)


async def users_with_ids(reader: db.Reader, user_ids: Sequence[str]) -> list[User]:
    rows = await reader.all(f"{_USER} WHERE user_id IN ({db.marks(len(user_ids))})", *user_ids)
    return [shown_user(row) for row in rows]


async def accounts_with_ids(reader: db.Reader, account_ids: Sequence[str]) -> list[ServiceAccount]:
    where = f"service_account_id IN ({db.marks(len(account_ids))})"
    return await SERVICE_ACCOUNTS.find(reader, where, *account_ids)


def owner_of(account: ServiceAccount) -> str:
    """Return the id of the project or, for an account of an organisation, of the organisation that owns it."""
    return account.project_id or account.org_id


async def accepting_projects(reader: db.Reader, account_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the projects that accept these accounts, by account id; accounts that no project accepts are left out."""
    projects: dict[str, list[str]] = defaultdict(list)
    sql = f"""SELECT service_account_id, project_id FROM accepted_accounts
              WHERE service_account_id IN ({db.marks(len(account_ids))})"""  # noqa: S608 - marks are ours
    for row in await reader.all(sql, *account_ids):
        projects[row[0]].append(row[1])
    return projects


async def works_in(reader: db.Reader, account_id: str, project_id: str) -> bool:
    """Return whether the project owns the account or accepts it."""
    sql = """SELECT 1 FROM service_accounts WHERE service_account_id = $1 AND project_id = $2
             UNION ALL SELECT 1 FROM accepted_accounts WHERE service_account_id = $1 AND project_id = $2"""
    return await reader.one(sql, account_id, project_id) is not None


async def forget_acceptances(tx: db.Tx, project_id: str) -> None:
    await tx.run("DELETE FROM accepted_accounts WHERE project_id = $1", project_id)


async def accounts_to_bind(reader: db.Reader) -> list[ServiceAccount]:
    """Return the accounts of earlier releases that have not been bound to the apps that they operate."""
    return await SERVICE_ACCOUNTS.find(
        reader, "service_account_id IN (SELECT service_account_id FROM unbound_accounts)"
    )


async def forget_account_to_bind(tx: db.Tx, account_id: str) -> None:
    await tx.run("DELETE FROM unbound_accounts WHERE service_account_id = $1", account_id)


async def users_after(reader: db.Reader, after: str, limit: int) -> list[User]:
    rows = await reader.all(f"{_USER} WHERE user_id > $1 ORDER BY user_id LIMIT $2", after, limit)
    return [shown_user(row) for row in rows]


def shown_user(row: db.Row) -> User:
    return User(
        user_id=row["user_id"],
        name=row["name"],
        state=row["state"],
        has_password=bool(row["password_hash"]),
        issuer=row["issuer"],
        external_id=f"oidc:{row['subject']}" if row["subject"] else "",
        created_by=row["created_by"],
        created_at=clock.moment(row["created_at"]),
    )


async def add_user(
    tx: db.Tx,
    name: str,
    *,
    created_by: str,
    now: datetime.datetime,
    password_hash: str = "",
    issuer: str = "",
    subject: str = "",
) -> str:
    user_id = ids.new("user")
    sql = """INSERT INTO users (user_id, name, state, password_hash, issuer, subject, created_by, created_at)
             VALUES ($1, $2, 'active', $3, $4, $5, $6, $7)"""
    await tx.run(sql, user_id, name, password_hash, issuer, subject, created_by, clock.micros(now))
    return user_id


async def set_user_state(tx: db.Tx, user_id: str, state: str) -> None:
    await tx.run("UPDATE users SET state = $2 WHERE user_id = $1", user_id, state)


async def set_password_hash(tx: db.Tx, user_id: str, password_hash: str) -> None:
    await tx.run("UPDATE users SET password_hash = $2 WHERE user_id = $1", user_id, password_hash)


async def bind(
    tx: db.Tx,
    user_id: str,
    role: str,
    scope: str,
    *,
    created_by: str = "",
    now: datetime.datetime = clock.EPOCH,
    expires_at: datetime.datetime | None = None,
    reason: str = "",
) -> str:
    """Insert a role binding and return its id. It replaces a temporary binding of the same role, expired or not."""
    binding_id = ids.new("bind")
    sql = """INSERT INTO bindings (binding_id, user_id, role, scope, created_by, created_at, expires_at, reason)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (user_id, role, scope) DO UPDATE SET binding_id = excluded.binding_id,
                 created_by = excluded.created_by, created_at = excluded.created_at, expires_at = excluded.expires_at,
                 reason = excluded.reason WHERE bindings.expires_at <> 0"""
    ends = clock.micros(expires_at) if expires_at else 0
    await tx.run(sql, binding_id, user_id, role, scope, created_by, clock.micros(now), ends, reason)
    return binding_id


async def unbind(tx: db.Tx, binding_id: str) -> None:
    await tx.run("DELETE FROM bindings WHERE binding_id = $1", binding_id)


async def unbind_all(tx: db.Tx, scope: str) -> None:
    await tx.run("DELETE FROM bindings WHERE scope = $1", scope)


async def bindings_of(reader: db.Reader, user_ids: Sequence[str], now: datetime.datetime) -> dict[str, list[Binding]]:
    """Return the role bindings of users that have not expired, by user id."""
    roles: dict[str, list[Binding]] = defaultdict(list)
    sql = f"""SELECT user_id, role, scope, expires_at, reason FROM bindings
              WHERE user_id IN ({db.marks(len(user_ids), 2)}) AND (expires_at = 0 OR expires_at > $1)"""  # noqa: S608
    for row in await reader.all(sql, clock.micros(now), *user_ids):
        roles[row[0]].append(role_of(row[1], row[2], row[3], row[4]))
    return roles


def role_of(role: str, scope: str, expires_at: int, reason: str) -> Binding:
    return Binding(role=role, scope=scope, expires_at=clock.moment_or_none(expires_at), reason=reason)


async def binding(reader: db.Reader, binding_id: str, now: datetime.datetime) -> RoleBinding | None:
    row = await reader.one(f"{_LIVE_BINDING} AND bindings.binding_id = $2", clock.micros(now), binding_id)
    return _shown_binding(row) if row is not None else None


async def bindings_at(
    reader: db.Reader, scope: str, now: datetime.datetime, after: str, limit: int
) -> list[RoleBinding]:
    sql = f"{_LIVE_BINDING} AND bindings.scope = $2 AND bindings.binding_id > $3 ORDER BY bindings.binding_id LIMIT $4"
    return [_shown_binding(row) for row in await reader.all(sql, clock.micros(now), scope, after, limit)]


async def holds(reader: db.Reader, user_id: str, role: str, scope: str) -> bool:
    """Return whether the user has the role permanently. Temporary role bindings do not count."""
    sql = "SELECT 1 FROM bindings WHERE user_id = $1 AND role = $2 AND scope = $3 AND expires_at = 0"
    return await reader.one(sql, user_id, role, scope) is not None


async def others_holding(reader: db.Reader, role: str, scope: str, *, apart_from: str) -> int:
    """Return how many other active users have the role in this scope permanently."""
    sql = """SELECT count(*) FROM bindings JOIN users ON users.user_id = bindings.user_id
             WHERE bindings.role = $1 AND bindings.scope = $2 AND bindings.expires_at = 0
             AND users.state = 'active' AND users.user_id <> $3"""
    row = await reader.one(sql, role, scope, apart_from)
    return int(row[0]) if row is not None else 0


def _shown_binding(row: db.Row) -> RoleBinding:
    return RoleBinding(
        binding_id=row[0],
        user_id=row[1],
        user_name=row[2],
        role=row[3],
        scope=row[4],
        created_by=row[5],
        created_at=clock.moment(row[6]),
        expires_at=clock.moment_or_none(row[7]),
        reason=row[8],
    )
