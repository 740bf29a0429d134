"""`gpuaas binding`: who holds which role, at the platform, in an organisation or in a project."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from gpuaas_contract import bindings, permissions
from gpuaas_contract.bindings import BindRole, RoleBinding
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, Page

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run, scopes
from gpuaas_cli.runner.options import DryRun

app = run.command_group()


@dataclass(frozen=True)
class _Endpoints:
    create: Endpoint[BindRole, RoleBinding]
    list: Endpoint[NoBody, Page[RoleBinding]]
    delete: Endpoint[NoBody, RoleBinding]


_AT: dict[scopes.Level, _Endpoints] = {
    "platform": _Endpoints(
        bindings.PLATFORM_BINDING_CREATE, bindings.PLATFORM_BINDING_LIST, bindings.PLATFORM_BINDING_DELETE
    ),
    "org": _Endpoints(bindings.ORG_BINDING_CREATE, bindings.ORG_BINDING_LIST, bindings.ORG_BINDING_DELETE),
    "project": _Endpoints(
        bindings.PROJECT_BINDING_CREATE, bindings.PROJECT_BINDING_LIST, bindings.PROJECT_BINDING_DELETE
    ),
}


@app.callback()
def binding() -> None:
    """A role reaches everything below the place it is given at: the platform, an organisation, a project."""


@run.command(app, "list")
def list_bindings(context: typer.Context, platform: scopes.Platform = False, org: scopes.Org = "") -> int:
    """Roles given at the platform, in an organisation, or in the project.

    Example: gpuaas binding list --org acme
    """

    async def work(opened: session.Session) -> Sequence[RoleBinding]:
        scope = await scopes.find(opened, platform=platform, org=org)
        path: dict[str, Any] = scope.path
        return await opened.every(_AT[scope.level].list, **path)

    flags = run.flags_of(context)
    kinds.show_list(flags, "bindings", session.run(flags, work))
    return failures.OK


@run.command(app)
def grant(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Name or id.")],
    role: Annotated[str, typer.Argument(metavar="ROLE")],
    platform: scopes.Platform = False,
    org: scopes.Org = "",
    dry_run: DryRun = False,
) -> int:
    """Give a person a role; none beyond your own. Who may not see people names them by id.

    Example: gpuaas binding grant ada project_member --project research
    """
    level = scopes.level_of(platform=platform, org=org)
    if role not in permissions.GRANTABLE[level]:
        known = ", ".join(permissions.GRANTABLE[level])
        raise failures.usage(
            f"{role} cannot be given at this level ({level}); {known} can", "gpuaas binding grant --help"
        )

    async def work(opened: session.Session) -> RoleBinding:
        scope = await scopes.find(opened, platform=platform, org=org)
        body = BindRole(user_id=await lookup.user_id(opened, user), role=role)
        path: dict[str, Any] = scope.path
        return await opened.call(_AT[scope.level].create, body, dry_run=dry_run, **path)

    flags = run.flags_of(context)
    kinds.show_one(flags, "bindings", session.run(flags, work))
    return failures.OK


@run.command(app)
def revoke(
    context: typer.Context,
    binding: Annotated[str, typer.Argument(metavar="BINDING", help="Its id.")],
    platform: scopes.Platform = False,
    org: scopes.Org = "",
) -> int:
    """Take a role away; it counts from the next call on.

    Example: gpuaas binding revoke bind_01k9z0c5p3v2m8q7r6t5w4x3y2 --org acme
    """

    async def work(opened: session.Session) -> RoleBinding:
        scope = await scopes.find(opened, platform=platform, org=org)
        path: dict[str, Any] = scope.path
        return await opened.call(_AT[scope.level].delete, binding_id=binding, **path)

    flags = run.flags_of(context)
    kinds.show_one(flags, "bindings", session.run(flags, work))
    return failures.OK
