"""The bad day of an operator who copied the database file alone, and of one who restored an old backup.

A server answers writes and is never stopped. A copy of `gpuaas.sqlite` without its WAL misses changes that were
answered, and looks sound. A backup has all of them. After its restore on an empty machine, the session and the claim
from before are refused, and the same people can sign in again.
"""

import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
from gpuaas_contract import catalog, errors, identity, instances, runtime
from server_process import APP, Cloud, ServerProcess

PLATFORM = [sys.executable, "-m", "gpuaas_platform.main"]
CHANGES = 100


async def test_a_copy_of_the_main_file_loses_answered_changes_and_a_backup_does_not(tmp_path: Path) -> None:
    source, identity_file = tmp_path / "cloud", tmp_path / "identity"
    recipient = _run("backup", "--new-identity", identity_file).strip()
    server = ServerProcess(source)
    password = server.admin_password()
    with server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(password)
            await cloud.make_project()
            for _ in range(CHANGES):
                await cloud.make_event()
            copy = tmp_path / "copy"
            copy.mkdir()
            (copy / "gpuaas.sqlite").write_bytes((source / "gpuaas.sqlite").read_bytes())
            _run("backup", "--data", source, "--to", tmp_path / "backup", "--recipient", recipient)
            answered = list(cloud.answered)
            await cloud.make_event()
    assert _count(copy) < CHANGES
    _run("restore", "--from", tmp_path / "backup", "--identity", identity_file, "--data", tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as restored:
        async with httpx.AsyncClient(base_url=restored.url, timeout=60) as client:
            again = Cloud(client, cloud.token, cloud.project_id)
            assert (await again.send(identity.ME)).status_code == 401
            await again.sign_in(password)
            recorded = [event.correlation_id for event in await again.recorded()]
            assert [correlation_id for correlation_id in recorded if correlation_id in answered] == answered


async def test_a_controller_of_the_old_platform_is_refused_by_the_restored_one(tmp_path: Path) -> None:
    source, identity_file = tmp_path / "cloud", tmp_path / "identity"
    recipient = _run("backup", "--new-identity", identity_file).strip()
    server = ServerProcess(source)
    password = server.admin_password()
    with server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(password)
            await cloud.make_project()
            await cloud.call(catalog.VERSION_PUBLISH, {}, app_slug=APP["slug"], version=APP["version"])
            await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=APP["slug"])
            allocation_id = await cloud.allocation()
            inputs = {"allocation": allocation_id}
            body = {"name": "one", "app_slug": APP["slug"], "topology": "solo", "inputs": inputs}
            await cloud.call(instances.INSTANCE_CREATE, body)
            key = await cloud.service_account_key("controller", str(APP["slug"]))
            token = (await cloud.call(identity.SERVICE_ACCOUNT_TOKEN, key, token="")).access_token
            claim = {"app_slug": APP["slug"], "holder": "old", "claim_id": "one", "lease_s": 60}
            held = await cloud.call(runtime.CLAIM, claim, token=token)
            _run("backup", "--data", source, "--to", tmp_path / "backup", "--recipient", recipient)
    _run("restore", "--from", tmp_path / "backup", "--identity", identity_file, "--data", tmp_path / "restored")
    assert held.operation is not None
    with ServerProcess(tmp_path / "restored") as restored:
        async with httpx.AsyncClient(base_url=restored.url, timeout=60) as client:
            again = Cloud(client, "", cloud.project_id)
            beat = {"epoch": held.epoch, "lease_s": 60}
            operation_id = held.operation.operation_id
            assert (
                await again.send(runtime.HEARTBEAT, beat, token=token, operation_id=operation_id)
            ).status_code == 401
            token = (await again.call(identity.SERVICE_ACCOUNT_TOKEN, key, token="")).access_token
            refused = await again.send(runtime.HEARTBEAT, beat, token=token, operation_id=operation_id)
            assert msgspec.json.decode(refused.content, type=errors.Problem).code == errors.LeaseLost.code
            newer = await again.call(runtime.CLAIM, {**claim, "claim_id": "two"}, token=token)
            assert newer.epoch > held.epoch


def _run(*arguments: object) -> str:
    return subprocess.run([*PLATFORM, *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def _count(copy: Path) -> int:
    """Events in a copy of the main file, read as an operator does who checks the copy."""
    script = """import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
sql = "SELECT count(*) FROM events WHERE correlation_id LIKE 'made-%'"
print(connection.execute(sql).fetchone()[0] if "events" in tables else 0)"""
    command = [sys.executable, "-c", script, str(copy / "gpuaas.sqlite")]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
