"""`gpuaas break-glass`: temporary access to a project in an emergency, seen by everybody it concerns."""

import sys
from typing import Annotated

import typer
from gpuaas_contract.bindings import BREAK_GLASS_CREATE, BREAK_GLASS_MINUTES_MAX, BreakGlass, RoleBinding

from gpuaas_cli import asking, failures, kinds, lookup, output, running, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.options import DryRun, NeededReason, Yes

app = running.command_group()

Minutes = Annotated[int, typer.Option(min=1, max=BREAK_GLASS_MINUTES_MAX, help="It ends by itself.")]


@running.command(app)
def break_glass(
    context: typer.Context,
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its id, or its name if you see it.")],
    reason: NeededReason,
    minutes: Minutes = 30,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Take temporary access to a project. Its organisation reads who, why and until when; scripts must say --yes.

    Example: gpuaas break-glass proj_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "ticket 4711: the head node hangs"
    """
    flags = running.flags_of(context)
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
    return failures.OK


def _confirm(flags: Flags, project: str, minutes: int) -> None:
    """Unlike elsewhere, a script does not say yes by calling: nobody breaks glass by accident."""
    if flags.no_input or not sys.stdin.isatty():
        raise failures.usage("Nobody is there to confirm it", f'gpuaas break-glass {project} --reason "WHY" --yes')
    consequence = (
        f"This opens {project} to you for {minutes} minutes. Its organisation reads your name and your reason."
    )
    again = f'gpuaas break-glass {project} --reason "WHY"'
    asking.confirm(flags, consequence, name=project, what="project", again=again)
