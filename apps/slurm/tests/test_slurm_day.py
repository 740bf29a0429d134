"""A research team's day on a cluster with munge, a login machine and compilers. Long: `make test-slurm` runs it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from gpuaas_app_slurm.settings import Settings
from gpuaas_sdk.controller import Instance
from slurm_lab import Cloud, Lab

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]

USER = "researcher"
HOME = f"/home/people/{USER}"
MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
  int rank, size;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("rank %d of %d\n", rank, size);
  MPI_Finalize();
}
"""


@dataclass(frozen=True)
class Day:
    """The cluster: gpu-1 is the controller, gpu-2 and gpu-3 are workers, people log in to gpu-4."""

    lab: Lab
    cloud: Cloud
    instance: Instance
    before: dict[str, set[str]]

    async def person(self, text: str) -> str:
        """Run a script as a normal user on the login machine."""
        return await self.lab.script("gpu-4", text, USER)

    async def until(self, wanted: str, *argv: str, on: str = "gpu-1") -> str:
        output = ""
        async with asyncio.timeout(180):
            while wanted not in output:
                output = await self.lab.run(on, *argv)
                await asyncio.sleep(0.5)
        return output

    async def add(self, name: str, role: str) -> None:
        self.cloud.platform.records.add_member(self.instance, role, name)
        added = await self.cloud.perform(self.instance, "add", [name], role=role)
        assert added.status == "succeeded", added.error


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "slurmday")
    machines.command("down", "--purge")
    try:
        machines.up("--toolchain")
        yield machines
    finally:
        machines.command("down", "--purge")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def day(lab: Lab) -> AsyncIterator[Day]:
    """Deploy with munge, and add a worker and a login machine. After the tests: remove all, and check what is left."""
    cloud = Cloud(lab, Settings())
    before = {name: await lab.snapshot(name) for name in lab.addresses}
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2"], auth="munge")
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        cluster = Day(lab, cloud, instance, before)
        await cluster.add("gpu-3", "worker")
        await cluster.add("gpu-4", "login")
        yield cluster
        gone = await cloud.perform(instance, "decommission", force=True)
        assert gone.status == "succeeded", gone.error
    left = {name: await lab.snapshot(name) ^ lines for name, lines in before.items()}
    assert {name: lines for name, lines in left.items() if lines} == {}


async def test_a_cluster_with_munge_runs_jobs_and_has_no_key_of_slurm(day: Day) -> None:
    assert sorted((await day.person("srun -Q -N2 --mem=16 hostname")).split()) == ["gpu-2", "gpu-3"]
    for name in day.lab.addresses:
        assert "slurm.key" not in await day.lab.run(name, "ls", "/etc/slurm")
        assert "active" in await day.lab.run(name, "systemctl", "is-active", "munge")


async def test_the_output_of_a_batch_job_is_in_the_home_of_the_person_who_submitted_it(day: Day) -> None:
    output = await day.person("cd; sbatch -Q --wait --mem=16 -w gpu-3 --wrap 'hostname; pwd' && cat slurm-*.out")
    assert output.split() == ["gpu-3", HOME]


