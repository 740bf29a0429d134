"""The how-to page lists the checks as they are."""

from pathlib import Path

from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import GAPS
from gpuaas_sdk.conformance.registry import CHECKS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "prove-an-app.md").read_text()


def test_the_page_lists_every_check_with_its_claim() -> None:
    rows = [f"| `{name}` | {CHECKS[name].claim} |" for name in conformance.ALL]
    assert [line for line in PAGE.splitlines() if line in rows] == rows
    assert f"{len(rows)} passed, 0 failed" in PAGE


def test_the_changelog_counts_the_checks() -> None:
    assert f"{len(conformance.ALL)} checks run its controller" in (ROOT / "CHANGELOG.md").read_text()


def test_the_page_names_every_class_of_gap() -> None:
    assert ", ".join(GAPS) in PAGE
