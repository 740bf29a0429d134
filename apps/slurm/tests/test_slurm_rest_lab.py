"""A person uses the REST API of a cluster on real machines with a token of their own. Nothing is left at the end."""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_contract.posix import PosixPerson
from gpuaas_sdk.controller import Instance
from gpuaas_sdk.machine import CommandFailed
from slurm_lab import Cloud, Lab
from test_slurm_upgrade_lab import Versions, instance_of, move

pytestmark = [pytest.mark.machines, pytest.mark.long]

RESEARCHER = PosixPerson(
    user_id="user_researcher",
    name="researcher",
    login="researcher",
    uid=20000,
    gid=20000,
    state="active",
    is_admin=False,
    public_keys=[],
)
JOB = {
    "script": "#!/bin/bash\nhostname\n",
    "job": {"name": "by-rest", "current_working_directory": "/tmp", "environment": ["PATH=/bin:/usr/bin"]},
}
# Prints the body, then the status on a line of its own.
CURL = r"""
curl -sS -m 60 -w '\n%{http_code}\n' -H "@$1" -H 'Content-Type: application/json' ${3:+--data "$3"} "$2"
"""
DAMAGED = r"""
sed 's/.\{5\}$/AAAAA/' "$1" > ~/damaged; echo ~/damaged
"""
# Prints each file of logs, and the journal, if it has the token of the file.
TRACES = r"""
token=$(sed 's/^X-SLURM-USER-TOKEN: //' "$1")
[ -n "$token" ]
grep -rlF -e "$token" /var/log /etc /var/lib/gpuaas-app || true
journalctl --no-pager 2>/dev/null | grep -cF -e "$token" || true
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "slurmrest")
    machines.command("down", "--purge")
    try:
        machines.up(packages=(*controller.app.packages, "curl"), nodes=3)
        yield machines
    finally:
        machines.command("down", "--purge")


async def test_a_person_uses_the_rest_api_with_a_token_of_their_own_and_a_decommission_leaves_nothing(lab: Lab) -> None:
    cloud = Cloud(lab, Settings())
    await lab.preinstall("gpu-3", ["curl"])
    before = {name: await lab.snapshot(name) for name in ("gpu-1", "gpu-3")}
    instance = _instance(cloud)
    async with cloud.controller():
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        cloud.platform.records.people.append(RESEARCHER)

        row = await _token(cloud, instance)
        assert (row["login"], row["machine"]) == ("researcher", "gpu-3")
        path, url = row["path"], f"{row['url']}/slurm/v0.0.42"
        assert await _as(lab, "stat -c '%a %U' -- \"$1\"", path) == "600 researcher"
        await _submits(lab, path, url)
        await _refuses_others(lab, path, url)
        await _runs_without_rights(lab)
        await _returns_after_a_stop(lab)
        assert await _traces(lab, path) == ["0"]

        ended = await cloud.perform(instance, "decommission", force=True)
        assert ended.status == "succeeded", ended.error
    for name, was in before.items():
        assert await lab.snapshot(name) - was == set()


async def test_a_token_still_works_after_an_upgrade_and_after_a_rollback(lab: Lab, tmp_path: Path) -> None:
    cloud = Cloud(lab, Settings())
    versions = Versions(cloud, tmp_path)
    await lab.preinstall("gpu-1", ["curl"])
    old, new = await versions.make("trixie"), await versions.make("forky")
    async with cloud.controller():
        instance = instance_of(cloud, versions.names["trixie"], home="local", rest_api=True)
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        cloud.platform.records.people.append(RESEARCHER)
        row = await _token(cloud, instance)
        assert await _version(lab, row) == old
        for kind, release, version in (("upgrade", "forky", new), ("rollback", "trixie", old)):
            ended = await move(cloud, instance, kind, versions.names[release])
            assert ended.status == "succeeded", ended.error
            assert await _version(lab, row) == version
        ended = await cloud.perform(instance, "decommission", force=True)
        assert ended.status == "succeeded", ended.error


async def _version(lab: Lab, row: dict[str, Any]) -> str:
    """Ask the REST API which version answers, with the newest format that it has."""
    described, status = await _curl(lab, row["path"], f"{row['url']}/openapi/v3", name="gpu-1")
    assert status == "200", described
    formats = re.findall(r"v0\.0\.\d+", described)
    body, status = await _curl(lab, row["path"], f"{row['url']}/slurm/{max(formats)}/jobs/", name="gpu-1")
    assert status == "200", body
    return str(json.loads(body)["meta"]["slurm"]["release"])


async def _submits(lab: Lab, path: str, url: str) -> None:
    """Submit a job with the token, and find it as a job of the person."""
    body, status = await _curl(lab, path, f"{url}/job/submit", json.dumps(JOB))
    assert status == "200", body
    body, status = await _curl(lab, path, f"{url}/job/{json.loads(body)['job_id']}")
    assert status == "200", body
    [job] = json.loads(body)["jobs"]
    assert (job["name"], job["user_name"]) == ("by-rest", "researcher")
    body, status = await _curl(lab, path, f"{url}/jobs")
    assert status == "200", body
    assert "by-rest" in [each["name"] for each in json.loads(body)["jobs"]]


async def _refuses_others(lab: Lab, path: str, url: str) -> None:
    """A token that was changed is not valid, and no other person can read the file."""
    damaged = await _as(lab, DAMAGED, path)
    body, status = await _curl(lab, damaged, f"{url}/jobs")
    assert (status, "Protocol authentication error" in body, "by-rest" in body) == ("511", True, False), body
    with pytest.raises(CommandFailed):
        await lab.run("gpu-3", "cat", path, as_user="other")


async def _runs_without_rights(lab: Lab) -> None:
    """slurmrestd has a user of its own, and only the controller machine has the key of the tokens."""
    users = (await lab.run("gpu-1", "ps", "-C", "slurmrestd", "-o", "user:32=")).split()
    assert len(users) == 1
    assert not {"root", "slurm"} & set(users)
    assert (await lab.run("gpu-1", "stat", "-c", "%a %U", "/etc/slurm/gpuaas-jwt.key")).strip() == "400 slurm"
    for name in ("gpu-2", "gpu-3"):
        with pytest.raises(CommandFailed):
            await lab.run(name, "stat", "/etc/slurm/gpuaas-jwt.key")


async def _returns_after_a_stop(lab: Lab) -> None:
    """The health check finds that slurmrestd does not run, and the app repairs it."""
    await lab.run("gpu-1", "systemctl", "stop", "slurmrestd")
    async with asyncio.timeout(300):
        while not await _is_active(lab):  # noqa: ASYNC110 - only a look shows the state of a unit
            await asyncio.sleep(1)


async def _is_active(lab: Lab) -> bool:
    return "=active" in await lab.run("gpu-1", "systemctl", "show", "-p", "ActiveState", "slurmrestd")


async def _traces(lab: Lab, path: str) -> list[str]:
    shown = await lab.run("gpu-3", "bash", "-ec", TRACES, "traces", path)
    return shown.split()


async def _token(cloud: Cloud, instance: Instance) -> dict[str, Any]:
    asked = cloud.platform.invoke(instance, "token.issue", {"minutes": 30}, requested_by="user_researcher")
    ended = await cloud.platform.ended(asked.operation_id, timeout_s=300)
    assert ended.status == "succeeded", ended.error
    assert ended.result is not None
    [row] = ended.result["rows"]
    return dict(row)


async def _curl(lab: Lab, path: str, url: str, data: str = "", name: str = "gpu-3") -> tuple[str, str]:
    """Return the body and the status of an answer."""
    body, _, status = (await _as(lab, CURL, path, url, *([data] if data else []), name=name)).rpartition("\n")
    return body, status


async def _as(lab: Lab, script: str, *argv: str, name: str = "gpu-3") -> str:
    return (await lab.run(name, "bash", "-ec", script, "sh", *argv, as_user="researcher")).strip()


def _instance(cloud: Cloud) -> Instance:
    inputs = {
        "cluster_name": "lab",
        "controller_allocation_id": "alloc_gpu-1",
        "worker_allocation_ids": ["alloc_gpu-2"],
        "login_allocation_ids": ["alloc_gpu-3"],
        "users": ["researcher", "other"],
        "home": "local",
        "rest_api": True,
    }
    members = {"controller": ["gpu-1"], "worker": ["gpu-2"], "login": ["gpu-3"]}
    instance = cloud.platform.add_instance(members, topology="split", inputs=inputs)
    cloud.platform.records.manifests[instance.app_version] = cloud.app.manifest
    return instance
