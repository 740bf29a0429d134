"""Write the records of a small platform to a file, as commit b5ec65a leaves them: each operation is one document.

Copy it into `platform/tests` of that commit as `test_make.py` and run `OUT=FOLDER pytest test_make.py` there. Each
engine writes a JSON file, which is kept here compressed."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import msgspec
from gpuaas_contract import identity, operations
from gpuaas_platform import server
from gpuaas_platform.kit.settings import Settings
from platform_world import World
from scripted_controller import CLUSTERED, Cluster, Controller, evidence, take_exit


async def test_write_records(world: World, settings: Settings) -> None:
    await world.entitled_app(**CLUSTERED)
    key, token = await _service_account(world)
    deployed = await world.deploy(hands=4)
    cluster = Cluster(world, Controller(world, token), deployed.instance.instance_id)
    await _deploy(cluster)
    await _open_operations(cluster)
    await server.heads_signer(world.site).sweep()
    records = {
        "now": world.clock().isoformat(),
        "project_id": world.project_id,
        "instance_id": cluster.instance_id,
        "key_id": key.key_id,
        "client_secret": key.client_secret,
        "operations": await _operations(world),
        "files": _files(settings.data_dir),
        "tables": await _tables(world, settings),
    }
    engine = "postgres" if settings.database_url else "sqlite"
    _write(Path(os.environ["OUT"], f"{engine}.json"), records)


def _write(path: Path, records: dict[str, Any]) -> None:
    path.write_text(json.dumps(records))


async def _service_account(world: World) -> tuple[identity.ServiceAccountKey, str]:
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, identity.CreateServiceAccount(name="controller"))
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
    login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
    return key, (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token


async def _deploy(cluster: Cluster) -> None:
    held = await cluster.controller.take()
    await held.step("prepare")
    await held.issue()
    for member_id in held.member_ids:
        await held.step("install", "succeeded", member_id)
    await held.publish()
    await held.carry_out()


async def _open_operations(cluster: Cluster) -> None:
    """A failed drain, an add half done, a drain that is being cancelled, and a replace that waits."""
    world, controller = cluster.world, cluster.controller
    failing, cancelled, waiting, kept = await cluster.hands()
    world.clock.forward(1.5)
    await cluster.operate("drain", failing)
    held = await controller.take()
    await held.step("drain it", "failed", failing)
    await held.fail()
    machines = await cluster.machines(3)
    await cluster.add(machines[0], machines[1])
    held = await controller.take(lease_s=60)
    first, second = held.member_ids
    await held.step("install", "succeeded", first)
    await held.step("install", "running", second)
    await held.report(first, "provisioning")
    drain = await cluster.operate("drain", cancelled)
    held = await controller.take(lease_s=60)
    await held.report(cancelled, "draining", evidence=evidence(world.clock(), "busy", running_work=2))
    await take_exit(world, drain, "cancel")
    await cluster.operate("replace", waiting, allocation_ids=[machines[2]])
    await cluster.hold(kept, "no_removal")


async def _operations(world: World) -> dict[str, Any]:
    listed = await world.call(operations.OPERATION_LIST, query={"page_size": 500})
    ids = [operation.operation_id for operation in listed.items]
    return {operation_id: msgspec.to_builtins(await world.operation(operation_id)) for operation_id in ids}


def _files(folder: Path) -> dict[str, str]:
    """Keys and signed heads of the audit trail, without the store itself and what TLS needs."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in files if not any(word in path.name for word in ("sqlite", "tls", "ca."))]
    return {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in kept}


async def _tables(world: World, settings: Settings) -> dict[str, Any]:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    if settings.database_url:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    reader, tables = world.site.database.reader, {}
    for name in sorted(row[0] for row in await reader.all(names)):
        rows: Any = await reader.all(f"SELECT * FROM {name}")
        if rows and name != "migrations":
            tables[name] = {"columns": list(rows[0].keys()), "rows": [list(row) for row in rows]}
    return tables
