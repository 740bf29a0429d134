"""`gpuaas schema`: what the API takes and answers, from the contract that is installed. Asks no server."""

import difflib
from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract import meanings, openapi, registry
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import failures, output
from gpuaas_cli.explain import forms, pages
from gpuaas_cli.output import Column
from gpuaas_cli.runner import reach, run

app = run.command_group()

_COLUMNS = (
    Column("ENDPOINT", lambda one: one.name),
    Column("METHOD", lambda one: one.method),
    Column("PATH", lambda one: one.path, wide=True),
    Column("PERMISSION", lambda one: one.permission, wide=True),
    Column("COMMAND", lambda one: next(iter(reach.lines(one.name)), "")),
)


@run.command(app)
def schema(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ENDPOINT|RESOURCE")] = "",
) -> int:
    """What an endpoint takes, answers and refuses; of a resource, its JSON Schema.

    Without a name: every endpoint and the command that reaches it. With -o json or yaml an endpoint is an OpenAPI
    document of its own.

    Example: gpuaas schema capacity.node.cordon

    Example: gpuaas schema node > node.schema.json
    """
    flags = run.flags_of(context)
    if not name and flags.output not in ("json", "yaml"):
        output.show_list(flags, registry.ENDPOINTS, _COLUMNS, lambda one: str(one.name))
    elif not name:
        print(output.encoded(flags.output, openapi.document()))
    elif "." not in name:
        form, _ = forms.find(name)
        print(output.encoded("yaml" if flags.output == "yaml" else "json", json_schema(form)))
    elif flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, openapi.document([_endpoint(name)])))
    else:
        width = min(output.terminal_width(pages.WIDTH), pages.WIDTH)
        print("\n".join(pages.of_endpoint(_endpoint(name), width)))
    return failures.OK


def json_schema(form: forms.Form) -> dict[str, Any]:
    """With what the contract says under each field, which JSON Schema has a place for."""
    found = msgspec.json.schema(form.struct)
    described = meanings.described(found["$defs"], [form.struct])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "$defs": described}


def _endpoint(name: str) -> Endpoint[Any, Any]:
    if name not in registry.BY_NAME:
        close = difflib.get_close_matches(name, registry.BY_NAME, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise failures.not_found(f"There is no endpoint {name!r}{hint}", "gpuaas schema")
    return registry.BY_NAME[name]
