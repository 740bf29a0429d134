"""Decide which operations are tried, in which order, from the app's manifest. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.catalog import Manifest, RoleSpec
from gpuaas_contract.operations import OperationKind
from gpuaas_contract.posix import PosixPerson

from gpuaas_sdk.conformance.driver import Driver

_MEMBER_KINDS: tuple[OperationKind, ...] = ("drain", "resume", "repair", "replace")
_INSTANCE_KINDS: tuple[OperationKind, ...] = ("stop", "start", "restart", "reconfigure", "upgrade", "rollback")

PERSON = PosixPerson(
    user_id="user_ada", name="ada", login="ada", uid=20001, gid=20001, state="active", is_admin=True, public_keys=[]
)
"""The person of the project who requests all operations. An action may need the login of who requests it."""


@dataclass(frozen=True)
class Move:
    """One operation of the tour through everything that the manifest lists."""

    kind: OperationKind
    role: str = ""
    action: str = ""

    def __str__(self) -> str:
        return " ".join(word for word in (self.kind, self.role, self.action) if word)


def topology(manifest: Manifest, driver: Driver) -> str:
    """Return the topology of a deploy. Pure."""
    return driver.topology or next(iter(manifest.topologies), "")


def inputs(manifest: Manifest, driver: Driver, allocation_ids: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the inputs of a deploy: those of the driver, and the machines of each role in the field that the topology
    names. Pure."""
    properties = manifest.deploy_form.get("properties", {})
    placed: dict[str, Any] = {}
    for role, field in manifest.topologies.get(topology(manifest, driver), {}).items():
        chosen = list(allocation_ids.get(role, ()))
        is_list = properties.get(field, {}).get("type") == "array"
        placed |= {field: chosen if is_list else chosen[0]} if chosen else {}
    return placed | dict(driver.inputs)


def counts(manifest: Manifest, driver: Driver) -> dict[str, int]:
    """Return how many members of each role a deploy has."""
    return {role.component_key: driver.counts.get(role.component_key, max(1, role.min)) for role in manifest.roles}


def previous_version(manifest: Manifest) -> str:
    """Return the version that instances have before an upgrade; the version of the manifest if it has no upgrade."""
    if "upgrade" not in manifest.instance_operations or not manifest.upgrades_from:
        return manifest.version
    return manifest.upgrades_from[0].replace("*", "0")


def version_of(manifest: Manifest, kind: OperationKind) -> str:
    """Return the version of the app whose software an operation installs; empty if it installs no other. Pure."""
    if kind in ("deploy", "rollback"):
        return previous_version(manifest)
    return manifest.version if kind == "upgrade" else ""


def tour(manifest: Manifest, driver: Driver, kinds: Collection[str] = ()) -> list[Move]:
    """Return every operation that the manifest lists, in an order in which each is possible. `kinds` limits them."""
    moves = [Move("deploy")]
    for role in manifest.roles:
        moves += [
            Move(kind, role.component_key) for kind in ("add", *_MEMBER_KINDS) if _is_possible(role, kind, driver)
        ]
    moves += [Move("action", action=name) for name in _actions(manifest, driver)]
    moves += [Move(kind) for kind in _INSTANCE_KINDS if _is_listed(manifest, kind, driver)]
    moves += [Move("remove", role.component_key) for role in manifest.roles if _is_possible(role, "remove", driver)]
    moves.append(Move("decommission"))
    return [move for move in moves if not kinds or move.kind in kinds or move.kind == "deploy"]


def _is_possible(role: RoleSpec, kind: OperationKind, driver: Driver) -> bool:
    at_first = driver.counts.get(role.component_key, max(1, role.min))
    if kind == "add" and at_first >= role.max:
        return False
    if kind == "remove" and "add" not in role.operations and at_first <= role.min:
        return False
    return kind in role.operations


def _is_listed(manifest: Manifest, kind: OperationKind, driver: Driver) -> bool:
    if kind == "reconfigure" and not driver.changed_inputs:
        return False
    if kind in ("upgrade", "rollback") and previous_version(manifest) == manifest.version:
        return False
    return kind in manifest.instance_operations


def _actions(manifest: Manifest, driver: Driver) -> list[str]:
    return [
        action.name
        for action in manifest.actions
        if action.name in driver.actions or not action.input_schema.get("required")
    ]
