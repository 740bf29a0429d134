"""`gpuaas access`: how to use an app instance."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.instances import ACCESS_BUNDLE_GET, AccessBundle

from gpuaas_cli import failures, output
from gpuaas_cli.client import session
from gpuaas_cli.runner import run
from gpuaas_cli.show import story

app = run.command_group()


@run.command(app)
def access(context: typer.Context, instance: Annotated[str, typer.Argument(metavar="INSTANCE")]) -> int:
    """Endpoints, paths and commands of an app instance, as its controller published them.

    Example: gpuaas access slurm
    """
    flags = run.flags_of(context)
    bundle, nodes = session.run(flags, lambda opened: _gather(opened, instance))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(bundle)))
        return failures.OK
    print("\n".join(story.of_access(bundle, nodes)).lstrip("\n"))
    output.talk(f"\nLog in there: gpuaas ssh {instance}")
    return failures.OK


async def _gather(opened: session.Session, instance: str) -> tuple[AccessBundle, dict[str, str]]:
    bundle = await opened.call(ACCESS_BUNDLE_GET, instance_id=instance)
    allocations = await opened.every(ALLOCATION_LIST)
    return bundle, {one.allocation_id: one.node_name for one in allocations}
