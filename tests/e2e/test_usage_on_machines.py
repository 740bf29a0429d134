"""Usage of a real cluster equals its accounting to the second, while the controller is killed again and again.

Long: `make test-slurm` runs it in a short form; with GPUAAS_CAMPAIGNS=whole five people run 1,000 jobs."""

import asyncio
import functools
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import campaigns
import controller_process
import pytest
import slurm_people
from cloud_in_use import Cloud
from controller_process import Controller
from gpuaas_contract.usage import USAGE_LIST, UsageRecord

# As long as all waits together may take, and the start of the cloud.
pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(campaigns.size(3600, 9000))]

PEOPLE = ("ada", "bob", "cy", "dee", "eve")
JOBS_EACH = campaigns.size(12, 201)
METERS = ("cpu-time", "gpu-time")
KILLS = campaigns.size(2, 10)
SUBMIT = r"""
for login in %(people)s; do
  runuser -l "$login" -c "sbatch -Q --array=1-%(cpu)d --mem=16 -o /dev/null \
    --wrap 'sleep \$((SLURM_ARRAY_TASK_ID %% 3))'"
  runuser -l "$login" -c "sbatch -Q --array=1-%(gpu)d --mem=16 --gpus-per-node=1 -o /dev/null --wrap 'sleep 1'"
  runuser -l "$login" -c "sbatch -Q --hold --mem=16 --wrap true"
done
"""
REQUEUE = "squeue -h -t running -o %i | head -n 3 | xargs -r -n 1 scontrol requeue"
CANCEL_HELD = "squeue -h -t pending -o '%i %r' | awk '/JobHeld/ {print $1}' | xargs -r scancel"
SACCT = (
    "SLURM_TIME_FORMAT=%s sacct -aXDnP -S now-12hours -o JobIDRaw,Submit,User,Start,End,ElapsedRaw,CPUTimeRAW,AllocTRES"
)

Used = Mapping[str, tuple[str, int]]
"""Job id, submit time and meter -> the login, and the seconds."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-usage-") as folder:
        cloud = Cloud(Path(folder), "usage", "7201")
        cloud.gpuaas("lab", "down", "--lab", cloud.lab_name, "--purge")
        try:
            cloud.up(3)
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", cloud.lab_name, "--purge")


async def test_usage_equals_accounting_to_the_second_although_the_controller_is_killed(cloud: Cloud) -> None:
    await slurm_people.join(cloud, PEOPLE)
    slurm_people.until("all can submit", lambda: slurm_people.submitters(cloud) >= set(PEOPLE))
    with controller_process.of(cloud) as controller:
        cloud.on("gpu-1", SUBMIT % _numbers())
        _kill_while_jobs_run(cloud, controller)
        slurm_people.until("every job ended", lambda: _left(cloud) == 0)
        accounted = _accounted(cloud)
        await _until_recorded(cloud, len(accounted))
        assert await _recorded(cloud) == accounted
    runs = {key.rsplit("/", 1)[0] for key in accounted}
    jobs = {run.split("/")[0] for run in runs}
    seconds = {meter: sum(used for key, (_, used) in accounted.items() if key.endswith(meter)) for meter in METERS}
    sys.stdout.write(
        f"{len(runs)} runs of {len(jobs)} jobs, {len(accounted)} records, seconds {seconds}, {KILLS} kills\n"
    )
    assert len(runs) > len(jobs) >= len(PEOPLE) * JOBS_EACH, "some jobs were queued again"


def _kill_while_jobs_run(cloud: Cloud, controller: Controller) -> None:
    """Kill the controller at equal distances. In the middle, slurmdbd stops for a while and jobs are queued again."""
    jobs = _left(cloud)
    for number in range(KILLS):
        wanted = jobs - (number + 1) * jobs // (KILLS + 1)
        slurm_people.until(f"at most {wanted} jobs are left", functools.partial(_has_at_most, cloud, wanted))
        controller.kill()
        if number == KILLS // 2:
            cloud.on("gpu-1", f"{REQUEUE}; {CANCEL_HELD}; systemctl stop slurmdbd")
        controller.start()
    cloud.on("gpu-1", f"systemctl start slurmdbd; {CANCEL_HELD}")


def _numbers() -> dict[str, object]:
    gpu = JOBS_EACH // 4
    return {"people": " ".join(PEOPLE), "cpu": JOBS_EACH - gpu, "gpu": gpu}


def _left(cloud: Cloud) -> int:
    return int(cloud.on("gpu-1", "squeue -h -r | wc -l"))


def _has_at_most(cloud: Cloud, jobs: int) -> bool:
    return _left(cloud) <= jobs


def _accounted(cloud: Cloud) -> Used:
    """Return what sacct shows for every run of a job that started."""
    used: dict[str, tuple[str, int]] = {}
    for line in cloud.on("gpu-1", SACCT).splitlines():
        job, submit, user, start, end, elapsed, cpu_s, tres = line.split("|")
        if not start.isdigit():
            continue
        assert end.isdigit(), line
        used[f"{job}/{submit}/cpu-time"] = (user, int(cpu_s))
        if gpus := re.search(r"gres/gpu=(\d+)", tres):
            used[f"{job}/{submit}/gpu-time"] = (user, int(gpus[1]) * int(elapsed))
    return used


async def _recorded(cloud: Cloud) -> Used:
    async with cloud.client() as client:
        pages = client.pages(USAGE_LIST, query={"page_size": 500}, project_id=cloud.project_id)
        records: list[UsageRecord] = [record async for record in pages]
    used = {record.record_id.split("/", 1)[1]: (record.subject, int(record.quantity)) for record in records}
    assert len(used) == len(records), "a record was counted twice"
    return used


async def _until_recorded(cloud: Cloud, count: int) -> None:
    began = time.monotonic()
    while len(await _recorded(cloud)) < count:
        assert time.monotonic() - began < slurm_people.LIMIT_S, f"{len(await _recorded(cloud))} of {count} records"
        await asyncio.sleep(1)
    sys.stdout.write(f"everything is recorded: seen after {time.monotonic() - began:.1f} s\n")
