"""`gpuaas session`: where you are signed in, and the end of it."""

from typing import Annotated

import typer
from gpuaas_contract.sessions import SESSION_END

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import session
from gpuaas_cli.runner import run

app = run.command_group()


@app.callback()
def sessions() -> None:
    """A session begins with a sign-in and ends by itself; gpuaas logout ends the one you are in."""


@run.command(app, "list")
def list_sessions(context: typer.Context) -> int:
    """Your sessions; the one this call is made with is marked.

    Example: gpuaas session list
    """
    kinds.list_all(run.flags_of(context), "sessions")
    return failures.OK


@run.command(app)
def end(context: typer.Context, named: Annotated[str, typer.Argument(metavar="SESSION", help="Its id.")]) -> int:
    """End one of your sessions: its token opens nothing from now on.

    Example: gpuaas session end ses_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    flags = run.flags_of(context)
    ended = session.run(flags, lambda opened: opened.call(SESSION_END, session_id=named))
    kinds.show_one(flags, "sessions", ended)
    return failures.OK
