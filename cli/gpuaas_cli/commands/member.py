"""`gpuaas member`: grow, drain, resume, shrink an instance, and move its members to other machines."""

from typing import Annotated, Literal

import msgspec
import typer
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.instances import MEMBER_OPERATION_CREATE, MemberOperationRequest

from gpuaas_cli import failures
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, Force, InstanceName, Reason, check_force, words
from gpuaas_cli.work import operations

app = run.command_group()

Nodes = Annotated[list[str], typer.Argument(metavar="MEMBER|NODE", help="Member ids or node names.")]
RoleOption = Annotated[str, typer.Option("--role", help="Role, where a node carries several members.")]
StopAfter = Annotated[
    int, typer.Option("--stop-after", min=0, metavar="N", help="Begin no more once N have failed; 0 tries all.")
]


@app.callback()
def member() -> None:
    """Members are the machines of an instance, each in a role."""


@run.command(app)
def add(
    context: typer.Context,
    instance: InstanceName,
    role: Annotated[str, typer.Option(help="Role of the new members.")],
    allocation: Annotated[list[str], typer.Option(metavar="ID|NODE", help="Allocation id or node name; repeatable.")],
    stop_after: StopAfter = 0,
    reason: Reason = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Add members.

    Example: gpuaas member add slurm --role worker --allocation gpu-4 --allocation gpu-5
    """
    body = MemberOperationRequest(kind="add", component_key=role, reason=reason, stop_after_failures=stop_after)

    async def work(opened: session.Session) -> int:
        request = msgspec.structs.replace(body, allocation_ids=await _allocation_ids(opened, allocation))
        return await _operate(opened, instance, request, detach=detach, dry_run=dry_run)

    return session.run(run.flags_of(context), work)


def _changing_command(verb: Literal["drain", "resume", "remove"], meaning: str, example: str) -> None:
    @run.command(app, verb, help=f"{meaning}\n\nExample: gpuaas member {verb} {example}")
    def change(
        context: typer.Context,
        instance: InstanceName,
        members: Nodes,
        role: RoleOption = "",
        stop_after: StopAfter = 0,
        reason: Reason = "",
        force: Force = False,
        detach: Detach = False,
        dry_run: DryRun = False,
    ) -> int:
        check_force(force, reason, f"gpuaas member {verb} {instance} {' '.join(members)}")
        body = MemberOperationRequest(
            kind=verb, component_key=role, reason=reason, force=force, stop_after_failures=stop_after
        )

        async def work(opened: session.Session) -> int:
            request = msgspec.structs.replace(body, member_ids=await _member_ids(opened, instance, members, body))
            return await _operate(opened, instance, request, detach=detach, dry_run=dry_run)

        return session.run(run.flags_of(context), work)


_changing_command("drain", "Let members finish their work and take no more.", 'slurm gpu-2 gpu-3 --reason "new memory"')
_changing_command("resume", "Let drained members take work again.", "slurm gpu-2")
_changing_command("remove", "Take members away once they are seen to be idle.", "slurm gpu-3")


@run.command(app)
def replace(
    context: typer.Context,
    instance: InstanceName,
    members: Nodes,
    allocation: Annotated[
        list[str], typer.Option("--with", metavar="ID|NODE", help="Allocation id or node name; one for each member.")
    ],
    role: RoleOption = "",
    stop_after: StopAfter = 0,
    reason: Reason = "",
    force: Force = False,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Move members to other machines; each keeps its id and place in the app.

    Example: gpuaas member replace slurm gpu-2 --with gpu-5 --reason "broken fan"
    """
    check_force(force, reason, f"gpuaas member replace {instance} {' '.join(members)}")
    if len(words(members)) != len(words(allocation)):
        raise failures.usage(
            f"{len(words(members))} members need as many allocations, not {len(words(allocation))}",
            f"gpuaas member replace {instance} MEMBER --with ALLOCATION",
        )
    body = MemberOperationRequest(
        kind="replace", component_key=role, reason=reason, force=force, stop_after_failures=stop_after
    )

    async def work(opened: session.Session) -> int:
        request = msgspec.structs.replace(
            body,
            member_ids=await _member_ids(opened, instance, members, body),
            allocation_ids=await _allocation_ids(opened, allocation),
        )
        return await _operate(opened, instance, request, detach=detach, dry_run=dry_run)

    return session.run(run.flags_of(context), work)


async def _allocation_ids(opened: session.Session, named: list[str]) -> list[str]:
    known = await opened.every(ALLOCATION_LIST)
    return [lookup.pick_allocation(known, one).allocation_id for one in words(named)]


async def _member_ids(
    opened: session.Session, instance: str, named: list[str], body: MemberOperationRequest
) -> list[str]:
    known = await lookup.all_members(opened, instance)
    roles = {body.component_key} if body.component_key else await _roles_with(opened, instance, body.kind)
    return [one.member_id for one in lookup.pick_members(known, words(named), roles)]


async def _roles_with(opened: session.Session, instance: str, verb: str) -> set[str]:
    """Roles that know the verb, as far as the catalog shows: on a node with several members, one of those is meant."""
    manifest = await lookup.manifest(opened, await lookup.instance(opened, instance))
    return {role.component_key for role in manifest.roles if verb in role.operations} if manifest else set()


async def _operate(
    opened: session.Session, instance: str, body: MemberOperationRequest, *, detach: bool, dry_run: bool
) -> int:
    operation = await opened.call(MEMBER_OPERATION_CREATE, body, dry_run=dry_run, instance_id=instance)
    about = ", ".join(body.member_ids or body.allocation_ids)
    return await operations.finish(opened, operation, about=about, detach=detach, dry_run=dry_run)
