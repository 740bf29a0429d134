"""Services that run as an allocation's user: stopped, so that systemd does not start again what a release ended."""

from __future__ import annotations

from gpuaas_agent import commands


def stop_all(user: str) -> list[str]:
    """Stop what runs as the user and have systemd forget how it ended; answers the units' names."""
    stopped = loaded(user)
    for unit in stopped:
        try:
            commands.run(["systemctl", "stop", unit])
        except commands.CommandFailed:
            # One made for the moment may have ended by itself, and is forgotten then.
            if unit in loaded(user):
                raise
        # Not every unit has failed, and one made for the moment is gone by now.
        commands.succeeds(["systemctl", "reset-failed", unit])
    return stopped


def loaded(user: str) -> list[str]:
    return of_user(commands.run(["systemctl", "show", "--property=Id,User", "*.service"]).decode(), user)


def of_user(shown: str, user: str) -> list[str]:
    """Names of the units that say they run as this user, given what `systemctl show` says of each, in blocks."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    return sorted(block["Id"] for block in blocks if block.get("User") == user and "Id" in block)
