"""The actions of the Slurm app on a real cluster, run by two people of the project through the command line.

Long: `make test-slurm` runs it."""

import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import slurm_people
from cloud_in_use import Cloud
from slurm_people import act, rows

pytestmark = [pytest.mark.machines, pytest.mark.long]

SCRIPT = "#!/bin/bash\n#SBATCH --mem=16\nid -un\npwd\necho $HOME $1 'a  b'\n"
LONG = "#!/bin/bash\n#SBATCH --mem=16\nsleep 600\n"


class World(NamedTuple):
    cloud: Cloud
    ada: Path
    """Where ada is signed in."""
    bob: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-actions-") as folder:
        homes = [Path(folder) / name for name in ("admin", "ada", "bob")]
        cloud = Cloud(homes[0], "actions", "7201")
        cloud.gpuaas("lab", "down", "--lab", cloud.lab_name, "--purge")
        try:
            cloud.up(2)
            yield World(cloud, homes[1], homes[2])
        finally:
            cloud.gpuaas("down", "--lab", cloud.lab_name, "--purge")


async def test_people_join_and_sign_in(world: World) -> None:
    await slurm_people.join(world.cloud, ("ada", "bob"))
    slurm_people.until("both can submit", lambda: slurm_people.submitters(world.cloud) >= {"ada", "bob"})
    slurm_people.sign_in(world.cloud, "ada", world.ada)
    slurm_people.sign_in(world.cloud, "bob", world.bob)


def test_a_submitted_job_runs_as_the_caller_and_only_the_caller_reads_its_output(world: World) -> None:
    [job] = rows(world.cloud, world.ada, "queue.submit", script=SCRIPT, name="who am i", time="00:05:00")
    assert (job["login"], job["name"], job["limit_minutes"]) == ("ada", "who am i", 5)
    slurm_people.until("the job ended", functools.partial(_has_left, world, job["job_id"]))
    lines = rows(world.cloud, world.ada, "job.logs", job=job["job_id"])
    assert [line["line"] for line in lines] == ["ada", "/home/people/ada", "/home/people/ada a  b"]
    refused = act(world.cloud, world.bob, "job.logs", job=job["job_id"])
    assert "belongs to ada" in refused.stderr


def test_a_link_in_a_job_s_output_leads_to_no_file_of_another_person(world: World) -> None:
    world.cloud.on("gpu-1", "install -o bob -m 600 /dev/null /tmp/of-bob; echo secret > /tmp/of-bob")
    world.cloud.on("gpu-2", "install -o bob -m 600 /dev/null /tmp/of-bob; echo secret > /tmp/of-bob")
    script = "#!/bin/bash\n#SBATCH --mem=16\nrm -f ~/out.txt; ln -s /tmp/of-bob ~/out.txt\n"
    [job] = rows(world.cloud, world.ada, "queue.submit", script=script, output="out.txt")
    slurm_people.until("the job ended", functools.partial(_has_left, world, job["job_id"]))
    refused = act(world.cloud, world.ada, "job.logs", job=job["job_id"])
    assert (refused.returncode != 0, "may not read" in refused.stderr, "secret" in refused.stdout) == (
        True,
        True,
        False,
    )


def test_values_with_the_signs_of_a_shell_change_nothing_and_wrong_ones_are_explained(world: World) -> None:
    output = "$(touch /tmp/owned);`touch /tmp/owned`"
    [job] = rows(world.cloud, world.ada, "queue.submit", script=SCRIPT, output=output)
    slurm_people.until("the job ended", functools.partial(_has_left, world, job["job_id"]))
    assert world.cloud.on("gpu-1", "ls /tmp/owned 2>/dev/null || true") == ""
    refused = act(world.cloud, world.ada, "queue.submit", script=SCRIPT, partition="none-such")
    assert "invalid partition specified" in refused.stderr
    without = act(world.cloud, world.ada, "queue.submit", script="hostname")
    assert "does not start with #!" in without.stderr


