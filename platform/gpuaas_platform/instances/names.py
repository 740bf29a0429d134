"""Pure: which members and allocations a request names. Users name a member by its node, or by `node/role`."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpuaas_contract import lifecycles
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Member, MemberOperationRequest

from gpuaas_platform.catalog import schemas
from gpuaas_platform.kit import names


def split(named: str) -> tuple[str, str]:
    """Split `node/role` into the node and the role. An empty role means any role."""
    node_name, _, role = named.partition("/")
    return node_name, role


def pick(members: Iterable[Member], named: str, roles: Collection[str] = ()) -> Member | None:
    """Return the live member on the named node. If the node has several, only those of `roles` count."""
    node_name, role = split(named)
    live = [member for member in members if member.status not in lifecycles.GONE_MEMBER]
    matches = [member for member in live if member.node_name == node_name and role in ("", member.component_key)]
    if len(matches) > 1 and roles:
        matches = [member for member in matches if member.component_key in roles]
    return names.only(matches, named, lambda member: f"{member.node_name}/{member.component_key}")


def member_ids(members: Sequence[Member], named: Sequence[str], roles: Collection[str] = ()) -> list[str]:
    """Return the ids of the named members. An unknown name is returned unchanged; a later check refuses it."""
    known = {member.member_id for member in members}
    picked = {name: None if name in known else pick(members, name, roles) for name in named}
    return [member.member_id if (member := picked[name]) else name for name in named]


def roles_meant(manifest: Manifest, body: MemberOperationRequest) -> set[str]:
    """Return the role that the request names; if it names none, all roles that allow the operation."""
    if body.component_key:
        return {body.component_key}
    return {role.component_key for role in manifest.roles if body.kind in role.operations}


def allocations_in(form: Mapping[str, object], fields: Iterable[str], inputs: Mapping[str, object]) -> set[str]:
    """Return the names of allocations in the inputs. `fields` are the input fields that the chosen layout names."""
    values = [inputs[field] for field in _allocation_fields(form, fields) if field in inputs]
    words = [word for value in values for word in (value if isinstance(value, list) else [value])]
    return {word for word in words if isinstance(word, str)}


def with_allocations(
    form: Mapping[str, object], fields: Iterable[str], inputs: Mapping[str, object], ids: Mapping[str, str]
) -> dict[str, object]:
    """Return the inputs with the name of each allocation replaced by its id."""

    def put(value: object) -> object:
        if isinstance(value, list):
            return [put(item) for item in value]
        return ids.get(value, value) if isinstance(value, str) else value

    chosen = _allocation_fields(form, fields)
    return {field: put(value) if field in chosen else value for field, value in inputs.items()}


def _allocation_fields(form: Mapping[str, object], fields: Iterable[str]) -> set[str]:
    properties = form.get("properties")
    named = properties.items() if isinstance(properties, Mapping) else ()
    return {*fields, *(name for name, field in named if _picks_allocation(field))}


def _picks_allocation(field: object) -> bool:
    if not isinstance(field, Mapping):
        return False
    return field.get(schemas.PICKER) == "allocation" or _picks_allocation(field.get("items"))
