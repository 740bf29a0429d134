"""SQL of organisations, projects, people, service accounts, tokens and bindings."""

from gpuaas_contract.identity import Binding, Org, Project, ServiceAccount

from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

ORGS = Table("orgs", Org, "org_id", name=lambda org: org.name)
PROJECTS = Table(
    "projects", Project, "project_id", org_id=lambda project: project.org_id, name=lambda project: project.name
)
SERVICE_ACCOUNTS = Table(
    "service_accounts",
    ServiceAccount,
    "service_account_id",
    project_id=lambda account: account.project_id,
    name=lambda account: account.name,
    state=lambda account: account.state,
)


async def user_by_name(reader: db.Reader, name: str) -> db.Row | None:
    return await reader.one("SELECT user_id, password_hash FROM users WHERE name = $1", name)


async def user_name(reader: db.Reader, user_id: str) -> str | None:
    row = await reader.one("SELECT name FROM users WHERE user_id = $1", user_id)
    return str(row[0]) if row is not None else None


async def put_user(tx: db.Tx, user_id: str, name: str, password_hash: str) -> None:
    await tx.run(
        """INSERT INTO users (user_id, name, password_hash) VALUES ($1, $2, $3)
           ON CONFLICT (name) DO UPDATE SET password_hash = excluded.password_hash""",
        user_id,
        name,
        password_hash,
    )


async def bind(tx: db.Tx, subject_id: str, role: str, scope: str) -> None:
    await tx.run(
        "INSERT INTO bindings (subject_id, role, scope) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        subject_id,
        role,
        scope,
    )


async def bindings(reader: db.Reader, subject_id: str) -> tuple[Binding, ...]:
    rows = await reader.all("SELECT role, scope FROM bindings WHERE subject_id = $1", subject_id)
    return tuple(Binding(role=row[0], scope=row[1]) for row in rows)


async def add_token(tx: db.Tx, digest: str, actor_type: str, actor_id: str, expires_at: int) -> None:
    await tx.run(
        "INSERT INTO tokens (digest, actor_type, actor_id, expires_at) VALUES ($1, $2, $3, $4)",
        digest,
        actor_type,
        actor_id,
        expires_at,
    )


async def token(reader: db.Reader, digest: str) -> db.Row | None:
    return await reader.one("SELECT actor_type, actor_id, expires_at FROM tokens WHERE digest = $1", digest)


async def forget_tokens(tx: db.Tx, expired_before: int) -> None:
    await tx.run("DELETE FROM tokens WHERE expires_at < $1", expired_before)


async def add_key(tx: db.Tx, key_id: str, service_account_id: str, secret_digest: str) -> None:
    await tx.run(
        "INSERT INTO service_account_keys (key_id, service_account_id, secret_digest) VALUES ($1, $2, $3)",
        key_id,
        service_account_id,
        secret_digest,
    )


async def key(reader: db.Reader, key_id: str) -> db.Row | None:
    return await reader.one(
        "SELECT service_account_id, secret_digest FROM service_account_keys WHERE key_id = $1", key_id
    )
