"""`gpuaas app`: the catalog."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml
from gpuaas_contract.catalog import (
    ENTITLEMENT_SET,
    VERSION_PUBLISH,
    VERSION_REGISTER,
    Manifest,
    SetEntitlement,
)

from gpuaas_cli import failures, kinds, output, running, session
from gpuaas_cli.output import Column

app = running.command_group()

Slug = Annotated[str, typer.Argument(metavar="APP")]

_ENTITLEMENT = (
    Column("APP", lambda one: one.app_slug),
    Column("ENTITLED", lambda one: "yes" if one.enabled else "no"),
    Column("PROJECT", lambda one: one.project_id),
)


@app.callback()
def apps() -> None:
    """Apps have versions; a version is registered by its manifest, then published, then entitled per project."""


@running.command(app)
def register(
    context: typer.Context,
    manifest: Annotated[str, typer.Argument(metavar="MANIFEST", help="YAML or JSON file; - is stdin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> int:
    """Register an app version.

    Example: gpuaas app register manifest.yaml
    """
    flags = running.flags_of(context)
    body = read_manifest(manifest)
    made = session.run(flags, lambda opened: opened.call(VERSION_REGISTER, body, dry_run=dry_run))
    kind = kinds.get("apps")
    output.show_one(flags, made, kind.columns, kind.name)
    if made.state != "published":
        output.talk(f"  next: gpuaas app publish {made.app_slug} {made.version}")
    return failures.OK


@running.command(app)
def publish(context: typer.Context, slug: Slug, version: Annotated[str, typer.Argument(metavar="VERSION")]) -> int:
    """Let projects deploy a version.

    Example: gpuaas app publish slurm 1.0.0
    """
    flags = running.flags_of(context)
    made = session.run(flags, lambda opened: opened.call(VERSION_PUBLISH, app_slug=slug, version=version))
    kind = kinds.get("apps")
    output.show_one(flags, made, kind.columns, kind.name)
    output.talk(f"  next: gpuaas app entitle {slug}")
    return failures.OK


@running.command(app)
def entitle(
    context: typer.Context,
    slug: Slug,
    off: Annotated[bool, typer.Option("--off", help="Stop the project from deploying more of it.")] = False,
) -> int:
    """Let a project deploy an app.

    Example: gpuaas app entitle slurm --project research
    """
    flags = running.flags_of(context)
    body = SetEntitlement(enabled=not off)
    made = session.run(flags, lambda opened: opened.call(ENTITLEMENT_SET, body, app_slug=slug))
    output.show_one(flags, made, _ENTITLEMENT, lambda one: str(one.app_slug))
    return failures.OK


def read_manifest(path: str) -> Manifest:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise failures.usage(f"{path} cannot be read: {error.strerror}", "gpuaas app register FILE") from error
    return parse_manifest(text, path)


def parse_manifest(text: str, path: str) -> Manifest:
    """YAML, and so JSON."""
    try:
        value: Any = yaml.safe_load(text)
        return msgspec.convert(value, Manifest)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise failures.Failure(
            f"{path} is not a manifest: {error}", fix=f"Correct the named field in {path}", code="manifest_invalid"
        ) from error
