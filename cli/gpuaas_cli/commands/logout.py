"""`gpuaas logout`: forget a token."""

import os

import msgspec
import typer

from gpuaas_cli import failures, home, output, running

app = running.command_group()


@running.command(app)
def logout(context: typer.Context) -> int:
    """Forget the token of the current context, or of the one named by --context.

    Example: gpuaas logout --context prod
    """
    flags = running.flags_of(context)
    folder = home.folder(os.environ)
    config = home.load(folder)
    name = home.resolve(flags, os.environ, config).context
    known = config.contexts.get(name)
    if known is None or not known.token:
        output.talk("You were not signed in.")
        return failures.OK
    contexts = {**config.contexts, name: msgspec.structs.replace(known, token="")}
    home.save(folder, home.Config(current=config.current, contexts=contexts))
    output.talk(f"Signed out of {known.server} (context {name}).")
    return failures.OK
