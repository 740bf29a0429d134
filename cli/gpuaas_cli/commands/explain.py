"""`gpuaas explain` and `gpuaas schema`: the contract in words. Neither asks a server.

gpuaas explain node
gpuaas explain operation.steps.state
    Explain a resource: its fields, their types, permitted values and meanings, and the commands that act on it.

    Without a name: list all resources.
    path RESOURCE[.FIELD]: A resource, or a request such as create-allocation.
gpuaas schema capacity.node.cordon
gpuaas schema node > node.schema.json
    Show the request, the answer and the errors of an endpoint, or the JSON Schema of a resource.

    Without a name: list every endpoint and the command that calls it. With -o json or yaml an endpoint is an OpenAPI
    document of its own.
    name ENDPOINT|RESOURCE
"""

from typing import Any

import msgspec
from gpuaas_contract import meanings, openapi, registry
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import failures, kinds, output, terminal
from gpuaas_cli.explain import forms, pages
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command, Field, reach

_KINDS = table(
    "KIND=plural FORM* MEANING",
    FORM=lambda kind: forms.find(kind.plural)[0].name,
    MEANING=lambda kind: forms.find(kind.plural)[0].meaning,
)


def _explain(call: Call) -> None:
    flags = call.flags
    if not call["path"]:  # structured output has the name of every form; the table only what can be listed
        if flags.structured_whole:
            output.show_data(flags, list(forms.every()))
        else:
            output.show(flags, kinds.KINDS, _KINDS)
        return
    form, field = forms.find(call["path"])
    if flags.structured_whole:
        output.show_data(flags, pages.as_data(form) if field is None else field)
    elif flags.output == "name":
        terminal.out("\n".join(item.name for item in form.fields))
    else:
        width = _width()
        terminal.out("\n".join(pages.of_form(form, width) if field is None else pages.of_field(form, field, width)))


_ENDPOINTS = table(
    "ENDPOINT=name METHOD PATH* PERMISSION* COMMAND", COMMAND=lambda endpoint: next(iter(reach.lines(endpoint)), "")
)


def _schema(call: Call) -> None:
    flags, name = call.flags, call["name"]
    if not name and not flags.structured_whole:
        output.show(flags, registry.ENDPOINTS, _ENDPOINTS)
    elif not name:
        output.show_data(flags, openapi.document())
    elif "." not in name:
        form, _ = forms.find(name)
        terminal.out(output.encoded("yaml" if flags.output == "yaml" else "json", json_schema(form)))
    elif flags.structured_whole:
        output.show_data(flags, openapi.document([_endpoint(name)]))
    else:
        terminal.out("\n".join(pages.of_endpoint(_endpoint(name), _width())))


def _width() -> int:
    return min(output.terminal_width(pages.WIDTH), pages.WIDTH)


def json_schema(form: forms.Form) -> dict[str, Any]:
    """Return the JSON Schema of a form, with the contract's texts as descriptions of the fields."""
    result = msgspec.json.schema(form.struct)
    described = meanings.described(result["$defs"], [form.struct])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **result, "$defs": described}


def _endpoint(name: str) -> Endpoint[Any, Any]:
    if name not in registry.BY_NAME:
        raise failures.not_found(
            f"There is no endpoint {name!r}{failures.hint(name, registry.BY_NAME)}", "gpuaas schema"
        )
    return registry.BY_NAME[name]


COMMANDS = {
    "explain": Command(offline=_explain, extra={"path": Field(default="")}),
    "schema": Command(offline=_schema, extra={"name": Field(default="")}),
}
