"""Whether members are at rest: which operations may still make something that no member has."""

import msgspec
import pytest
from gpuaas_contract.instances import Member
from gpuaas_contract.operations import Operation
from gpuaas_sdk.controller import OperationKind, rest
from gpuaas_sdk.testing import FakePlatform


@pytest.mark.parametrize(
    ("kind", "status", "is_at_rest"),
    [
        ("replace", "accepted", False),
        ("replace", "running", False),
        ("replace", "cancelling", False),
        ("replace", "failed", False),
        ("replace", "succeeded", True),
        ("replace", "cancelled", True),
        ("add", "running", False),
        ("add", "failed", True),
        ("drain", "running", True),
    ],
)
async def test_members_are_at_rest_unless_an_operation_may_still_join_a_machine(
    kind: OperationKind, status: str, is_at_rest: bool
) -> None:
    platform = FakePlatform("app")
    instance = platform.add_instance({"worker": ["gpu-1", "gpu-2"]}, ready=True)
    target, other = platform.members(instance)
    replacements = ["gpu-5"] if kind == "replace" else []
    platform.request(instance, kind, [target], component_key="worker", replacements=replacements)
    platform.records.change_member(other, status="removed")

    async def read_members() -> tuple[Member, ...]:
        return tuple(platform.records.members.values())

    async def read_operation(operation_id: str) -> Operation:
        return msgspec.structs.replace(platform.records.operations[operation_id], status=status)

    at_rest = await rest.members_at_rest(read_members, read_operation, ("add", "replace"))
    assert (at_rest is not None) is is_at_rest
    if at_rest is not None:
        assert {member.status for member in at_rest} >= {"removed"}


async def test_without_kinds_the_members_are_read_and_no_operation() -> None:
    platform = FakePlatform("demo")
    instance = platform.add_instance({"worker": ["gpu-1"]}, ready=True)

    async def read_members() -> tuple[Member, ...]:
        return tuple(platform.members(instance))

    async def read_operation(operation_id: str) -> Operation:
        raise AssertionError(f"{operation_id} was read")

    assert await rest.members_at_rest(read_members, read_operation, ()) == await read_members()
