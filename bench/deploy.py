"""Compare deploys of one controller and 3, 8 and 16 workers with a parallel shell script on the same machines; then
compare upgrades and adds of one and sixteen workers, whose packages are installed already, with other scripts. The
registration of slurmd alone is measured too.

Each side gets new machines, and the rounds alternate which side is first. Every line has the load of the host, because
other programs on it change the times, but hardly their ratio. The exit status is 1 if a ratio is above its aim. A round
of everything takes about fifteen minutes on two cores: python -m bench deploy --help"""

import argparse
import concurrent.futures
import contextlib
import functools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import aims, slurm_machines
from bench.aims import Aim
from bench.campaign import versions
from bench.slurm_machines import Cloud

Machines = Callable[[int], contextlib.AbstractContextManager[Cloud]]
"""Starts a local cloud with this many new machines, and deletes it afterwards."""

DEPLOY_MAX, UPGRADE_MAX = 1.3, 2.0
"""How much longer than a shell script the platform may take."""
ADD_MAX = 1.6
"""How much longer an add with packages may take to its first job than a shell script that makes the same changes, for
one worker and for `_MANY`. See decision 0070."""
_MANY = 16
# The node is deleted first, so that it joins as a new one. A node has registered when a job has run on it.
_FORGET = "until scontrol delete nodename={name} 2>/dev/null; do sleep 0.1; done"
_START = "date +%s%N; systemctl start slurmd"
_FIRST_JOB = """
until [ "$(sinfo -h -n {name} -o %t)" = idle ]; do sleep 0.05; done
cd / && runuser -u researcher -- srun -w {name} hostname >/dev/null
date +%s%N
"""


