"""The floor: a bare ASGI application on the same store that writes the same rows, and does nothing else."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from gpuaas_platform import server
from gpuaas_platform.kit import db, ids
from gpuaas_platform.kit.settings import Settings

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def serve(data: Path, port: int) -> None:
    async with server.open_site(Settings(data_dir=data)) as site:
        config = uvicorn.Config(_application(site.database), port=port, log_config=None, access_log=False)
        await uvicorn.Server(config).serve()


def _application(database: db.Database) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            body = msgspec.json.decode((await receive())["body"])
            content = await database.write(lambda tx: _insert(tx, body["name"]))
            await _answer(send, 201, content)
        elif scope["path"].startswith("/one/"):
            row = await database.reader.one("SELECT document FROM orgs WHERE org_id = $1", scope["path"][5:])
            await _answer(send, 200, str(row[0]).encode() if row else b"{}")
        else:
            rows = await database.reader.all("SELECT document FROM orgs WHERE org_id > '' ORDER BY org_id LIMIT 100")
            await _answer(send, 200, b'{"items":[' + b",".join(row[0].encode() for row in rows) + b"]}")

    return application


async def _insert(tx: db.Tx, name: str) -> bytes:
    """The rows a create leaves behind: the thing, its audit row, the answer kept for replays."""
    org_id = ids.new("org")
    document = msgspec.json.encode({"org_id": org_id, "name": name})
    text = document.decode()
    await tx.run("INSERT INTO orgs (org_id, name, document) VALUES ($1, $2, $3)", org_id, name, text)
    await tx.run(
        """INSERT INTO audit (chain, position, previous_hash, hash, project_id, actor_id, action, target, result,
                              correlation_id, occurred_at, document)
           VALUES ($1, 1, '', '', '', 'floor', 'create', $1, 'success', $1, 0, $2)""",
        org_id,
        text,
    )
    await tx.run(
        """INSERT INTO idempotency (actor_id, route, idempotency_key, request_digest, answer, created_at)
           VALUES ('floor', '/', $1, '', $2, 0)""",
        org_id,
        text,
    )
    return document


async def _answer(send: Send, status: int, content: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