async def test_an_mpi_program_compiled_at_home_runs_over_two_machines(day: Day) -> None:
    await day.person(f"cd; cat > hello.c <<'END'\n{MPI_PROGRAM}\nEND\nmpicc hello.c -o hello")
    output = await day.person("cd; srun -Q -N2 --ntasks-per-node=1 --mem-per-cpu=200 ./hello")
    assert sorted(output.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


async def test_an_mpi_program_that_is_missing_on_one_machine_ends_by_itself(day: Day) -> None:
    program = "[ $SLURM_PROCID = 0 ] && exec ./hello; exec ./missing"
    options = "-Q -N2 --ntasks-per-node=1 --mem-per-cpu=200"
    output = await day.person(f"cd; timeout 20 srun {options} sh -c '{program}' 2>/dev/null || echo ended $?")
    assert "ended" in output, "the other rank does not wait for it"
    assert "ended 124" not in output, "and no time limit was needed"


async def test_a_job_may_lock_as_much_memory_as_slurmd_and_not_only_as_the_shell_that_submitted_it(day: Day) -> None:
    """RDMA needs it. The unit of slurmd has no limit; a host of the lab may have one that its machines cannot raise."""
    limits = "sed -n 's/^Max locked memory *\\([^ ]*\\).*/\\1/p' /proc/$(pgrep -o -x slurmd)/limits"
    own = (await day.lab.run("gpu-3", "sh", "-c", limits)).strip()
    expected = own if own == "unlimited" else str(int(own) // 1024)
    assert expected != "64"
    assert await day.person("ulimit -l 64; srun -Q --mem=16 -w gpu-3 sh -c 'ulimit -l'") == f"{expected}\n"


async def test_programs_in_the_folders_of_hooks_run_as_root_before_and_after_a_job(day: Day) -> None:
    """Slurm gives them no search path."""
    noted, folders = "/run/hooks-of-jobs", ("/etc/slurm/prolog.d", "/etc/slurm/epilog.d")
    program = f"#!/bin/sh\\necho $SLURM_JOB_ID ${{0%/*}} $(/usr/bin/id -un) $SLURM_JOB_USER >> {noted}\\n"
    write = "; ".join(f"printf %b '{program}' > {folder}/50-site; chmod 755 {folder}/50-site" for folder in folders)
    await day.lab.run("gpu-3", "sh", "-c", write)
    try:
        job = (await day.person("srun -Q --mem=16 -w gpu-3 printenv SLURM_JOB_ID")).strip()
        lines = [f"{job} {folder} root {USER}" for folder in folders]
        shown = await day.until(lines[-1], "sh", "-c", f"cat {noted} || true", on="gpu-3")
        assert [line for line in shown.splitlines() if line.startswith(f"{job} ")] == lines
    finally:
        await day.lab.run("gpu-3", "rm", "-f", noted, *(f"{folder}/50-site" for folder in folders))


async def test_each_task_of_a_job_array_writes_to_the_home(day: Day) -> None:
    array = "sbatch -Q --wait --mem=16 --array=1-4 -o task-%a.txt --wrap 'echo task $SLURM_ARRAY_TASK_ID'"
    assert await day.person(f"cd; {array}; cat task-?.txt") == "task 1\ntask 2\ntask 3\ntask 4\n"


async def test_an_interactive_session_on_a_worker_has_a_terminal(day: Day) -> None:
    """`script` gives the commands a terminal, as the person's SSH session has one."""
    typed = "salloc -Q --mem=16 -w gpu-3 srun --pty sh -c 'tty; hostname; pwd'"
    shown = (await day.person(f'cd; script -qec "{typed}" /dev/null')).split()
    # The terminal echoes the end of the empty input before the first line.
    assert ("/dev/pts/" in shown[0], shown[1:]) == (True, ["gpu-3", HOME]), shown


async def test_two_jobs_on_one_machine_are_given_different_gpus_and_a_job_without_gets_none(day: Day) -> None:
    """Each of the two waits until the other one runs, so both have their GPUs at the same time."""
    program = (
        "#!/bin/sh\n"
        'echo "$CUDA_VISIBLE_DEVICES" > gpus-$SLURM_JOB_NAME\n'
        "while [ ! -e gpus-left ] || [ ! -e gpus-right ]; do sleep 0.1; done\n"
    )
    await day.person(f"cd; cat > both <<'END'\n{program}END")
    job = "sbatch -Q --wait --mem=16 -t 2 -w gpu-3 --gres=gpu:1"
    gpus = await day.person(f"cd; {job} -J left both & cd; {job} -J right both; wait; cat gpus-left gpus-right")
    assert sorted(gpus.split()) == ["0", "1"]
    none = "srun -Q --mem=16 -w gpu-3 sh -c 'echo gpus=[$CUDA_VISIBLE_DEVICES]'"
    assert await day.person(f"cd; {none}") == "gpus=[]\n"


async def test_a_repeating_job_of_scrontab_runs(day: Day) -> None:
    await day.person(
        "cd; printf '#SCRON -o repeated.txt --mem=16 -t 1\\n* * * * * hostname\\n' > table; scrontab table"
    )
    await day.until("gpu-", "sh", "-c", f"cat {HOME}/repeated.txt 2>/dev/null || true", on="gpu-4")
    await day.person("scrontab -r")


@pytest.fixture
def wheels(lab: Lab) -> str:
    """Fetch submitit from the package index into the shared folder of the machines, which cannot reach the index."""
    folder = Path(lab.environment["GPUAAS_LAB_STATE"]) / "labs/slurmday/shared/files/wheels"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.13", "--only-binary=:all:"]
    subprocess.run([*pip, "-d", str(folder), "submitit"], check=True)
    return "/shared/wheels"


@pytest.mark.usefixtures("wheels")
async def test_submitit_runs_a_function_on_a_worker(day: Day) -> None:
    """The library pickles to the home, so it works only if the home is the same on all machines."""
    await day.person("cd; python3 -m venv env; env/bin/pip install -q --no-index --find-links /shared/wheels submitit")
    program = (
        "import submitit, socket\n"
        "executor = submitit.AutoExecutor(folder='runs', cluster='slurm')\n"
        "executor.update_parameters(timeout_min=2, mem_gb=1, slurm_additional_parameters={'nodelist': 'gpu-3'})\n"
        "print(executor.submit(socket.gethostname).result())\n"
    )
    output = await day.person(f"cd; cat > sweep.py <<'END'\n{program}END\nenv/bin/python sweep.py")
    assert output.split() == ["gpu-3"]


async def test_a_job_that_uses_more_memory_than_it_asked_for_is_ended(day: Day) -> None:
    greedy = "python3 -c 'x = bytearray(600 << 20); import time; time.sleep(120)'"
    await day.person(f'cd; sbatch -Q --wait --mem=100 -t 3 -J greedy --wrap "{greedy}" || true')
    states = await day.until("greedy", "sacct", "-nXP", "--name=greedy", "-o", "JobName,State")
    assert "COMPLETED" not in states


async def test_the_health_check_drains_a_node_without_its_homes_and_resumes_it_later(day: Day) -> None:
    check, shown = "/etc/slurm/gpuaas/health-check", ("scontrol", "show", "node", "gpu-3")
    await day.lab.run("gpu-3", check)
    assert "DRAIN" not in await day.lab.run("gpu-1", *shown)
    await day.lab.run("gpu-3", "umount", "/home/people")
    await day.lab.run("gpu-3", check)
    assert "gpuaas-check: /home/people is not mounted" in await day.lab.run("gpu-1", *shown)
    await day.lab.run("gpu-3", "systemctl", "restart", "home-people.mount")
    await day.lab.run("gpu-3", check)
    await day.until("gpu-3 idle", "sinfo", "-h", "-N", "-o", "%N %T")


async def test_no_daemon_reports_an_error_about_its_plugins(day: Day) -> None:
    for name in day.lab.addresses:
        errors = await day.lab.run(name, "sh", "-c", "grep -hiE 'plugstack|spank|glob' /var/log/slurm/*.log || true")
        assert errors == ""


@pytest.mark.parametrize(("name", "daemon"), [("gpu-1", "slurmctld"), ("gpu-1", "slurmdbd"), ("gpu-3", "slurmd")])
async def test_a_daemon_continues_in_a_new_file_after_its_log_was_rotated(day: Day, name: str, daemon: str) -> None:
    log, pid = f"/var/log/slurm/{daemon}.log", ("systemctl", "show", "-p", "MainPID", "--value", daemon)
    before = (await day.lab.run(name, *pid)).strip()
    await day.lab.run(name, "logrotate", "-f", "-s", "/tmp/rotated", f"/etc/logrotate.d/{daemon}")
    await day.lab.run(name, "test", "-s", f"{log}.1")
    files = await day.until(f"{log}\n", "sh", "-c", f"readlink /proc/{before}/fd/* || true", on=name)
    assert f"{log}.1" not in files, "it does not write to the old file any more"
    assert (await day.lab.run(name, *pid)).strip() == before, "it was not restarted"
    assert sorted((await day.person("srun -Q -N2 --mem=16 hostname")).split()) == ["gpu-2", "gpu-3"]


async def test_a_reboot_through_slurm_restarts_the_machine_and_its_homes_are_mounted_again(day: Day) -> None:
    """A machine of the lab that restarts itself stops, so the lab starts it again. It has the kernel of the host, whose
    time of start stays the same, so Slurm does not notice the end of the reboot by itself."""
    await day.lab.run("gpu-1", "scontrol", "reboot", "ASAP", "nextstate=RESUME", "gpu-3")
    power = ""
    async with asyncio.timeout(180):
        while "stopped" not in power:
            power = await asyncio.to_thread(day.lab.command, "status")
            await asyncio.sleep(0.5)
    await asyncio.to_thread(day.lab.command, "start", "gpu-3")
    await day.lab.run(
        "gpu-1", "sh", "-c", "scontrol cancel_reboot gpu-3 || scontrol update nodename=gpu-3 state=resume"
    )
    await day.until("gpu-3 idle", "sinfo", "-h", "-N", "-o", "%N %T")
    assert await day.person("srun -Q --mem=16 -w gpu-3 pwd") == f"{HOME}\n"
