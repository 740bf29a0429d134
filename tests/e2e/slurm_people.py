"""People of a project on a real cluster: they join, sign in, run actions as themselves, and leave jobs."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import campaigns
from cloud_in_use import Cloud
from gpuaas_contract import bindings, users

PASSWORD = "correct horse battery"
LIMIT_S = 600.0
"""How long a busy host may take."""
LEFT_MAX_S = 60.0
"""A person who left the project can do nothing after this time. It is asserted with GPUAAS_CAMPAIGNS=whole."""


async def join(cloud: Cloud, logins: Sequence[str]) -> list[bindings.RoleBinding]:
    """Create the people, then give all of them the role of a member at the same time. Return what was given."""
    async with cloud.client() as client:
        made = await asyncio.gather(*(client.call(users.USER_CREATE, users.CreateUser(name=name)) for name in logins))
        return await asyncio.gather(
            *(
                client.call(
                    bindings.PROJECT_BINDING_CREATE,
                    bindings.BindRole(user_id=person.user_id, role="project_member"),
                    project_id=cloud.project_id,
                )
                for person in made
            )
        )


def submitters(cloud: Cloud) -> set[str]:
    return {row["login"] for row in cloud.action("users.list")["rows"] if row["can_submit"]}


def sign_in(cloud: Cloud, login: str, home: Path) -> None:
    cloud.gpuaas("user", "set-password", login, given=f"{PASSWORD}\n")
    server = f"http://127.0.0.1:{cloud.port}"
    cloud.gpuaas("login", "--server", server, "--name", login, home=home, given=f"{PASSWORD}\n")


def act(cloud: Cloud, home: Path | None, action: str, **inputs: Any) -> subprocess.CompletedProcess[str]:
    """Run an action as the person who is signed in at `home`; without one, as the admin."""
    words = ("action", "run", "slurm", action, "--inputs-file", "-", "-o", "json")
    return cloud.gpuaas(*words, home=home, given=json.dumps(inputs), check=False)


def rows(cloud: Cloud, home: Path | None, action: str, **inputs: Any) -> list[dict[str, Any]]:
    done = act(cloud, home, action, **inputs)
    assert done.returncode == 0, f"{action}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    listed: list[dict[str, Any]] = json.loads(done.stdout)["result"]["rows"]
    return listed


def until(what: str, holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < LIMIT_S, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(0.5)
    sys.stdout.write(f"{what}: seen after {time.monotonic() - began:.1f} s\n")


def show_left(what: str, after_s: float) -> None:
    """Print how long after their role was taken a person can do nothing. In the whole size, it must be soon enough."""
    sys.stdout.write(f"{what}: {after_s:.1f} s after the role was taken\n")
    assert not campaigns.WHOLE or after_s <= LEFT_MAX_S, f"{what} after {after_s:.1f} s, later than {LEFT_MAX_S:g} s"
