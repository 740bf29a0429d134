"""`gpuaas can-i`."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.policy import CAN_I, CanI, CanIAnswer

from gpuaas_cli import failures, output
from gpuaas_cli.client import session
from gpuaas_cli.runner import run, scopes

app = run.command_group()


@run.command(app, "can-i")
def can_i(
    context: typer.Context,
    permission: Annotated[str, typer.Argument(metavar="PERMISSION", help="area.thing.verb")],
    platform: scopes.Platform = False,
    org: scopes.Org = "",
    region: Annotated[str, typer.Option(help="With this region.")] = "",
    sku: Annotated[str, typer.Option(help="With this SKU.")] = "",
    app_slug: Annotated[str, typer.Option("--app", help="With this app.")] = "",
    artifact_source: Annotated[str, typer.Option(help="With an artifact from there.")] = "",
) -> int:
    """Whether you may do something here, and what decides it: 0 yes, 1 no.

    Example: gpuaas can-i apps.instance.create --app slurm
    """
    asked = CanI(permission=permission, region=region, sku=sku, app=app_slug, artifact_source=artifact_source)

    async def work(opened: session.Session) -> CanIAnswer:
        scope = await scopes.find(opened, platform=platform, org=org)
        return await opened.call(CAN_I, msgspec.structs.replace(asked, **scope.path))

    flags = run.flags_of(context)
    answer = session.run(flags, work)
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(answer)))
    else:
        print("yes" if answer.allowed else "no")
        output.talk(answer.explanation)
    return failures.OK if answer.allowed else failures.FAILED
