"""The page about health has a row for each fault that the app reports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gpuaas_app_slurm import checks, plan, unknown_nodes

APP = Path(checks.__file__).parent
PAGE = APP.parent / "docs" / "health.md"
REPAIRS = re.compile(r"\brepair=f\"([A-Z][A-Za-z]+): ")
"""A repair whose reason is no fault of a member."""


def reported() -> Iterator[str]:
    """Yield the code of each fault in the source of the app."""
    for path in APP.rglob("*.py"):
        text = path.read_text()
        yield from REPAIRS.findall(text)
        calls = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
        for call in calls:
            if getattr(call.func, "id", getattr(call.func, "attr", "")) == "Finding":
                yield from _codes(call.args[0])
    yield unknown_nodes.CODE
    yield plan.PEOPLE_CHANGED.partition(":")[0]


def _codes(argument: ast.expr) -> Iterator[str]:
    """Yield the code of a finding: a text, a constant of `checks`, or a variable for units of the controller."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif isinstance(argument, ast.Name) and argument.id.isupper():
        yield getattr(checks, argument.id)
    else:
        yield from checks.ACCOUNTING_FAULTS.values()


def test_each_fault_has_a_row_and_each_row_has_a_fault() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = {code for row in rows for code in re.findall(r"`([A-Za-z]+)`", row.split("|")[1])}
    assert listed == set(reported())
    assert {"NodeDown", "PeopleChanged", "DatabaseDown", "UnknownNode"} <= listed
