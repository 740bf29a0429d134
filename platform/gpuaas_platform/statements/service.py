"""Make and sign a statement from what is recorded now. It is read-only: nothing of a statement is stored."""

import base64

import msgspec
from cryptography.hazmat.primitives import serialization
from gpuaas_contract import statements
from gpuaas_contract.operations import Operation
from gpuaas_contract.paths import OperationPath
from gpuaas_contract.statements import SignedStatement, StatedPart, Statement, StatementKey

from gpuaas_platform.access.machines import service as grants
from gpuaas_platform.access.placements import service as placements
from gpuaas_platform.access.secrets import service as secrets
from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.call import Call
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, structs
from gpuaas_platform.nodes import signatures
from gpuaas_platform.operations import members, read
from gpuaas_platform.statements import rules


async def statement(reader: db.Reader, call: Call[OperationPath]) -> SignedStatement:
    operation = await read.named(reader, call)
    rules.check_stated(operation)
    made = await _statement(reader, call, operation)
    document, key = msgspec.json.encode(made).decode(), call.site.keys.audit
    signature = base64.b64encode(key.sign(statements.signed_bytes(document))).decode()
    key_id = signatures.key_id(key.public_key())
    return SignedStatement(statement=made, document=document, signature=signature, key_id=key_id)


async def public_key(_: db.Reader, call: Call) -> StatementKey:
    key = call.site.keys.audit.public_key()
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return StatementKey(key_id=signatures.key_id(key), public_key_pem=pem.decode())


async def _statement(reader: db.Reader, call: Call[OperationPath], operation: Operation) -> Statement:
    instance = await instances.get(reader, operation.instance_id)
    present = await members.of_targets(reader, operation)
    stated = [rules.member(target, present[target.member_id]) for target in operation.targets]
    allocation_ids = sorted({member.allocation_id for member in stated})
    return structs.pick(
        Statement,
        operation,
        app_version=instance.app_version,
        members=stated,
        platform=await _parts(reader, operation, allocation_ids),
        issued_at=call.now,
    )


async def _parts(reader: db.Reader, operation: Operation, allocation_ids: list[str]) -> list[StatedPart]:
    """Return what the platform gave the instance. Secrets are those of the instance, so they end with it."""
    granted = await grants.of_controllers(reader, operation.project_id, allocation_ids)
    placed = await placements.on_allocations(reader, allocation_ids)
    operation_ids = {item.operation_id for item in granted} | {item.operation_id for item in placed}
    own = await _operations_of(reader, operation.instance_id, operation_ids)
    of_app = [item for item in granted if item.operation_id in own or item.instance_id == operation.instance_id]
    parts = [rules.machine_access(of_app)]
    if operation.kind == "decommission":
        parts.append(rules.runtime_secrets(await secrets.of_instance(reader, operation.instance_id)))
    parts.append(rules.placed_artifacts([item for item in placed if item.operation_id in own]))
    used = [await allocations.in_project(reader, operation.project_id, name) for name in allocation_ids]
    return [*parts, rules.allocations(operation.instance_id, used), rules.records()]


async def _operations_of(reader: db.Reader, instance_id: str, operation_ids: set[str]) -> set[str]:
    """Return which of these operations are of the instance: another instance can use the same machine."""
    heads = await read.heads_by_id(reader, sorted(operation_ids - {""}))
    return {operation_id for operation_id, head in heads.items() if head.instance_id == instance_id}
