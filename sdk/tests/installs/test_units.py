"""Commands for units of systemd."""

from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.testing import FakeHost


async def test_units_are_enabled_without_a_reload_and_without_scripts_for_sysv() -> None:
    host = FakeHost("gpu-1")
    await Machine(host).run_all(units.enable("kv"), units.RELOAD, units.restart("kv"), units.disable("database"))
    skips = ("env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl")
    assert host.ran == [
        (*skips, "enable", "-q", "--no-reload", "--root=/", "kv"),
        ("systemctl", "daemon-reload"),
        ("systemctl", "restart", "kv"),
        (*skips, "disable", "-q", "--no-reload", "--root=/", "database"),
    ]


async def test_units_that_are_stopped_for_good_do_not_start_with_the_machine() -> None:
    host = FakeHost("gpu-1")
    await Machine(host).run_all(units.stop("kv", "database"))
    assert host.ran == [("systemctl", "disable", "-q", "--now", "kv", "database")]
