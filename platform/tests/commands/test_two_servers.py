"""Two servers on two machines and one PostgreSQL, behind a load balancer."""

import asyncio
from pathlib import Path

import httpx
import postgres_server
from gpuaas_contract import identity
from gpuaas_platform.kit import ids
from server_process import Cloud, ServerProcess
from two_servers import Balancer, second_folder

DEADLINE_S = 120


async def test_each_connection_may_go_to_either_server_and_one_may_fail(postgres_folder: Path, tmp_path: Path) -> None:
    name = ids.new("db")
    postgres_server.create_database(postgres_folder, name)
    url = f"postgresql://postgres@/{name}?host={postgres_folder}"
    first = ServerProcess(tmp_path / "first", url)
    password = first.admin_password()
    with first:
        second = ServerProcess(second_folder(tmp_path / "first", tmp_path / "second"), url)
        async with asyncio.timeout(DEADLINE_S), Balancer(first, second).listening() as balanced:
            with second:
                # A connection per request, so that the servers take turns.
                limits = httpx.Limits(max_keepalive_connections=0)
                async with httpx.AsyncClient(base_url=balanced, limits=limits, timeout=60) as client:
                    cloud = Cloud(client)
                    await cloud.sign_in(password)
                    await cloud.make_project()
                    made = [await cloud.make_event() for _ in range(6)]
                    key = await cloud.service_account_key("robot")
                    first.kill()
                    made += [await cloud.make_event() for _ in range(2)]
                    recorded = [event.correlation_id for event in await cloud.recorded()]
                    assert [item for item in recorded if item in made] == made
                    assert (await cloud.call(identity.SERVICE_ACCOUNT_TOKEN, key, token="")).access_token
                    first.start()
                    second.kill()
                    assert (await cloud.call(identity.ME)).name == "admin"
