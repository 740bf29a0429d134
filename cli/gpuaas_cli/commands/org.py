"""`gpuaas org`."""

from typing import Annotated

import typer
from gpuaas_contract.identity import ORG_CREATE, CreateOrg

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import session
from gpuaas_cli.runner import run

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.callback()
def org() -> None:
    """Organisations own projects."""


@run.command(app)
def create(context: typer.Context, name: Name, dry_run: Annotated[bool, typer.Option("--dry-run")] = False) -> int:
    """Create an organisation.

    Example: gpuaas org create acme
    """
    flags = run.flags_of(context)
    made = session.run(flags, lambda opened: opened.call(ORG_CREATE, CreateOrg(name=name), dry_run=dry_run))
    kinds.show_one(flags, "orgs", made)
    return failures.OK
