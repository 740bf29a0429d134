"""Pure: check a manifest. The contract checks each field alone; this module checks how the fields fit together.

All flaws are reported together, each with the path of its field, so that an app team can correct them together.
"""

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.catalog import CHANGEABLE, Manifest
from gpuaas_contract.operations import OperationKind
from gpuaas_contract.permissions import EXECUTE, KEYS, ROLES
from gpuaas_contract.protocol import request as request_rules

from gpuaas_platform.catalog import rules, schemas, words

SIZE_MAX_BYTES = 256 * 1024
DEADLINE_MAX_S = 7 * 86_400
PLATFORM_AREAS = frozenset(key.partition(".")[0] for key in KEYS)
_REPORTED_MAX = 20

Flaws = Iterator[tuple[str, str]]
"""Pairs of the path of a field and a description of its flaw."""


def check(manifest: Manifest) -> None:
    flaws = list(flaws_of(manifest))
    if flaws:
        problems = [{"field": field, "message": message} for field, message in flaws[:_REPORTED_MAX]]
        text = "; ".join(f"{field}: {message}" for field, message in flaws[:_REPORTED_MAX])
        raise errors.ValidationFailed(
            f"The manifest is not valid: {text}.", details={"field": flaws[0][0], "problems": problems}
        )


def flaws_of(manifest: Manifest) -> Flaws:
    if len(msgspec.json.encode(manifest)) > SIZE_MAX_BYTES:
        yield "$", f"a manifest has at most {SIZE_MAX_BYTES // 1024} KiB"
        return
    form_flaws = list(schemas.flaws("deploy_form", manifest.deploy_form))
    yield from _role_flaws(manifest)
    yield from form_flaws
    if not form_flaws:
        yield from _topology_flaws(manifest)
        yield from _changeable_flaws(manifest)
        yield from _steward_flaws(manifest)
    yield from _permission_flaws(manifest)
    yield from _action_flaws(manifest)
    yield from _controller_flaws(manifest)
    yield from _deadline_flaws(manifest)
    for field in ("operating_modes", "control_plane_scopes", "instance_operations", "secret_purposes"):
        yield from _repeats(field, getattr(manifest, field))


def _role_flaws(manifest: Manifest) -> Flaws:
    if not manifest.roles:
        yield "roles", "there must be at least one"
    for place, role in enumerate(manifest.roles):
        path = words.path("roles", place)
        if role.min < 0:
            yield f"{path}.min", "it is 0 or more"
        if role.max < max(role.min, 1):
            yield f"{path}.max", "it is at least 1, and not below min"
        yield from _repeats(f"{path}.operations", role.operations)
        for at, verb in enumerate(role.exclusive):
            if verb not in role.operations:
                yield words.path(f"{path}.exclusive", at), f"{verb} is not in operations"
        if role.replace_order is not None and "replace" not in role.operations:
            yield f"{path}.replace_order", "replace is not in operations"
    yield from _repeats("roles", [role.component_key for role in manifest.roles], ".component_key")


def _topology_flaws(manifest: Manifest) -> Flaws:
    if not manifest.topologies:
        yield "topologies", "there must be at least one"
    roles = {role.component_key: role for role in manifest.roles}
    fields: dict[str, object] = manifest.deploy_form.get("properties", {})
    for topology, placement in manifest.topologies.items():
        path = words.path("topologies", topology)
        for component_key, field in placement.items():
            at = f"{path}.{component_key}"
            if component_key not in roles:
                yield at, words.unknown("role", component_key, roles)
            if field not in fields:
                yield at, words.unknown("field of the deploy form", field, fields)
            elif not _holds_ids(fields[field]):
                yield at, f"`{field}` holds allocation ids: its type is string, or array with items of type string"
        for key, role in roles.items():
            if role.min > 0 and key not in placement:
                yield path, f"{key} has at least {role.min} members and is not placed"


