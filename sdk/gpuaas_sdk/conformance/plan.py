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


def left_out(manifest: Manifest, driver: Driver) -> dict[str, str]:
    """Return the operations of the manifest that the tour cannot try, each with the reason. Pure."""
    reasons = {
        f"{kind} {role.component_key}": "the counts of the driver leave no room for it"
        for role in manifest.roles
        for kind in role.operations
        if not _is_possible(role, kind, driver)
    }
    whole = (kind for kind in manifest.instance_operations if not _is_listed(manifest, kind, driver))
    reasons |= {kind: _NEEDS[kind] for kind in whole}
    tried = _actions(manifest, driver)
    missing = (action.name for action in manifest.actions if action.name not in tried)
    return reasons | {f"action {name}": "needs inputs in Driver.actions" for name in missing}


def note(reasons: Mapping[Any, str]) -> str:
    """Return a sentence about what is left out; empty if nothing is. Pure."""
    parts = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
    return f"left out: {parts}" if parts else ""


_NEEDS: Mapping[str, str] = {
    "reconfigure": "needs Driver.changed_inputs",
    "upgrade": "needs another version in upgrades_from",
    "rollback": "needs another version in upgrades_from",
}


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