def run(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench deploy", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[3, 8, 16], help="sizes of the deployed clusters")
    parser.add_argument("--rounds", type=int, default=2, help="of each size; the medians are compared")
    parser.add_argument("--upgraded", type=int, default=2, help="workers of the upgraded cluster; 0: no upgrade")
    parser.add_argument("--added", type=int, default=_MANY, help="how many workers the large add has; 0: no adds")
    parser.add_argument("--lab", default="bench", help="name of the lab that is started and deleted")
    parser.add_argument("--port", type=int, default=7191, help="port of its server")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit(
            "bench: the deploy benchmark starts machines, which needs root; without machines: make bench ARGS=api"
        )
    machines = functools.partial(slurm_machines.started, lab_name=options.lab, port=options.port)
    measured = [_deploys(machines, workers, options.rounds) for workers in options.workers]
    if options.upgraded:
        measured.append(_upgrades(machines, options.upgraded, options.rounds))
    if options.added:
        measured += _adds(machines, options.added, options.rounds)
    aims.show(measured)


def _deploys(machines: Machines, workers: int, rounds: int) -> Aim:
    what = f"deploy of 1+{workers} with a first job"
    ratio = _compared(machines, workers, rounds, what, (_by_platform, _by_hand))
    return Aim(f"{what}, platform / by hand", ratio, DEPLOY_MAX)


def _upgrades(machines: Machines, workers: int, rounds: int) -> Aim:
    """Both sides upgrade a cluster that they deployed, from the same bundle, with a backup and one worker first."""
    what = f"upgrade of 1+{workers} with its jobs"
    ratio = _compared(machines, workers, rounds, what, (_upgraded_by_platform, _upgraded_by_hand))
    return Aim(f"{what}, platform / by hand", ratio, UPGRADE_MAX)


def _compared(
    machines: Machines, workers: int, rounds: int, what: str, of: tuple[Callable[[Cloud], float], ...]
) -> float:
    """Return the ratio of the medians, platform to shell script."""
    times: dict[str, list[float]] = {"platform": [], "by hand": []}
    sides = list(zip(times, of, strict=True))
    for number in range(1, rounds + 1):
        for name, measured_s in sides:
            with machines(1 + workers) as cloud:
                times[name].append(measured_s(cloud))
            print(f"{what}, round {number}: {name} {times[name][-1]:.1f} s, {_load()}", flush=True)
        sides.reverse()
    platform_s, by_hand_s = statistics.median(times["platform"]), statistics.median(times["by hand"])
    print(f"{what}: platform / by hand = {platform_s / by_hand_s:.2f}", flush=True)
    return platform_s / by_hand_s


def _by_platform(cloud: Cloud) -> float:
    controller, *workers = cloud.names
    return cloud.deploy(controller, workers)


def _upgraded_by_platform(cloud: Cloud) -> float:
    _by_platform(cloud)  # Before the newer version is there: a deploy takes the newest one.
    return cloud.upgrade(versions.publish(cloud.gpuaas, cloud.home))


def _upgraded_by_hand(cloud: Cloud) -> float:
    _by_hand(cloud)
    return _ran_by_hand(cloud, "upgrade_by_hand.sh", str(versions.bundle()))


def _adds(machines: Machines, many: int, rounds: int) -> list[Aim]:
    with machines(2 + many) as cloud:
        controller, first, *others = cloud.names
        cloud.install_packages(others)
        cloud.deploy(controller, [first])
        ones, firsts, alones = list[float](), list[float](), list[float]()
        key = _root_key(cloud)
        by_hand = [_added_by_hand(cloud, key, (controller, first), others[:1]) for _ in range(rounds)]
        many_by_hand_s = _added_by_hand(cloud, key, (controller, first), others)
        for number in range(1, rounds + 1):
            ones.append(cloud.add(others[:1]))
            firsts.append(cloud.first_job_s())
            alones.append(_registration_s(cloud, others[0], controller))
            cloud.remove(others[0])
            print(
                f"add, round {number}: platform {firsts[-1]:.1f} s to the first job, {ones[-1]:.1f} s in all, "
                f"slurmd alone {alones[-1]:.1f} s, {_load()}",
                flush=True,
            )
        many_s = cloud.add(others)
    one_s, first_s, alone_s, by_hand_s = (statistics.median(times) for times in (ones, firsts, alones, by_hand))
    print(f"the same by hand: one worker {by_hand_s:.1f} s, {many} workers {many_by_hand_s:.1f} s")
    print(f"by hand, one worker / registration of slurmd alone = {by_hand_s / alone_s:.2f}")
    print(f"by hand, {many} workers / one worker = {many_by_hand_s / by_hand_s:.2f}")
    print(f"platform / by hand = {first_s / by_hand_s:.2f} for one worker, {many_s / many_by_hand_s:.2f} for {many}")
    print(f"add one worker with packages to its first job / registration of slurmd alone = {first_s / alone_s:.2f}")
    print(f"the whole operation / registration of slurmd alone = {one_s / alone_s:.2f}")
    print(f"add {many} workers: {many_s:.1f} s, {_load()}; / add one worker = {many_s / one_s:.2f}", flush=True)
    single = Aim("add one worker with packages, platform / by hand", first_s / by_hand_s, ADD_MAX)
    together = Aim(f"add {many} workers with packages, platform / by hand", many_s / many_by_hand_s, ADD_MAX)
    return [single, together] if many <= _MANY else [single]  # there is no aim for more than sixteen


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _registration_s(cloud: Cloud, worker: str, controller: str) -> float:
    """Return how long a stopped slurmd takes from its start until a job has run on its node, without the platform. All
    machines have the clock of the host."""
    cloud.on(worker, "systemctl stop slurmd")
    cloud.on(controller, _FORGET.format(name=worker))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ended = pool.submit(cloud.on, controller, _FIRST_JOB.format(name=worker))
        started_ns = int(cloud.on(worker, _START).split()[0])
        return (int(ended.result().split()[-1]) - started_ns) / 1e9


def _added_by_hand(cloud: Cloud, key: Path, present: tuple[str, str], workers: Sequence[str]) -> float:
    """Add the workers without the platform to a cluster of it with a controller and a worker, and take them off it
    again. Return how long it took until a job had run on all of them."""
    addresses = [cloud.lab("address", machine).strip() for machine in (*present, *workers)]
    took_s = _ran_script("add_by_hand.sh", [str(key), "add", *addresses], workers)
    _ran_script("add_by_hand.sh", [str(key), "remove", *addresses], workers)
    print(f"add of {len(workers)} by hand: {took_s:.1f} s, {_load()}", flush=True)
    return took_s


def _by_hand(cloud: Cloud) -> float:
    _root_key(cloud)
    return _ran_by_hand(cloud, "by_hand.sh")


def _root_key(cloud: Cloud) -> Path:
    """Return a key with which root can log in to all machines."""
    key = cloud.home / "root-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    for machine in cloud.names:
        write = "mkdir -p -m 700 /root/.ssh && cat > /root/.ssh/authorized_keys"
        cloud.lab("exec", machine, "--", "sh", "-c", write, input=public)
    return key


def _ran_by_hand(cloud: Cloud, name: str, *arguments: str) -> float:
    """Run a shell script that ends with a job on all workers. Return how long it took."""
    addresses = [cloud.lab("address", machine).strip() for machine in cloud.names]
    return _ran_script(name, [str(cloud.home / "root-key"), *arguments, *addresses], cloud.names[1:])


def _ran_script(name: str, arguments: Sequence[str], workers: Sequence[str]) -> float:
    """Run a shell script that prints the names of all these workers. Return how long it took."""
    command = [str(Path(__file__).with_name(name)), *arguments]
    started = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - started
    if sorted(result.stdout.split()) != sorted(workers):
        raise SystemExit(f"bench: {name} failed:\n{result.stdout}{result.stderr}")
    return took_s
