"""`gpuaas app`: the catalog."""

from typing import Annotated

import msgspec
import typer
from gpuaas_contract.catalog import (
    ENTITLEMENT_SET,
    PROJECT_APP_GET,
    VERSION_DEPRECATE,
    VERSION_GET,
    VERSION_PUBLISH,
    VERSION_REGISTER,
    VERSION_WITHDRAW,
    AppVersion,
    Manifest,
    PublishVersion,
    RetireVersion,
    SetEntitlement,
)
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.input import documents
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun, words

app = run.command_group()

Slug = Annotated[str, typer.Argument(metavar="APP")]
Version = Annotated[str, typer.Argument(metavar="VERSION")]


@app.callback()
def apps() -> None:
    """Apps have versions; a version is registered by its manifest, then published, then entitled per project."""


@run.command(app)
def register(
    context: typer.Context,
    manifest: Annotated[str, typer.Argument(metavar="MANIFEST", help="YAML or JSON file; - is stdin.")],
    dry_run: DryRun = False,
) -> int:
    """Register an app version.

    Example: gpuaas app register manifest.yaml
    """
    flags = run.flags_of(context)
    body = documents.read(manifest, Manifest, "a manifest")
    made = session.run(flags, lambda opened: opened.call(VERSION_REGISTER, body, dry_run=dry_run))
    kinds.show_one(flags, "apps", made)
    if made.state == "registered":
        output.talk(f"  next: gpuaas app publish {made.app_slug} {made.version}")
    return failures.OK


@run.command(app)
def show(
    context: typer.Context,
    slug: Slug,
    version: Version,
    platform: Annotated[bool, typer.Option("--platform", help="Whether projects may deploy it or not.")] = False,
) -> int:
    """Print one version with its whole manifest, as YAML unless -o json.

    Example: gpuaas app show slurm 1.0.0
    """
    flags = run.flags_of(context)
    endpoint = VERSION_GET if platform else PROJECT_APP_GET
    found = session.run(flags, lambda opened: opened.call(endpoint, app_slug=slug, version=version))
    print(output.encoded("json" if flags.output == "json" else "yaml", msgspec.to_builtins(found)))
    return failures.OK


@run.command(app)
def publish(
    context: typer.Context,
    slug: Slug,
    version: Version,
    channel: Annotated[list[str] | None, typer.Option(help="Where to offer it; repeatable. stable if none.")] = None,
) -> int:
    """Let projects deploy a version.

    Example: gpuaas app publish slurm 1.0.0
    """
    flags = run.flags_of(context)
    body = PublishVersion(channels=words(channel)) if channel else PublishVersion()
    made = session.run(flags, lambda opened: opened.call(VERSION_PUBLISH, body, app_slug=slug, version=version))
    kinds.show_one(flags, "apps", made)
    output.talk(f"  next: gpuaas app entitle {slug}")
    return failures.OK


def _retiring_command(verb: str, endpoint: Endpoint[RetireVersion, AppVersion], meaning: str, why: str) -> None:
    @run.command(app, verb, help=f'{meaning}\n\nExample: gpuaas app {verb} slurm 1.0.0 --reason "{why}"')
    def retire(
        context: typer.Context,
        slug: Slug,
        version: Version,
        reason: Annotated[str, typer.Option(help="Why; said to whoever wants to deploy it.")],
        dry_run: DryRun = False,
    ) -> int:
        flags = run.flags_of(context)
        body = RetireVersion(reason=reason)
        retired = session.run(
            flags, lambda opened: opened.call(endpoint, body, dry_run=dry_run, app_slug=slug, version=version)
        )
        kinds.show_one(flags, "apps", retired)
        return failures.OK


_retiring_command(
    "deprecate",
    VERSION_DEPRECATE,
    "Advise against a version: it is deployed only when it is named. What runs goes on.",
    "1.1.0 is faster",
)
_retiring_command(
    "withdraw",
    VERSION_WITHDRAW,
    "Take a version out of the catalog for good: it is never deployed again. What runs goes on.",
    "loses data on restart",
)


@run.command(app)
def entitle(
    context: typer.Context,
    slug: Slug,
    off: Annotated[bool, typer.Option("--off", help="Stop the project from deploying more of it.")] = False,
    versions: Annotated[
        list[str] | None, typer.Option("--versions", metavar="PATTERN", help="Only these: 1.4.0, 1.4.*; all if none.")
    ] = None,
    channels: Annotated[
        list[str] | None, typer.Option("--channels", metavar="CHANNEL", help="Only of these channels; all if none.")
    ] = None,
    instances_max: Annotated[int | None, typer.Option(min=0, help="Instances at once; no bound if not given.")] = None,
    members_max: Annotated[int | None, typer.Option(min=0, help="Members of all its instances together.")] = None,
) -> int:
    """Let a project deploy an app, within bounds. What is not given is not bounded.

    Example: gpuaas app entitle slurm --project research

    Example: gpuaas app entitle slurm --versions '1.4.*' --channels stable --instances-max 2
    """
    flags = run.flags_of(context)
    body = SetEntitlement(
        enabled=not off,
        versions=words(versions or []),
        channels=words(channels or []),
        instances_max=instances_max,
        members_max=members_max,
    )
    made = session.run(flags, lambda opened: opened.call(ENTITLEMENT_SET, body, app_slug=slug))
    kinds.show_one(flags, "entitlements", made)
    return failures.OK
