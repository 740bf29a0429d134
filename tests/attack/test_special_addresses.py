"""Attack: a tenant publishes an artifact whose source is an address that hides an internal IPv4 address.

NAT64, 6to4, Teredo and IPv4-compatible addresses look global, but a gateway or the kernel delivers the packets to the
IPv4 address inside: the platform would fetch from its own network for the tenant.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from gpuaas_contract import artifacts
from server_process import Cloud, ServerProcess

HIDDEN = [
    "127.0.0.1",
    "[::1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:5ef5:79fb:0:0:80ff:fffe]",
    "[2606:4700::5efe:10.0.0.1]",
    "[fe80::1]",
    "[fd00::1]",
    "[fec0::1]",
    "[ff0e::1]",
    "[2001:db8::1]",
    "192.88.99.1",
    "100.64.0.1",
]


@pytest.fixture
async def attacked(tmp_path: Path) -> AsyncIterator[Cloud]:
    with ServerProcess(tmp_path / "data") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(server.admin_password())
            await cloud.make_project()
            yield cloud


async def test_no_special_address_is_fetched_from(attacked: Cloud) -> None:
    answers = {host: await _verify(attacked, host) for host in HIDDEN}
    assert answers == dict.fromkeys(HIDDEN, (422, "artifact_source_denied"))


async def _verify(cloud: Cloud, host: str) -> tuple[int, str]:
    body = {
        "name": uuid.uuid4().hex,
        "digest": f"sha256:{uuid.uuid4().hex * 2}",
        "size_bytes": 5,
        "media_type": "text/plain",
        "source": {"kind": "http", "url": f"http://{host}:1/secret"},
    }
    artifact = await cloud.call(artifacts.PUBLISH, body)
    answer = await cloud.send(artifacts.VERIFY, {}, artifact_id=artifact.artifact_id)
    return answer.status_code, answer.json()["code"]