def test_people_cancel_their_own_jobs_and_the_admin_those_of_all(world: World) -> None:
    [mine] = rows(world.cloud, world.ada, "queue.submit", script=LONG)
    [other] = rows(world.cloud, world.bob, "queue.submit", script=LONG, hold=True)
    assert {row["job_id"] for row in rows(world.cloud, world.ada, "queue.read", mine=True)} == {mine["job_id"]}
    assert "jobs of other people" in act(world.cloud, world.ada, "queue.cancel", jobs=[other["job_id"]]).stderr
    assert act(world.cloud, world.ada, "queue.cancel_any", jobs=[other["job_id"]]).returncode != 0
    assert other["job_id"] in _queue(world)
    for home, action, job in ((world.ada, "queue.cancel", mine), (None, "queue.cancel_any", other)):
        rows(world.cloud, home, action, jobs=[job["job_id"]])
        slurm_people.until("the job is cancelled", functools.partial(_has_left, world, job["job_id"]))


def test_a_label_selects_the_node_and_its_partition_keeps_it(world: World) -> None:
    [node] = rows(world.cloud, None, "node.label", node="gpu-2", labels=["fast"])
    assert (node["node"], node["labels"]) == ("gpu-2", "fast")
    script = "#!/bin/bash\n#SBATCH --mem=16 --constraint=fast\nhostname\n"
    [job] = rows(world.cloud, world.ada, "queue.submit", script=script)
    slurm_people.until("the job ended", functools.partial(_has_left, world, job["job_id"]))
    assert [line["line"] for line in rows(world.cloud, world.ada, "job.logs", job=job["job_id"])] == ["gpu-2"]
    assert act(world.cloud, world.ada, "node.label", node="gpu-2", labels=[]).returncode != 0
    assert {row["node"]: row["labels"] for row in rows(world.cloud, world.ada, "node.read")}["gpu-2"] == "fast"


def test_a_reservation_keeps_others_away_until_it_is_removed(world: World) -> None:
    made = rows(
        world.cloud, None, "reservation.create", name="course", minutes=30, users=["ada"], nodes=["gpu-1", "gpu-2"]
    )
    assert [(row["name"], row["logins"], row["node_count"]) for row in made] == [("course", "ada", 2)]
    [waits] = rows(world.cloud, world.bob, "queue.submit", script=SCRIPT)
    [runs] = rows(world.cloud, world.ada, "queue.submit", script=SCRIPT, reservation="course")
    slurm_people.until("the job of the course ended", functools.partial(_has_left, world, runs["job_id"]))
    assert _queue(world)[waits["job_id"]] == "PENDING"
    assert [row["name"] for row in rows(world.cloud, world.bob, "reservation.list")] == ["course"]
    assert rows(world.cloud, None, "reservation.remove", name="course") == []
    slurm_people.until("the other job ended", functools.partial(_has_left, world, waits["job_id"]))


def test_the_usage_of_the_people_is_shown_and_recorded_at_the_end_of_their_jobs(world: World) -> None:
    used = {row["login"]: row for row in rows(world.cloud, world.ada, "usage.read")}
    assert used.keys() >= {"ada", "bob", "researcher"}
    slurm_people.until(
        "every ended job of ada is recorded", lambda: _recorded(world.cloud, "ada") == used["ada"]["cpu_s"]
    )


def _recorded(cloud: Cloud, login: str) -> int:
    listed = json.loads(cloud.gpuaas("usage", "list", "--meter", "cpu-time", "-o", "json").stdout)["items"]
    return sum(int(record["quantity"]) for record in listed if record["subject"] == login)


def _queue(world: World) -> dict[str, str]:
    return {row["job_id"]: row["state"] for row in rows(world.cloud, None, "queue.read")}


def _has_left(world: World, job_id: str) -> bool:
    return job_id not in _queue(world)
