"""Roles and their reference page keep their promises."""

from pathlib import Path

import pytest
from gpuaas_contract import permissions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "permissions.md"


def test_the_reference_page_matches_the_roles() -> None:
    assert PAGE.read_text() == permissions.page(), "if the change is on purpose: make contract"


def test_a_page_that_does_not_match_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["permissions", "--write", str(page), "--check", str(page)])
    assert permissions.main() == 0
    page.write_text("old")
    monkeypatch.setattr("sys.argv", ["permissions", "--check", str(page)])
    assert permissions.main() == 1
    assert "make contract" in capsys.readouterr().err


def test_every_role_is_bound_at_one_level_or_given_by_the_platform() -> None:
    bound = [role for roles in permissions.GRANTABLE.values() for role in roles]
    assert sorted([*bound, "break_glass", "service_account"]) == sorted(permissions.ROLES)


def test_roles_of_a_project_contain_one_another() -> None:
    roles = permissions.ROLES
    assert roles["viewer"] < roles["project_member"] < roles["project_admin"] < roles["tenant_admin"]


def test_appointed_roles_name_a_key_that_an_admin_holds() -> None:
    for role, key in permissions.APPOINTED.items():
        assert role in permissions.ROLES
        assert key in permissions.ROLES["platform_admin"]
