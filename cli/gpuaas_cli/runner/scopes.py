"""Where a command applies: the whole platform, one organisation, or the project it works in."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from gpuaas_cli import failures
from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session

Level = Literal["platform", "org", "project"]
Platform = Annotated[bool, typer.Option("--platform", help="At the platform, not in the project.")]
Org = Annotated[str, typer.Option("--org", help="In this organisation, not in the project.")]


@dataclass(frozen=True)
class Scope:
    level: Level
    path: dict[str, str]
    """What the path of this level's endpoints takes."""


def level_of(*, platform: bool, org: str) -> Level:
    if platform and org:
        raise failures.usage("--platform and --org exclude each other", "Name one of them")
    if platform:
        return "platform"
    return "org" if org else "project"


async def find(session: Session, *, platform: bool, org: str) -> Scope:
    level = level_of(platform=platform, org=org)
    if level == "platform":
        return Scope(level, {})
    if level == "org":
        return Scope(level, {"org_id": (await lookup.org(session, org)).org_id})
    return Scope(level, {"project_id": await session.project_id()})
