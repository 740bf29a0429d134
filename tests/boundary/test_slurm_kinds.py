"""Each kind of operation that the command line has is offered by the Slurm app, or the app's page gives the reason."""

import re
from pathlib import Path

from gpuaas_app_slurm.controller import app
from gpuaas_cli.runner import reach
from gpuaas_contract.operations import INSTANCE_KINDS

PAGE = Path(__file__).parents[2] / "apps/slurm/docs/README.md"
MEMBER = "member "


def test_the_app_offers_every_kind_of_the_command_line_or_its_page_gives_the_reason() -> None:
    commands = {words for _, words, _ in reach.leaves()}
    kinds = {words.removeprefix(MEMBER) for words in commands if words.startswith(MEMBER)}
    wanted = {(kind, role.component_key) for kind in kinds for role in app.manifest.roles}
    offered = {(kind, role.component_key) for role in app.manifest.roles for kind in role.operations}
    assert _refused(PAGE.read_text()).keys() == wanted - offered
    of_instances = {"deploy", "decommission", *app.manifest.instance_operations}
    assert commands & INSTANCE_KINDS == of_instances


def _refused(page: str) -> dict[tuple[str, str], str]:
    """The table of the page: kind and role -> why."""
    rows = re.findall(r"^\| ([a-z, ]+) \| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
    return {(kind, role): why for kinds, role, why in rows for kind in kinds.split(", ")}
