"""`gpuaas node`: let nodes in."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.capacity import ENROLMENT_CREATE, CreateEnrolmentToken

from gpuaas_cli import failures, output, running, session

app = running.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.callback()
def node() -> None:
    """Nodes are machines whose agent has enrolled."""


@running.command(app)
def token(
    context: typer.Context,
    name: Name,
    sku: Annotated[str, typer.Option(help="What the node is sold as.")] = "standard",
    region: Annotated[str, typer.Option(help="Where it stands.")] = "local",
    ttl_s: Annotated[int, typer.Option(min=60, help="Seconds until the token is useless.")] = 3600,
) -> int:
    """Print a token that admits one node, once.

    Example: gpuaas node token gpu-1
    """
    flags = running.flags_of(context)
    body = CreateEnrolmentToken(name=name, sku=sku, region=region, ttl_s=ttl_s)
    made = session.run(flags, lambda opened: opened.call(ENROLMENT_CREATE, body))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(made)))
        return failures.OK
    print(made.token)
    output.talk(f"Works once, for a node named {name}, until {output.clock_time(made.expires_at)}.")
    if made.ca_sha256:
        output.talk(f"The node must find the authority {made.ca_sha256}.")
    return failures.OK
