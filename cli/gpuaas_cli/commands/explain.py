"""`gpuaas explain`: what a resource is, field by field, and which commands act on it. Asks no server."""

from typing import Annotated

import msgspec
import typer

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.explain import forms, pages
from gpuaas_cli.flags import Flags
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run

app = run.command_group()

_COLUMNS = (
    Column("KIND", lambda kind: kind.plural),
    Column("FORM", lambda kind: forms.find(kind.plural)[0].name, wide=True),
    Column("MEANING", lambda kind: forms.find(kind.plural)[0].meaning),
)


@run.command(app)
def explain(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="RESOURCE[.FIELD]", help="Also a request: create-allocation.")] = "",
) -> int:
    """What a resource is: its fields, types, permitted values, meaning, and the commands that act on it.

    Without a name: the resources there are.

    Example: gpuaas explain node

    Example: gpuaas explain operation.steps.state
    """
    flags = run.flags_of(context)
    if not path:
        _show_all(flags)
        return failures.OK
    form, field = forms.find(path)
    if flags.output in ("json", "yaml"):
        data = pages.as_data(form) if field is None else msgspec.to_builtins(field)
        print(output.encoded(flags.output, data))
    elif flags.output == "name":
        print("\n".join(one.name for one in form.fields))
    else:
        width = min(output.terminal_width(pages.WIDTH), pages.WIDTH)
        print("\n".join(pages.of_form(form, width) if field is None else pages.of_field(form, field, width)))
    return failures.OK


def _show_all(flags: Flags) -> None:
    """People see what they can list; programs get the name of every form."""
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, list(forms.every())))
    else:
        output.show_list(flags, kinds.KINDS, _COLUMNS, lambda kind: str(kind.plural))
