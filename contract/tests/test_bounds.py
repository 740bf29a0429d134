"""Every value that a request can carry has a bound: an authenticated peer must not make a row grow without limit."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from gpuaas_contract import artifacts, catalog, operations, registry, wire
from gpuaas_contract.capacity import Facts
from msgspec import inspect

_MANIFEST = "catalog.manifests accepts a manifest of at most 256 KiB"
_SHORTENED = "operations.limits stores its first 2,000 characters: a report is more important than its whole text"
_POLICY = "policy.rules.sound checks it against the limits in contract/policy.py and names the entry"
_PASSWORD = "it is not stored, and identity.users.passwords checks its length"
_SIGN_IN = "it is not stored; the audit row of a failure has its beginning"
UNBOUNDED = {
    "ActionSpec": _MANIFEST,
    "ArtifactRef": _MANIFEST,
    "ChangePassword": _PASSWORD,
    "Choice": _POLICY,
    "CreateUser.name": "identity.rules.check_user_name accepts at most 63 characters",
    "CreateUser.password": _PASSWORD,
    "Evidence": _SHORTENED,
    "FailOperation.fix": _SHORTENED,
    "FailOperation.message": _SHORTENED,
    "Login": _SIGN_IN,
    "Manifest": _MANIFEST,
    "ObservedMember.status_reason": _SHORTENED,
    "Overlay.reason": _POLICY,
    "PermissionSpec": _MANIFEST,
    "RegisterAgentRelease.content": "the limit of a body, 1 MiB",
    "ReportMember.status_reason": _SHORTENED,
    "ReportStep.message": _SHORTENED,
    "RoleSpec": _MANIFEST,
    "ServiceAccountLogin": _SIGN_IN,
    "SetPassword": _PASSWORD,
    "TaskResult.result": "the limit of a body, 1 MiB: evidence of a release has long paths",
}
"""Structs and fields without a declared bound, and what bounds them instead."""


def test_every_text_list_and_object_of_a_body_has_a_declared_bound() -> None:
    unbounded = {name for endpoint in registry.ENDPOINTS if endpoint.mutates for name in _unbounded(endpoint.request)}
    assert {name for name in unbounded if not _is_listed(name)} == set()
    untrue = {entry for entry in UNBOUNDED if not any(_covers(entry, name) for name in unbounded)}
    assert untrue == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname": "h" * 256},
        {"os": "x" * 201},
        {"gpus": [{"index": 0, "type": "t", "device": "d"}] * 257},
        {"gpus": [{"index": 0, "type": "t" * 201, "device": "d"}]},
        {"addresses": ["10.0.0.1"] * 257},
        {"addresses": ["1" * 129]},
    ],
)
def test_facts_of_a_node_have_bounds(changes: dict[str, object]) -> None:
    facts = {"hostname": "n1", "cpus": 4, "memory_mb": 1000}
    msgspec.convert(facts, Facts)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**facts, **changes}, Facts)


def _is_listed(name: str) -> bool:
    return any(_covers(entry, name) for entry in UNBOUNDED)


def _covers(entry: str, name: str) -> bool:
    return name == entry or name.startswith(f"{entry}.")


def _unbounded(request: type) -> Iterator[str]:
    if request is not bytes:
        yield from _within(inspect.type_info(request), "", frozenset())


def _within(kind: inspect.Type, name: str, parents: frozenset[type]) -> Iterator[str]:
    if isinstance(kind, inspect.Metadata):
        if wire.BYTES_MAX not in (kind.extra_json_schema or {}):
            yield from _within(kind.type, name, parents)
    elif isinstance(kind, inspect.UnionType):
        for part in kind.types:
            yield from _within(part, name, parents)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields if kind.cls not in parents else ():
            yield from _within(field.type, f"{kind.cls.__name__}.{field.name}", parents | {kind.cls})
    elif isinstance(kind, inspect.AnyType | inspect.RawType):
        yield name
    else:
        if getattr(kind, "max_length", 0) is None:
            yield name
        for attribute in ("key_type", "value_type", "item_type"):
            if hasattr(kind, attribute):
                yield from _within(getattr(kind, attribute), name, parents)


@pytest.mark.parametrize("reason", [artifacts.Reason, catalog.Reason, operations.OptionalReason, operations.Reason])
@pytest.mark.parametrize("blank", ["   ", "\n\n\n", " \t\n"])
def test_a_reason_of_blanks_is_refused(reason: Any, blank: str) -> None:
    assert msgspec.convert("new memory", reason) == "new memory"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(blank, reason)


def test_a_reason_that_is_optional_can_be_left_out() -> None:
    assert msgspec.convert("", operations.OptionalReason) == ""
