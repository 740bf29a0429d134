"""Jobs of the user `researcher` on a cluster in use: a long one that can be ended, queued ones, and their records."""

import functools

from cloud_in_use import Cloud
from slurm_people import until

HEAD = "gpu-1"
HOME = "/shared/home/researcher"
LONG = """#!/bin/sh
srun --mem=200 sh -c 'while [ ! -e finish ]; do sleep 0.5; done; hostname' | sort | tr '\\n' ' ' > hosts
srun --mem=200 true && echo second step after $(cat hosts)
"""


def start_long(cloud: Cloud, options: str) -> str:
    """Start a job that runs until `finish`, and then starts a second step. Return its number."""
    cloud.on(HEAD, f"rm -f {HOME}/finish; cat > {HOME}/long <<'END'\n{LONG}END\n")
    job = submit(cloud, f"--mem=200 -o long.txt {options} long")
    until(f"job {job} runs", functools.partial(is_in, cloud, job, "RUNNING"))
    return job


def finish(cloud: Cloud) -> str:
    """Let the long job end. Return what it wrote."""
    cloud.on(HEAD, f"touch {HOME}/finish")
    until("the long job wrote its end", lambda: "second step" in cloud.on(HEAD, f"cat {HOME}/long.txt"))
    return cloud.on(HEAD, f"cat {HOME}/long.txt")


def queue(cloud: Cloud) -> str:
    """Submit a job that needs two workers for itself. Return its number."""
    return submit(cloud, "-N2 --exclusive -o queued.txt --wrap hostname")


def submit(cloud: Cloud, options: str) -> str:
    return cloud.on(HEAD, f'runuser -l researcher -c "sbatch --parsable {options}"').strip()


def until_completed(cloud: Cloud, *jobs: str) -> None:
    for job in jobs:
        until(f"job {job} completed", functools.partial(is_in, cloud, job, "COMPLETED"))


def is_in(cloud: Cloud, job: str, wanted: str) -> bool:
    return state(cloud, job) == wanted


def state(cloud: Cloud, job: str) -> str:
    return cloud.on(HEAD, f"sacct -nXP -j {job} -o State").strip()


def history(cloud: Cloud) -> dict[str, str]:
    """What accounting shows of every job that completed, by its number."""
    fields = "JobIDRaw,User,Account,Partition,State,ExitCode,Submit,Start,End,NNodes,CPUTimeRAW"
    lines = cloud.on(HEAD, f"sacct -nXPa -S now-1day -o {fields}").splitlines()
    return {line.split("|")[0]: line for line in lines if "|COMPLETED|" in line}
