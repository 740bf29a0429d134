"""`gpuaas break-glass`: temporary access to a project in an emergency, seen by everybody it concerns."""

import sys
from typing import Annotated

import typer
from gpuaas_contract.bindings import (
    BREAK_GLASS_CREATE,
    BREAK_GLASS_END,
    BREAK_GLASS_MINUTES_MAX,
    PROJECT_BINDING_LIST,
    BreakGlass,
    RoleBinding,
)
from gpuaas_contract.identity import ME
from gpuaas_contract.permissions import BREAK_GLASS

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun, Yes

app = run.command_group()

Reason = Annotated[str, typer.Option(help="Why; kept on the audit trail. Needed unless you end it.")]
Minutes = Annotated[int, typer.Option(min=1, max=BREAK_GLASS_MINUTES_MAX, help="It ends by itself.")]
End = Annotated[bool, typer.Option("--end", help="End the access you took, before its time.")]


@run.command(app)
def break_glass(
    context: typer.Context,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its id, or its name if you see it.")],
    reason: Reason = "",
    minutes: Minutes = 30,
    end: End = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Take temporary access to a project. Its organisation reads who, why and until when; scripts must say --yes.

    Example: gpuaas break-glass proj_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "ticket 4711: the head node hangs"

    Example: gpuaas break-glass proj_01k9z0c5p3v2m8q7r6t5w4x3y2 --end
    """
    flags = run.flags_of(context)
    if end:
        return _end(flags, project, dry_run=dry_run)
    if not reason:
        raise failures.usage("Missing option '--reason'", f'gpuaas break-glass {project} --reason "WHY"')
    if not (yes or dry_run):
        _confirm(flags, project, minutes)

    async def work(opened: session.Session) -> RoleBinding:
        body = BreakGlass(project_id=await lookup.project_id(opened, project), reason=reason, minutes=minutes)
        return await opened.call(BREAK_GLASS_CREATE, body, dry_run=dry_run)

    given = session.run(flags, work)
    kinds.show_one(flags, "bindings", given)
    if not dry_run and given.expires_at:
        output.talk(f"It ends by itself at {output.clock_time(given.expires_at)}.")
        output.talk(f"  work in it: gpuaas get instances --project {given.scope}")
        output.talk(f"  when you are done: gpuaas break-glass {given.scope} --end")
    return failures.OK


def _end(flags: Flags, project: str, *, dry_run: bool) -> int:
    async def work(opened: session.Session) -> RoleBinding:
        project_id = await lookup.project_id(opened, project)
        me = await opened.call(ME)
        found = await opened.every(PROJECT_BINDING_LIST, project_id=project_id)
        mine = [one.binding_id for one in found if one.role == BREAK_GLASS and one.user_id == me.actor_id]
        if not mine:
            raise failures.not_found(f"You have no temporary access to {project}", "gpuaas whoami")
        return await opened.call(BREAK_GLASS_END, binding_id=mine[0], dry_run=dry_run)

    kinds.show_one(flags, "bindings", session.run(flags, work))
    if not dry_run:
        output.talk(f"Your access to {project} is over; its organisation is told.")
    return failures.OK


def _confirm(flags: Flags, project: str, minutes: int) -> None:
    """Unlike elsewhere, a script does not say yes by calling: nobody breaks glass by accident."""
    if flags.no_input or not sys.stdin.isatty():
        raise failures.usage("Nobody is there to confirm it", f'gpuaas break-glass {project} --reason "WHY" --yes')
    consequence = (
        f"This opens {project} to you for {minutes} minutes. Its organisation reads your name and your reason."
    )
    again = f'gpuaas break-glass {project} --reason "WHY"'
    ask.confirm(flags, consequence, name=project, what="project", again=again)
