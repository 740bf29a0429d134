"""The inputs that a handler gets: what people chose, with the defaults of the app's forms, as a type of the app. Pure.

The platform stores inputs as they were sent. The controller adds the defaults of its own manifest, because its code
reads the fields that this manifest declares, also for instances of an earlier version that did not have them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Instance

from gpuaas_sdk.failures import Permanent, Refused

Inputs = TypeVar("Inputs")


@dataclass(frozen=True)
class Forms:
    """The forms of one manifest, as JSON Schemas."""

    deploy: Mapping[str, Any] = field(default_factory=dict)
    actions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of_instance(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of an instance with the defaults of the deploy form."""
        return with_defaults(self.deploy, inputs)

    def applied(self, instance: Instance) -> Instance:
        """Return the instance with the defaults of the deploy form in its inputs."""
        return msgspec.structs.replace(instance, inputs=self.of_instance(instance.inputs))

    def of_action(self, action: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of an action with the defaults of its form."""
        return with_defaults(self.actions.get(action, {}), inputs)


def forms_of(manifest: Manifest) -> Forms:
    """Return the forms of a manifest."""
    return Forms(manifest.deploy_form, {action.name: action.input_schema for action in manifest.actions})


def with_defaults(schema: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with a default for each absent field that has one, also in objects and lists inside it.

    with_defaults({"properties": {"port": {"default": 80}}}, {})  # {"port": 80}"""
    return dict(_filled(schema, value))


def converted(inputs: Mapping[str, Any], kind: type[Inputs]) -> Inputs:
    """Return the inputs of an instance as a struct or dataclass of the app. If they do not fit, the operation fails
    with the field: the form has accepted them, so form and type differ."""
    try:
        return msgspec.convert(inputs, kind)
    except msgspec.ValidationError as error:
        raise Permanent(
            f"The inputs do not fit {kind.__name__} of the app: {error}",
            fix="Compare the deploy form of the manifest with this type: each optional field needs a default in both.",
        ) from error


def of_caller(inputs: Mapping[str, Any], kind: type[Inputs], *, action: str, instance_name: str) -> Inputs:
    """Return the inputs of an action as a struct or dataclass of the app. If they do not fit, the action is refused
    with the field: a schema cannot express everything, such as a month that does not exist."""
    try:
        return msgspec.convert(inputs, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        subject = f"Input {path.removesuffix('`')} of {action}" if path else f"The inputs of {action}"
        raise Refused(
            f"{subject} cannot be used: {reason}.",
            fix=f"Correct the input, then run the action again. Its inputs: gpuaas action list {instance_name}",
        ) from error


def _filled(schema: object, value: Any) -> Any:
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, Mapping):
        return _filled_object(schema.get("properties"), value)
    if isinstance(value, list):
        return [_filled(schema.get("items"), item) for item in value]
    return value


def _filled_object(properties: object, value: Mapping[str, Any]) -> dict[str, Any]:
    fields = properties if isinstance(properties, Mapping) else {}
    # A copy of each default: a handler that changes its inputs must not change the form.
    absent = {
        name: copy.deepcopy(schema["default"])
        for name, schema in fields.items()
        if name not in value and isinstance(schema, Mapping) and "default" in schema
    }
    return {name: _filled(fields.get(name), item) for name, item in {**value, **absent}.items()}
