"""`gpuaas logout`: end a session and forget its token."""

import asyncio
import os

import typer
from gpuaas_contract.errors import ApiError
from gpuaas_contract.sessions import LOGOUT
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures, output
from gpuaas_cli.client import home, session
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def logout(context: typer.Context) -> int:
    """End the session at the server and forget its token, of the current context or of the one named by --context.

    Example: gpuaas logout --context prod
    """
    flags = run.flags_of(context)
    folder = home.folder(os.environ)
    config = home.load(folder)
    name = home.resolve(flags, os.environ, config).context
    known = config.contexts.get(name)
    if known is None or not known.token:
        output.talk("You were not signed in.")
        return failures.OK
    trouble = asyncio.run(_end(home.Target(name, known.server, known.token, "", known.ca_file)))
    home.forget_token(folder, name)
    output.talk(f"Signed out of {known.server} (context {name}).")
    if trouble:
        output.talk(f"The token is forgotten here, but the session may live on at the server: {trouble}")
    return failures.OK


async def _end(target: home.Target) -> str:
    """Why the server may still honour the token; empty when it does not. The token is forgotten in any case."""
    try:
        async with session.make_client(target) as client:
            await client.call(LOGOUT, timeout_s=session.READ_S)
    except ApiError as error:
        return "" if error.status == 401 else error.message
    except (NoAnswer, failures.Failure) as error:
        return error.message
    return ""
