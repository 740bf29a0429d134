"""`gpuaas policy`: overlays of the platform, an organisation or a project, and why a verdict is as it is."""

from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract import policy as contract
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.policy import (
    ChangedPolicyLayer,
    ExplainPolicy,
    Ineffective,
    Overlay,
    PolicyExplanation,
    PolicyLayer,
)
from gpuaas_contract.wire import NoBody

from gpuaas_cli import failures, output
from gpuaas_cli.client import session
from gpuaas_cli.input import documents
from gpuaas_cli.output import aligned, clock_time
from gpuaas_cli.runner import run, scopes
from gpuaas_cli.runner.options import DryRun
from gpuaas_cli.show import story

app = run.command_group()

_GET: dict[scopes.Level, Endpoint[NoBody, PolicyLayer]] = {
    "platform": contract.GLOBAL_GET,
    "org": contract.ORG_GET,
    "project": contract.PROJECT_GET,
}
_SET: dict[scopes.Level, Endpoint[Overlay, ChangedPolicyLayer]] = {
    "platform": contract.GLOBAL_SET,
    "org": contract.ORG_SET,
    "project": contract.PROJECT_SET,
}


@app.callback()
def policy() -> None:
    """An overlay narrows and never broadens: what is allowed, every layer allows and none denies."""


@run.command(app)
def show(context: typer.Context, platform: scopes.Platform = False, org: scopes.Org = "") -> int:
    """The overlay of one layer, in the form that policy set takes.

    Example: gpuaas policy show --org acme > acme.yaml
    """
    flags = run.flags_of(context)
    layer = session.run(flags, lambda opened: _read(opened, platform=platform, org=org))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(layer)))
        return failures.OK
    print(_text(layer.overlay))
    output.talk(_origin(layer))
    return failures.OK


@run.command(app, "set")
def set_overlay(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The whole overlay, YAML or JSON; - is stdin.")],
    platform: scopes.Platform = False,
    org: scopes.Org = "",
    revision: Annotated[
        int | None, typer.Option(min=0, help="Only if it is still this one; the present one if not given.")
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Put an overlay in place of the present one, unless somebody else changes it meanwhile.

    Example: gpuaas policy set acme.yaml --org acme
    """
    overlay = documents.read(file, Overlay, "an overlay")

    async def work(opened: session.Session) -> ChangedPolicyLayer:
        scope = await scopes.find(opened, platform=platform, org=org)
        path: dict[str, Any] = scope.path
        known = f'"{revision}"' if revision is not None else (await opened.client.read(_GET[scope.level], **path)).etag
        return await opened.call(_SET[scope.level], overlay, if_match=known, dry_run=dry_run, **path)

    flags = run.flags_of(context)
    changed = session.run(flags, work)
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(changed)))
    else:
        print("\n".join([_origin(changed), *story.section("Without effect", _ineffective(changed.ineffective))]))
    return failures.OK


@run.command(app)
def explain(
    context: typer.Context,
    region: Annotated[str, typer.Option(help="May this region be used?")] = "",
    sku: Annotated[str, typer.Option(help="May this SKU be used?")] = "",
    app_slug: Annotated[str, typer.Option("--app", help="May this app be deployed?")] = "",
    artifact_source: Annotated[str, typer.Option(help="May artifacts come from there?")] = "",
) -> int:
    """What all layers together allow in the project, and which of them decides.

    Example: gpuaas policy explain --region eu-1 --app slurm
    """
    flags = run.flags_of(context)
    body = ExplainPolicy(region=region, sku=sku, app=app_slug, artifact_source=artifact_source)
    found = session.run(flags, lambda opened: opened.call(contract.EXPLAIN, body))
    if flags.output in ("json", "yaml"):
        print(output.encoded(flags.output, msgspec.to_builtins(found)))
    else:
        print("\n".join(_explanation(found)).lstrip("\n"))
    return failures.OK


async def _read(opened: session.Session, *, platform: bool, org: str) -> PolicyLayer:
    scope = await scopes.find(opened, platform=platform, org=org)
    path: dict[str, Any] = scope.path
    return await opened.call(_GET[scope.level], **path)


def _origin(layer: PolicyLayer) -> str:
    where = f"{layer.layer} layer of {layer.scope}"
    if layer.changed_at is None:
        return f"{where}: never set"
    return f"{where}: revision {layer.revision}, {clock_time(layer.changed_at)} by {layer.changed_by}"


def _explanation(found: PolicyExplanation) -> list[str]:
    verdicts = [
        [one.subject, one.value, "allowed" if one.allowed else "refused", one.layer or "-", one.rule]
        for one in found.verdicts
    ]
    limits = [[one.limit, str(one.max), one.layer, one.rule] for one in found.limits]
    return [
        *story.section("Verdicts", aligned(verdicts)),
        *story.section("Limits", aligned(limits)),
        *story.section("All layers together", _text(found.effective).splitlines()),
        *story.section("Without effect", _ineffective(found.ineffective)),
    ]


def _text(overlay: Overlay) -> str:
    """Only what it narrows: the rest of an overlay says nothing."""
    empty = msgspec.to_builtins(Overlay())
    said = {name: value for name, value in msgspec.to_builtins(overlay).items() if value != empty[name]}
    return output.encoded("yaml", said) if said else "{}  # narrows nothing"


def _ineffective(entries: list[Ineffective]) -> list[str]:
    """What is written down but wider than the layers above allow."""
    return [f"{one.layer} {one.field} {one.entry}: {one.extent}, by {one.narrowed_by}: {one.rule}" for one in entries]
