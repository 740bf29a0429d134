"""Pure: is this manifest sound, do these inputs fit its form, which allocation becomes which member."""

from typing import Any

import jsonschema
from gpuaas_contract import errors
from gpuaas_contract.catalog import Manifest


def manifest_problems(manifest: Manifest) -> list[str]:
    """What is wrong with a manifest, in words for the app team; empty when sound."""
    problems: list[str] = []
    keys = [role.component_key for role in manifest.roles]
    if len(set(keys)) != len(keys) or not keys:
        problems.append("roles: each component_key must occur once, and there must be at least one")
    try:
        jsonschema.Draft202012Validator.check_schema(manifest.deploy_form)
    except jsonschema.SchemaError as error:
        problems.append(f"deploy_form: not a JSON Schema: {error.message}")
    fields = manifest.deploy_form.get("properties", {})
    for topology, placement in manifest.topologies.items():
        problems += [f"topologies.{topology}: no role {key}" for key in placement if key not in keys]
        problems += [
            f"topologies.{topology}: no form field {name}" for name in placement.values() if name not in fields
        ]
    if not manifest.topologies:
        problems.append("topologies: there must be at least one")
    problems += [f"roles.{role.component_key}: min is above max" for role in manifest.roles if role.min > role.max]
    return problems


def check_inputs(manifest: Manifest, topology: str, inputs: dict[str, Any]) -> None:
    if topology not in manifest.topologies:
        known = ", ".join(sorted(manifest.topologies))
        raise errors.ValidationFailed(
            f"{manifest.display_name} has no topology {topology}; it has {known}.", details={"field": "topology"}
        )
    validator = jsonschema.Draft202012Validator(manifest.deploy_form)
    problems = {
        ".".join(str(part) for part in error.absolute_path) or "inputs": error.message
        for error in validator.iter_errors(inputs)
    }
    if problems:
        said = "; ".join(f"{field}: {message}" for field, message in problems.items())
        raise errors.ValidationFailed(f"The inputs do not fit the deploy form: {said}", details={"fields": problems})


def placement(manifest: Manifest, topology: str, inputs: dict[str, Any]) -> dict[str, list[str]]:
    """component_key -> allocation ids, read from the form fields that the topology names."""
    found: dict[str, list[str]] = {}
    for component_key, field in manifest.topologies[topology].items():
        value = inputs.get(field, [])
        found[component_key] = [value] if isinstance(value, str) else list(value)
    check_counts(manifest, {key: len(allocation_ids) for key, allocation_ids in found.items()})
    for component_key, allocation_ids in found.items():
        if len(set(allocation_ids)) != len(allocation_ids):
            raise errors.ValidationFailed(f"An allocation is named twice for {component_key}.")
    return found


def check_counts(manifest: Manifest, counts: dict[str, int]) -> None:
    for role in manifest.roles:
        count = counts.get(role.component_key, 0)
        if not role.min <= count <= role.max:
            raise errors.ValidationFailed(
                f"{manifest.display_name} takes {role.min} to {role.max} members of {role.component_key}, not {count}.",
                details={"component_key": role.component_key, "min": role.min, "max": role.max, "asked": count},
            )
