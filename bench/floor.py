"""The floor: a minimal ASGI application that writes the same rows to the same store as the platform, and nothing else.

A create writes the service account, its audit row and the response that is stored for repeated requests, in the same
tables with the same indexes. The documents have the same length as those of the platform. The floor does not
authenticate, compute hashes, compare digests or write log lines.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from gpuaas_contract import identity
from gpuaas_contract.audit import AuditEntry
from gpuaas_contract.permissions import PROGRAM_KEYS

from bench.platform_parts import ORG_TABLE, Settings, Site, Tx, clock, ids, open_site

ORGS = 120
_HASH = "0" * 64
_ROUTE = "identity.service_account.create"
_PERMISSIONS = sorted(PROGRAM_KEYS)

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


async def serve(data: Path, port: int) -> None:
    async with open_site(Settings(data_dir=data)) as site:
        await site.database.write(_insert_orgs)
        config = uvicorn.Config(application(site), port=port, log_config=None, access_log=False)
        await uvicorn.Server(config).serve()


def application(site: Site) -> Application:
    rows = Rows()

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        reader = site.database.reader
        if scope["method"] == "POST":
            name = msgspec.json.decode((await receive())["body"])["name"]
            await _answer(send, 201, await site.database.write(lambda tx: rows.insert(tx, name)))
        elif scope["path"].startswith("/one/"):
            row = await reader.one(_ACCOUNT_BY_ID, scope["path"][5:])
            await _answer(send, 200, row[0].encode() if row else b"{}")
        else:
            orgs = await reader.all(_HUNDRED_ORGS)
            await _answer(send, 200, b'{"items":[' + b",".join([row[0].encode() for row in orgs]) + b"]}")

    return answer


_ACCOUNT_BY_ID = "SELECT document FROM service_accounts WHERE service_account_id = $1"
_HUNDRED_ORGS = "SELECT document FROM orgs WHERE org_id > '' ORDER BY org_id LIMIT 100"
_ACCOUNT = """INSERT INTO service_accounts (service_account_id, project_id, name, state, document)
    VALUES ($1, $2, $3, $4, $5)"""
_AUDIT = """INSERT INTO audit (chain, position, previous_hash, hash, project_id, actor_id, action, target, result,
    correlation_id, occurred_at, document) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"""
_KEPT = """INSERT INTO idempotency (actor_id, route, idempotency_key, request_digest, answer, created_at)
    VALUES ($1, $2, $3, $4, $5, $6)"""


class Rows:
    """Writes the rows of one created service account."""

    def __init__(self) -> None:
        self._org_id, self._project_id, self._user_id = ids.new("org"), ids.new("proj"), ids.new("user")
        self._path = f"/api/v1/projects/{self._project_id}/service-accounts"
        self._position = 0

    async def insert(self, tx: Tx, name: str) -> bytes:
        now, account_id, correlation_id = clock.utc_now(), ids.new("sa"), ids.new("cor")
        micros = clock.micros(now)
        self._position += 1
        account = identity.ServiceAccount(
            service_account_id=account_id,
            org_id=self._org_id,
            project_id=self._project_id,
            name=name,
            state="active",
            created_by=self._user_id,
            created_at=now,
            permissions=_PERMISSIONS,
        )
        entry = AuditEntry(
            audit_id=ids.new("aud"),
            occurred_at=now,
            actor_type="user",
            actor_id=self._user_id,
            actor_name="admin",
            action=_ROUTE,
            target=account_id,
            result="success",
            correlation_id=correlation_id,
            org_id=self._org_id,
            project_id=self._project_id,
            peer="127.0.0.1",
            route=_ROUTE,
            details={"apps": [], "permissions": _PERMISSIONS},
        )
        content = msgspec.json.encode(account)
        document, written = content.decode(), msgspec.json.encode(entry).decode()
        project_id, user_id = self._project_id, self._user_id
        await tx.run(_ACCOUNT, account_id, project_id, name, "active", document)
        audit = (self._org_id, self._position, _HASH, _HASH, project_id, user_id, _ROUTE, account_id, "success")
        await tx.run(_AUDIT, *audit, correlation_id, micros, written)
        await tx.run(_KEPT, user_id, self._path, name, _HASH, document, micros)
        return content


async def _insert_orgs(tx: Tx) -> None:
    for number in range(ORGS):
        org = identity.Org(org_id=ids.new("org"), name=f"org-{number}", created_at=clock.utc_now())
        await ORG_TABLE.insert(tx, org)


async def _answer(send: Send, status: int, content: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
