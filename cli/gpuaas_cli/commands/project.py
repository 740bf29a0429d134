"""`gpuaas project`."""

import os
from typing import Annotated

import typer
from gpuaas_contract.identity import (
    PROJECT_CREATE,
    PROJECT_DELETE,
    PROJECT_GET,
    PROJECT_RENAME,
    CreateProject,
    Project,
    RenameProject,
)

from gpuaas_cli import failures, home, kinds, lookup, output, running, session

app = running.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.callback()
def project() -> None:
    """Projects own allocations, service accounts and app instances."""


@running.command(app)
def create(
    context: typer.Context,
    name: Name,
    org: Annotated[str, typer.Option(help="Organisation, by name or id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> int:
    """Create a project; the first one becomes the one you work in.

    Example: gpuaas project create research --org acme
    """
    flags = running.flags_of(context)
    made = session.run(flags, lambda opened: _create(opened, name, org, dry_run=dry_run))
    kinds.show_one(flags, "projects", made)
    return failures.OK


@running.command(app)
def get(context: typer.Context, name: Name) -> int:
    """Show one project.

    Example: gpuaas project get research
    """
    flags = running.flags_of(context)
    kinds.show_one(flags, "projects", session.run(flags, lambda opened: _get(opened, name)))
    return failures.OK


@running.command(app)
def rename(
    context: typer.Context,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME")],
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> int:
    """Rename a project; its id stays.

    Example: gpuaas project rename research research-2
    """
    flags = running.flags_of(context)
    kinds.show_one(
        flags, "projects", session.run(flags, lambda opened: _rename(opened, name, new_name, dry_run=dry_run))
    )
    return failures.OK


@running.command(app)
def delete(
    context: typer.Context,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> int:
    """Delete a project that owns nothing; what it still owns is listed.

    Example: gpuaas project delete research
    """
    flags = running.flags_of(context)
    kinds.show_one(flags, "projects", session.run(flags, lambda opened: _delete(opened, name, dry_run=dry_run)))
    return failures.OK


@running.command(app)
def use(context: typer.Context, name: Name) -> int:
    """Work in this project from now on.

    Example: gpuaas project use research
    """
    found = session.run(running.flags_of(context), lambda opened: _use(opened, name))
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


async def _get(opened: session.Session, name: str) -> Project:
    return await opened.call(PROJECT_GET, project_id=await lookup.project_id(opened, name))


async def _rename(opened: session.Session, name: str, new_name: str, *, dry_run: bool) -> Project:
    project_id = await lookup.project_id(opened, name)
    read = await opened.client.read(PROJECT_GET, project_id=project_id)
    body = RenameProject(name=new_name)
    return await opened.call(PROJECT_RENAME, body, if_match=read.etag, dry_run=dry_run, project_id=project_id)


async def _delete(opened: session.Session, name: str, *, dry_run: bool) -> Project:
    return await opened.call(PROJECT_DELETE, dry_run=dry_run, project_id=await lookup.project_id(opened, name))
