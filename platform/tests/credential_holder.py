"""An app controller in a process of its own: opens a credential with the SDK's words, logs in with it, and waits.

What it needs comes by standard input; it prints `used` after a login with the key, and ends with its input."""

import asyncio
import json
import sys
from typing import Any

import asyncssh
import httpx
import msgspec
from gpuaas_contract import credentials
from gpuaas_sdk.sealed import Recipient


async def main() -> None:
    asked = json.loads(sys.stdin.readline())
    private_key = await _opened(asked)
    await _use(private_key)
    sys.stdout.write("used\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


async def _opened(asked: dict[str, Any]) -> str:
    recipient = Recipient()
    params = {"project_id": asked["project_id"], "operation_id": asked["operation_id"]}
    headers = {"Authorization": f"Bearer {asked['token']}"}
    async with httpx.AsyncClient(base_url=asked["url"], headers=headers, timeout=30) as client:
        body = {
            "epoch": asked["epoch"],
            "credential_id": asked["credential_id"],
            "recipient_key": recipient.public_key,
        }
        made = await client.post(credentials.CREDENTIAL_DELIVER.path.format(**params), json=body)
        delivery_id = made.raise_for_status().json()["delivery_id"]
        path = credentials.CREDENTIAL_OPEN.path.format(**params, delivery_id=delivery_id)
        opening = {"operation_id": asked["operation_id"], "epoch": asked["epoch"]}
        answer = await client.post(path, json=opening)
    credential = msgspec.json.decode(answer.raise_for_status().content, type=credentials.OpenedCredential)
    return recipient.open(credential)


async def _use(private_key: str) -> None:
    """Log in to a host that accepts only this key."""
    key = asyncssh.import_private_key(private_key)
    allowed = asyncssh.import_authorized_keys(key.export_public_key().decode())
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    async with asyncssh.listen("127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=allowed) as host:
        port = host.sockets[0].getsockname()[1]
        known = asyncssh.import_known_hosts(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
        async with asyncssh.connect(
            "127.0.0.1", port, username="ops", client_keys=[key], known_hosts=known, agent_path=None, config=None
        ):
            pass


if __name__ == "__main__":
    asyncio.run(main())
