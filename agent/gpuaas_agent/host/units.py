"""Stop the services that run as an allocation's user, so that systemd does not restart them after a release."""

from __future__ import annotations

from gpuaas_agent import commands


def stop_all(user: str) -> list[str]:
    """Stop the services of the user, clear their failed state, and return their names."""
    stopped = loaded(user)
    for unit in stopped:
        try:
            commands.run(["systemctl", "stop", unit])
        except commands.CommandFailed:
            # A transient unit may have ended by itself, and systemd has then unloaded it.
            if unit in loaded(user):
                raise
        # An error is ignored: the unit has no failed state, or it was transient and is unloaded.
        commands.succeeds(["systemctl", "reset-failed", unit])
    return stopped


def loaded(user: str) -> list[str]:
    return of_user(commands.run(["systemctl", "show", "--property=Id,User", "*.service"]).decode(), user)


def of_user(shown: str, user: str) -> list[str]:
    """Return the names of the units that run as this user, given the output of `systemctl show`, one block per unit."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    return sorted(block["Id"] for block in blocks if block.get("User") == user and "Id" in block)
