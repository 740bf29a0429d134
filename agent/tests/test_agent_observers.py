"""The user for observers on a node, as far as a folder can show it; tests on machines show the rest."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import commands
from gpuaas_agent.host import accounts, claims, observers
from gpuaas_agent.host.ssh import sshd


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the host, with cron. Programs that would change accounts do nothing."""
    users: dict[str, int] = {}

    def run(argv: list[str], **_: Any) -> bytes:
        if argv[0] == "useradd":
            users[argv[-1]] = 1001
        return b""

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(accounts, "uid_of", users.get)
    monkeypatch.setattr(accounts, "home_of", lambda user: tmp_path / "home" / user)
    monkeypatch.setattr(claims, "CLAIMS", tmp_path / "claims")
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/crontab")
    for name in ("CRON_ALLOW", "CRON_DENY", "AT_ALLOW", "AT_DENY", "DEBIAN"):
        monkeypatch.setattr(observers, name, tmp_path / name.lower())
    return tmp_path


def test_the_observer_has_a_home_that_it_cannot_write_to(host: Path) -> None:
    assert observers.ensure("gpu-1", "alloc_1") == "gpu-1-ro"
    home = host / "home/gpu-1-ro"
    assert (home.stat().st_mode & 0o777, list(home.iterdir())) == (0o555, [])
    assert (observers.claimed("gpu-1", "alloc_1"), observers.claimed("gpu-1", "alloc_2")) == ("gpu-1-ro", "")
    assert observers.ensure("gpu-1", "alloc_1") == "gpu-1-ro"


def test_the_observer_is_refused_cron_and_at_and_other_users_are_not(host: Path) -> None:
    (host / "debian").touch()
    (host / "at_deny").write_text("guest\n")
    observers.ensure("gpu-1", "alloc_1")
    observers.ensure("gpu-1", "alloc_1")
    assert (host / "cron_deny").read_text() == "gpu-1-ro\n"
    assert (host / "at_deny").read_text() == "guest\ngpu-1-ro\n"
    observers.allow_schedules("gpu-1-ro")
    assert (host / "at_deny").read_text() == "guest\n"
    assert not (host / "cron_deny").exists()


@pytest.mark.parametrize("present", [["cron_allow", "at_allow", "at_deny", "debian"], []])
def test_no_list_is_made_that_would_allow_others_to_use_cron_or_at(host: Path, present: list[str]) -> None:
    for name in present:
        (host / name).write_text("")
    observers.ensure("gpu-1", "alloc_1")
    assert not (host / "cron_deny").exists()
    assert (host / "at_deny").exists() == ("at_deny" in present)
    assert not (host / "at_deny").exists() or (host / "at_deny").read_text() == ""


def test_observers_are_configured_before_all_users_because_the_first_value_counts() -> None:
    lines = sshd.drop_in_text(["gpu-1", "gpu-1-ro"], ["gpu-1-ro"]).splitlines()
    observer, users = lines.index("Match User gpu-1-ro"), lines.index("Match User gpu-1,gpu-1-ro")
    assert observer < users
    assert {"    PermitTTY no", "    DisableForwarding yes", "    AuthorizedKeysCommand none"} <= set(
        lines[observer:users]
    )
