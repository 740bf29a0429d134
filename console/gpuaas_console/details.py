"""Pure: what the app reports about each member, laid out by the manifest, and the versions on the machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.catalog import DetailSpec
from gpuaas_contract.instances import Member


@dataclass(frozen=True)
class Detail:
    member: Member
    rows: list[tuple[str, Any, str]]
    """Title, value and unit."""


@dataclass(frozen=True)
class Versions:
    columns: list[str]
    rows: list[tuple[str, list[list[str]]]]
    """Role, and the machines with each version."""


def of_members(members: Sequence[Member], declared: Mapping[str, DetailSpec]) -> list[Detail]:
    """Return the details of members that have any: declared fields in their order, then the others by name."""
    return [Detail(member, _rows(member.adapter_detail, declared)) for member in members if member.adapter_detail]


def _rows(detail: Mapping[str, Any], declared: Mapping[str, DetailSpec]) -> list[tuple[str, Any, str]]:
    known = [(spec.title, detail[name], spec.unit) for name, spec in declared.items() if name in detail]
    return known + [
        (name.replace("_", " "), value, "") for name, value in sorted(detail.items()) if name not in declared
    ]


def versions(members: Sequence[Member]) -> Versions | None:
    """Return which machines of each role run which version; None if no version was reported."""
    columns = sorted({member.observed_version or "" for member in members} - {""})
    if not columns:
        return None
    roles = dict.fromkeys(member.component_key for member in members)
    rows = [
        (role, [[item.node_name for item in members if _runs(item, role, version)] for version in columns])
        for role in roles
    ]
    return Versions(columns, rows)


def _runs(member: Member, role: str, version: str) -> bool:
    return member.component_key == role and member.observed_version == version
