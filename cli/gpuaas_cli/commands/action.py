"""`gpuaas action`: what an app lets people do with a running instance."""

from typing import Annotated, Any

import typer
from gpuaas_contract.actions import ACTION_INVOKE, InvokeAction
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import ActionSpec, Manifest

from gpuaas_cli import failures, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import documents, values
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, InstanceName, Reason
from gpuaas_cli.work import operations

app = run.command_group()

_COLUMNS = (
    Column("ACTION", lambda one: one.name),
    Column("PERMISSION", lambda one: one.permission),
    Column("INPUTS", lambda one: ",".join(one.input_schema.get("properties", {}))),
    Column("EXCLUSIVE", lambda one: "yes" if one.exclusive else "no", wide=True),
    Column("DEADLINE_S", lambda one: str(one.deadline_s), wide=True),
    Column("TITLE", lambda one: one.summary or one.title),
)


@app.callback()
def action() -> None:
    """Actions are declared by an app; each needs the permission the app names for it."""


@run.command(app, "list")
def list_actions(context: typer.Context, instance: InstanceName) -> int:
    """What an app lets you do with an instance.

    Example: gpuaas action list slurm
    """
    flags = run.flags_of(context)
    manifest = session.run(flags, lambda opened: _manifest(opened, instance))
    output.show_list(flags, manifest.actions, _COLUMNS, lambda one: str(one.name))
    return failures.OK


@run.command(app, "run")
def run_action(
    context: typer.Context,
    instance: InstanceName,
    action: Annotated[str, typer.Argument(metavar="ACTION")],
    pairs: Annotated[
        list[str] | None, typer.Option("--input", metavar="KEY=VALUE", help="An input; repeatable.")
    ] = None,
    inputs_file: Annotated[
        str, typer.Option("--inputs-file", metavar="FILE", help="YAML or JSON; - is stdin. --input goes before it.")
    ] = "",
    reason: Reason = "",
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Have an app do something, and show what it brought.

    Example: gpuaas action run slurm add-user --input name=ada
    """
    given = documents.read(inputs_file, dict[str, Any], "a list of inputs") if inputs_file else {}

    async def work(opened: session.Session) -> int:
        spec = _pick(await _manifest(opened, instance), action, instance)
        allocations = await opened.every(ALLOCATION_LIST) if pairs else []
        typed = values.typed(
            spec.name,
            spec.input_schema,
            pairs or [],
            lambda named: lookup.pick_allocation(allocations, named).allocation_id,
            "--input",
        )
        body = InvokeAction(inputs={**given, **typed}, reason=reason)
        operation = await opened.call(ACTION_INVOKE, body, dry_run=dry_run, instance_id=instance, action=spec.name)
        return await operations.finish(opened, operation, about=spec.title, detach=detach, dry_run=dry_run)

    return session.run(run.flags_of(context), work)


async def _manifest(opened: session.Session, instance: str) -> Manifest:
    found = await lookup.instance(opened, instance)
    manifest = await lookup.manifest(opened, found)
    if manifest is None:
        raise failures.not_found(
            f"{found.app_slug} {found.app_version} is not among the apps of this project any more",
            f"gpuaas app entitle {found.app_slug}",
        )
    return manifest


def _pick(manifest: Manifest, named: str, instance: str) -> ActionSpec:
    found = [one for one in manifest.actions if one.name == named]
    if found:
        return found[0]
    known = ", ".join(one.name for one in manifest.actions) or "none"
    raise failures.not_found(
        f"{manifest.display_name} has no action {named!r}; it has {known}", f"gpuaas action list {instance}"
    )
