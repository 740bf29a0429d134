"""`gpuaas deploy`: put an app on allocations and follow it until it runs."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import PROJECT_APP_LIST, AppVersion
from gpuaas_contract.instances import INSTANCE_CREATE, Deployed, DeployInstance

from gpuaas_cli import failures, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import values
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, Sets
from gpuaas_cli.work import follow

app = run.command_group()


@run.command(app)
def deploy(
    context: typer.Context,
    app_slug: Annotated[str, typer.Argument(metavar="APP")],
    name: Annotated[str, typer.Option(help="Name of the instance; the app's own if empty.")] = "",
    topology: Annotated[str, typer.Option(help="One of the app's topologies.")] = "",
    sets: Sets = None,
    version: Annotated[str, typer.Option(help="Newest published version if empty.")] = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Deploy an app. Values are typed by the app's form; lists are a,b,c or JSON; allocations may be node names.

    Example: gpuaas deploy slurm --name lab --topology split --set cluster_name=lab
    --set controller_allocation_id=gpu-1 --set worker_allocation_ids=gpu-2,gpu-3
    """
    flags = run.flags_of(context)
    asked = DeployInstance(name=name or app_slug, app_slug=app_slug, topology=topology, version=version)
    return session.run(flags, lambda opened: _deploy(opened, asked, sets or [], detach=detach, dry_run=dry_run))


async def _deploy(
    opened: session.Session, asked: DeployInstance, sets: list[str], *, detach: bool, dry_run: bool
) -> int:
    manifest = (await find_version(opened, asked.app_slug, asked.version)).manifest
    allocations = await opened.every(ALLOCATION_LIST) if sets else []
    body = msgspec.structs.replace(
        asked,
        topology=values.topology(manifest, asked.topology),
        inputs=values.build(manifest, sets, lambda named: lookup.pick_allocation(allocations, named).allocation_id),
    )
    answer = await opened.call(INSTANCE_CREATE, body, dry_run=dry_run)
    if dry_run:
        _show_plan(opened, answer)
        return failures.OK
    output.talk(
        f"{answer.instance.name} ({answer.instance.instance_id}), correlation {answer.operation.correlation_id}"
    )
    return await follow.started(opened, answer.operation, detach=detach)


async def find_version(opened: session.Session, app_slug: str, version: str) -> AppVersion:
    """What the project may deploy; the newest registered one when no version is named."""
    offered = await opened.every(PROJECT_APP_LIST)
    found = [one for one in offered if one.app_slug == app_slug and version in ("", one.version)]
    if found:
        return max(found, key=lambda one: one.created_at)
    known = ", ".join(f"{one.app_slug}@{one.version}" for one in offered) or "none"
    raise failures.not_found(
        f"This project may not deploy {app_slug} {version}".rstrip() + f"; it may deploy: {known}",
        f"gpuaas app entitle {app_slug}",
    )


def _show_plan(opened: session.Session, answer: Deployed) -> None:
    flags = opened.flags
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(answer)))
        return
    instance = answer.instance
    print(f"would deploy {instance.name}: {instance.app_slug} {instance.app_version}, topology {instance.topology}")
    for role, allocation_ids in instance.placement.items():
        print(f"  {role}: {', '.join(allocation_ids)}")
    output.talk("Nothing was changed.")
