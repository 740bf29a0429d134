"""`gpuaas password`: change your own."""

import typer
from gpuaas_contract.users import MY_PASSWORD, ChangePassword

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def password(context: typer.Context) -> int:
    """Change your own password and end your other sessions. The present and the new one are asked for, or read from
    stdin as two lines; never give them on the command line.

    Example: gpuaas password
    """
    flags = run.flags_of(context)
    present = ask.secret(flags, "Present password", "gpuaas password")
    new = ask.new_password(flags, "yours from now on", "gpuaas password")
    body = ChangePassword(present_password=present, new_password=new)
    kinds.show_one(flags, "users", session.run(flags, lambda opened: opened.call(MY_PASSWORD, body)))
    output.talk("Changed. Your other sessions have ended; this one goes on.")
    return failures.OK