def _changeable_flaws(manifest: Manifest) -> Flaws:
    """Check which fields a reconfigure may change. Machines are changed by operations on members."""
    fields: dict[str, object] = manifest.deploy_form.get("properties", {})
    for name, schema in fields.items():
        if isinstance(schema, dict) and not isinstance(schema.get(CHANGEABLE, False), bool):
            yield f"{words.path('deploy_form', 'properties', name)}.{CHANGEABLE}", "it is true or false"
    changeable = request_rules.changeable(manifest)
    machines = {field for placement in manifest.topologies.values() for field in placement.values()}
    for name in changeable:
        if name in machines:
            path = f"{words.path('deploy_form', 'properties', name)}.{CHANGEABLE}"
            yield path, "the machines of a role change by operations on members, not by a reconfigure"
    if changeable and "reconfigure" not in manifest.instance_operations:
        yield "instance_operations", f"reconfigure is missing; {changeable[0]} is marked {CHANGEABLE}"
    if not changeable and "reconfigure" in manifest.instance_operations:
        yield "instance_operations", f"reconfigure needs a field of the deploy form that is marked {CHANGEABLE}"


def _holds_ids(field: object) -> bool:
    """Return whether the schema of a form field allows ids that `rules.placement` can read."""
    if not isinstance(field, dict):
        return False
    items = field.get("items")
    of_text = isinstance(items, dict) and items.get("type") == "string"
    return field.get("type") == "string" or (field.get("type") == "array" and of_text)


def _permission_flaws(manifest: Manifest) -> Flaws:
    for key, declared in manifest.permissions.items():
        area = key.partition(".")[0]
        if area in PLATFORM_AREAS:
            yield words.path("permissions", key), f"{area} is an area of the platform; take one of your own"
        yield from _repeats(words.path("permissions", key, "roles"), declared.roles)


def _action_flaws(manifest: Manifest) -> Flaws:
    known = {*manifest.permissions, *KEYS}
    for place, action in enumerate(manifest.actions):
        path = words.path("actions", place)
        if not action.title.strip():
            yield f"{path}.title", "people read it; it is not empty"
        if action.permission not in known:
            yield f"{path}.permission", words.unknown("permission", action.permission, known)
        if action.reading and (action.exclusive or action.result is None or action.input_schema.get("required")):
            yield f"{path}.reading", "a reading action has a result, needs no inputs and is not exclusive"
        yield from schemas.flaws(f"{path}.input_schema", action.input_schema)
        yield from _deadline_flaw(f"{path}.deadline_s", action.deadline_s)
        columns = action.result.columns if action.result else []
        yield from _repeats(f"{path}.result.columns", [column.name for column in columns], ".name")
    yield from _repeats("actions", [action.name for action in manifest.actions], ".name")


def _controller_flaws(manifest: Manifest) -> Flaws:
    """Check the keys of the app's controller: those of a service account, or the app's own that list it."""
    listed, path = manifest.controller.permissions, "controller.permissions"
    known = ROLES["service_account"] | rules.own_keys(manifest)
    for place, key in enumerate(listed):
        if key not in known:
            yield words.path(path, place), words.unknown("permission of a service account", key, known)
    if listed and EXECUTE not in listed:
        yield path, f"a controller needs {EXECUTE}"
    yield from _repeats(path, listed)


def _steward_flaws(manifest: Manifest) -> Flaws:
    """A controller that may request `replace` needs an input by which people allow it."""
    fields = manifest.deploy_form.get("properties", {})
    steward, path = manifest.steward, "steward.replace_input"
    if steward.replace_input and steward.replace_input not in fields:
        yield path, words.unknown("field of the deploy form", steward.replace_input, fields)
    if "replace" in steward.requests and not steward.replace_input:
        yield path, "it names the input by which people allow replace"


def _deadline_flaws(manifest: Manifest) -> Flaws:
    known = get_args(OperationKind)
    for kind, deadline_s in manifest.deadlines_s.items():
        path = words.path("deadlines_s", kind)
        if kind not in known:
            yield path, words.unknown("kind of operation", kind, known)
        yield from _deadline_flaw(path, deadline_s)


def _deadline_flaw(path: str, deadline_s: int) -> Flaws:
    if not 1 <= deadline_s <= DEADLINE_MAX_S:
        yield path, f"a deadline is 1 to {DEADLINE_MAX_S} seconds, which is a week"


def _repeats(path: str, values: Sequence[str], of: str = "") -> Flaws:
    seen: set[str] = set()
    for place, word in enumerate(values):
        if word in seen:
            yield words.path(path, place) + of, f"`{word}` is listed twice"
        seen.add(word)
