"""`gpuaas project`."""

import os
from typing import Annotated

import typer
from gpuaas_contract.identity import PROJECT_CREATE, CreateProject, Project

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import home, lookup, session
from gpuaas_cli.runner import run

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.callback()
def project() -> None:
    """Projects own allocations, service accounts and app instances."""


@run.command(app)
def create(
    context: typer.Context,
    name: Name,
    org: Annotated[str, typer.Option(help="Organisation, by name or id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> int:
    """Create a project; the first one becomes the one you work in.

    Example: gpuaas project create research --org acme
    """
    flags = run.flags_of(context)
    made = session.run(flags, lambda opened: _create(opened, name, org, dry_run=dry_run))
    kinds.show_one(flags, "projects", made)
    return failures.OK


@run.command(app)
def use(context: typer.Context, name: Name) -> int:
    """Work in this project from now on.

    Example: gpuaas project use research
    """
    found = session.run(run.flags_of(context), lambda opened: _use(opened, name))
    output.talk(f"Commands are now about project {found.name} ({found.project_id}).")
    return failures.OK


async def _create(opened: session.Session, name: str, org: str, *, dry_run: bool) -> Project:
    owner = await lookup.org(opened, org)
    made = await opened.call(PROJECT_CREATE, CreateProject(name=name), dry_run=dry_run, org_id=owner.org_id)
    if not opened.target.project and not dry_run:
        home.use_project(home.folder(os.environ), opened.target, made.project_id)
    return made


async def _use(opened: session.Session, name: str) -> Project:
    found = await lookup.project(opened, name)
    home.use_project(home.folder(os.environ), opened.target, found.project_id)
    return found
