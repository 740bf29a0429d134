"""`gpuaas member`: grow, drain, resume and shrink an instance."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import PROJECT_APP_LIST
from gpuaas_contract.instances import MEMBER_OPERATION_CREATE, MemberOperationRequest

from gpuaas_cli import failures, follow, lookup, output, running, session, steps

app = running.command_group()

InstanceName = Annotated[str, typer.Argument(metavar="INSTANCE")]
Nodes = Annotated[list[str], typer.Argument(metavar="MEMBER|NODE", help="Member ids or node names.")]
RoleOption = Annotated[str, typer.Option("--role", help="Role, where a node carries several members.")]
Reason = Annotated[str, typer.Option(help="Why, for those who look later.")]
Force = Annotated[bool, typer.Option("--force", help="Even if nothing shows that it is safe; needs --reason.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Do not follow it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")]


@app.callback()
def member() -> None:
    """Members are the machines of an instance, each in a role."""


@running.command(app)
def add(
    context: typer.Context,
    instance: InstanceName,
    role: Annotated[str, typer.Option(help="Role of the new members.")],
    allocation: Annotated[list[str], typer.Option(metavar="ID|NODE", help="Allocation id or node name; repeatable.")],
    reason: Reason = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Add members.

    Example: gpuaas member add slurm --role worker --allocation gpu-4 --allocation gpu-5
    """

    async def work(opened: session.Session) -> int:
        known = await opened.every(ALLOCATION_LIST)
        wanted = [part for given in allocation for part in given.split(",") if part]
        found = [lookup.pick_allocation(known, named).allocation_id for named in wanted]
        body = MemberOperationRequest(kind="add", component_key=role, allocation_ids=found, reason=reason)
        return await _operate(opened, instance, body, detach=detach, dry_run=dry_run)

    return session.run(running.flags_of(context), work)


@running.command(app)
def drain(
    context: typer.Context,
    instance: InstanceName,
    members: Nodes,
    role: RoleOption = "",
    reason: Reason = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Let members finish their work and take no more.

    Example: gpuaas member drain slurm gpu-2 --reason "fan broken"
    """
    body = MemberOperationRequest(kind="drain", component_key=role, reason=reason)
    return _change(context, instance, members, body, detach=detach, dry_run=dry_run)


@running.command(app)
def resume(
    context: typer.Context,
    instance: InstanceName,
    members: Nodes,
    role: RoleOption = "",
    reason: Reason = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Let drained members take work again.

    Example: gpuaas member resume slurm gpu-2
    """
    body = MemberOperationRequest(kind="resume", component_key=role, reason=reason)
    return _change(context, instance, members, body, detach=detach, dry_run=dry_run)


@running.command(app)
def remove(
    context: typer.Context,
    instance: InstanceName,
    members: Nodes,
    role: RoleOption = "",
    reason: Reason = "",
    force: Force = False,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Take members away once they are seen to be idle.

    Example: gpuaas member remove slurm gpu-3
    """
    body = MemberOperationRequest(kind="remove", component_key=role, reason=reason, force=force)
    return _change(context, instance, members, body, detach=detach, dry_run=dry_run)


def _change(
    context: typer.Context,
    instance: InstanceName,
    named: list[str],
    body: MemberOperationRequest,
    *,
    detach: bool,
    dry_run: bool,
) -> int:
    async def work(opened: session.Session) -> int:
        known = await lookup.all_members(opened, instance)
        roles = {body.component_key} if body.component_key else await _roles_with(opened, instance, body.kind)
        chosen = lookup.pick_members(known, [part for name in named for part in name.split(",") if part], roles)
        request = msgspec.structs.replace(body, member_ids=[one.member_id for one in chosen])
        return await _operate(opened, instance, request, detach=detach, dry_run=dry_run)

    return session.run(running.flags_of(context), work)


async def _roles_with(opened: session.Session, instance: str, verb: str) -> set[str]:
    """Roles that know the verb, as far as the catalog shows: on a node with several members, one of those is meant."""
    found = await lookup.instance(opened, instance)
    versions = await opened.every(PROJECT_APP_LIST)
    wanted = (found.app_slug, found.app_version)
    manifests = [one.manifest for one in versions if (one.app_slug, one.version) == wanted]
    return {role.component_key for manifest in manifests for role in manifest.roles if verb in role.operations}


async def _operate(
    opened: session.Session, instance: str, body: MemberOperationRequest, *, detach: bool, dry_run: bool
) -> int:
    operation = await opened.call(MEMBER_OPERATION_CREATE, body, dry_run=dry_run, instance_id=instance)
    if not dry_run:
        return await follow.started(opened, operation, detach=detach)
    if opened.flags.output in ("json", "yaml"):
        follow.show(opened.flags, operation)
    else:
        print(f"would {steps.title(operation)}: {', '.join(body.member_ids or body.allocation_ids)}")
    output.talk("Nothing was changed.")
    return failures.OK
