"""`gpuaas user`: people and their passwords."""

from typing import Annotated

import typer
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.users import (
    USER_CREATE,
    USER_DISABLE,
    USER_ENABLE,
    USER_SET_PASSWORD,
    CreateUser,
    SetPassword,
    User,
)
from gpuaas_contract.wire import NoBody

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.callback()
def user() -> None:
    """People are made here, or by their first sign-in through an identity provider; roles are given apart."""


@run.command(app)
def create(
    context: typer.Context,
    name: Name,
    with_password: Annotated[
        bool, typer.Option("--password", help="Ask for a password, or read it from stdin; without, none is set.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Create a person. The password is asked for, or read from stdin; never give it on the command line.

    Example: gpuaas user create ada --password
    """
    flags = run.flags_of(context)
    password = ask.new_password(flags, name, f"gpuaas user create {name} --password") if with_password else ""
    body = CreateUser(name=name, password=password)
    kinds.show_one(flags, "users", session.run(flags, lambda opened: opened.call(USER_CREATE, body, dry_run=dry_run)))
    output.talk(f"  next: gpuaas binding grant {name} ROLE")
    return failures.OK


@run.command(app, "list")
def list_users(context: typer.Context) -> int:
    """Everybody.

    Example: gpuaas user list
    """
    kinds.list_all(run.flags_of(context), "users")
    return failures.OK


def _switching_command(verb: str, endpoint: Endpoint[NoBody, User], meaning: str) -> None:
    @run.command(app, verb, help=f"{meaning}\n\nExample: gpuaas user {verb} ada")
    def switch(context: typer.Context, name: Name) -> int:
        async def work(opened: session.Session) -> User:
            return await opened.call(endpoint, user_id=(await lookup.user(opened, name)).user_id)

        flags = run.flags_of(context)
        kinds.show_one(flags, "users", session.run(flags, work))
        return failures.OK


_switching_command("disable", USER_DISABLE, "End all of a person's sessions at once and let them start no new ones.")
_switching_command("enable", USER_ENABLE, "Let a disabled person sign in again, with the roles they have.")


@run.command(app, "set-password")
def set_password(context: typer.Context, name: Name) -> int:
    """Give a person a new password and end all their sessions. It is asked for, or read from stdin.

    Example: gpuaas user set-password ada
    """
    flags = run.flags_of(context)
    body = SetPassword(password=ask.new_password(flags, name, f"gpuaas user set-password {name}"))

    async def work(opened: session.Session) -> User:
        return await opened.call(USER_SET_PASSWORD, body, user_id=(await lookup.user(opened, name)).user_id)

    kinds.show_one(flags, "users", session.run(flags, work))
    return failures.OK
