"""`gpuaas explain` and `gpuaas schema`: the contract in words. Neither asks a server."""

from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract import meanings, openapi, registry
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.explain import forms, pages
from gpuaas_cli.output import table
from gpuaas_cli.runner import reach, run

_KINDS = table(
    "KIND=plural FORM* MEANING",
    FORM=lambda kind: forms.find(kind.plural)[0].name,
    MEANING=lambda kind: forms.find(kind.plural)[0].meaning,
)


@run.alone()
def explain(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="RESOURCE[.FIELD]", help="Also a request: create-allocation.")] = "",
) -> None:
    """What a resource is: its fields, types, permitted values, meaning, and the commands that act on it.

    Without a name: the resources there are.

    Example: gpuaas explain node

    Example: gpuaas explain operation.steps.state
    """
    flags = run.flags_of(context)
    if not path and flags.structured_whole:  # programs get the name of every form, people see what they can list
        output.show_data(flags, list(forms.every()))
        return
    if not path:
        output.show(flags, kinds.KINDS, _KINDS)
        return
    form, field = forms.find(path)
    if flags.structured_whole:
        output.show_data(flags, pages.as_data(form) if field is None else field)
    elif flags.output == "name":
        print("\n".join(item.name for item in form.fields))
    else:
        width = min(output.terminal_width(pages.WIDTH), pages.WIDTH)
        print("\n".join(pages.of_form(form, width) if field is None else pages.of_field(form, field, width)))


_ENDPOINTS = table(
    "ENDPOINT=name METHOD PATH* PERMISSION* COMMAND", COMMAND=lambda endpoint: next(iter(reach.lines(endpoint)), "")
)


@run.alone()
def schema(context: typer.Context, name: Annotated[str, typer.Argument(metavar="ENDPOINT|RESOURCE")] = "") -> None:
    """What an endpoint takes, answers and refuses; of a resource, its JSON Schema.

    Without a name: every endpoint and the command that reaches it. With -o json or yaml an endpoint is an OpenAPI
    document of its own.

    Example: gpuaas schema capacity.node.cordon

    Example: gpuaas schema node > node.schema.json
    """
    flags = run.flags_of(context)
    if not name and not flags.structured_whole:
        output.show(flags, registry.ENDPOINTS, _ENDPOINTS)
    elif not name:
        output.show_data(flags, openapi.document())
    elif "." not in name:
        form, _ = forms.find(name)
        print(output.encoded("yaml" if flags.output == "yaml" else "json", json_schema(form)))
    elif flags.structured_whole:
        output.show_data(flags, openapi.document([_endpoint(name)]))
    else:
        width = min(output.terminal_width(pages.WIDTH), pages.WIDTH)
        print("\n".join(pages.of_endpoint(_endpoint(name), width)))


def json_schema(form: forms.Form) -> dict[str, Any]:
    """With the contract's text under each field as its description."""
    result = msgspec.json.schema(form.struct)
    described = meanings.described(result["$defs"], [form.struct])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **result, "$defs": described}


def _endpoint(name: str) -> Endpoint[Any, Any]:
    if name not in registry.BY_NAME:
        raise failures.not_found(
            f"There is no endpoint {name!r}{failures.hint(name, registry.BY_NAME)}", "gpuaas schema"
        )
    return registry.BY_NAME[name]
