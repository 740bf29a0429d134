"""Fifty people of a project on a cluster with real Slurm: they join at once, run their first jobs, and one leaves.

Long: `make test-slurm` runs it. It prints the times that the platform has on record; `make test-faults` asserts that a
person who left can do nothing a minute later."""

import datetime
import functools
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_people
from cloud_in_use import BIN, Cloud
from gpuaas_contract import audit, bindings, events, operations

pytestmark = [pytest.mark.machines, pytest.mark.long]

NODES = ("gpu-1", "gpu-2", "gpu-3")
LOGINS = tuple(f"person{number:02}" for number in range(1, 51))
LEAVER, STAYER = LOGINS[0], LOGINS[1]

SUBMIT = """
for login in %s; do
  runuser -l "$login" -c "sbatch -Q --mem=16 --wrap 'id -un'" && echo "accepted $login" &
done; wait
"""
OUTPUTS = r"""
for login in %s; do cat /home/people/$login/slurm-*.out 2>/dev/null; done; true
"""
SUDO = """
for login in %s; do runuser -l "$login" -c 'sudo -n true' 2>/dev/null && echo "root $login"; done; true
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-people-") as folder:
        cloud = Cloud(Path(folder), "people50", "7297")
        cloud.gpuaas("lab", "down", "--lab", cloud.lab_name, "--purge")
        try:
            cloud.up(len(NODES))
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", cloud.lab_name, "--purge")


async def test_fifty_people_join_at_once_and_their_first_jobs_run_with_output_in_their_homes(cloud: Cloud) -> None:
    began = await _join(cloud)
    slurm_people.until("all people can submit", lambda: slurm_people.submitters(cloud) >= set(LOGINS))
    for node in NODES:
        slurm_people.until(f"all accounts on {node}", functools.partial(_has_accounts, cloud, node))
    accepted = cloud.on("gpu-1", SUBMIT % " ".join(LOGINS))
    assert sorted(accepted.split()[1::2]) == sorted(LOGINS)
    slurm_people.until(
        "all outputs", lambda: sorted(cloud.on("gpu-3", OUTPUTS % " ".join(LOGINS)).split()) == sorted(LOGINS)
    )
    await _print_record(cloud, "joined", began)


@pytest.mark.parametrize("node", NODES)
def test_no_person_has_root_on_any_machine_and_an_admin_has_it(cloud: Cloud, node: str) -> None:
    assert cloud.on(node, SUDO % " ".join(LOGINS)) == ""
    assert cloud.gpuaas("ssh", node, "--root", "--", "sudo id -u").stdout.strip() == "0"


async def test_a_person_who_left_can_do_nothing_and_their_files_and_running_job_stay(cloud: Cloud) -> None:
    with tempfile.TemporaryDirectory(prefix="gpuaas-person-") as folder:
        home = Path(folder)
        slurm_people.sign_in(cloud, LEAVER, home)
        assert cloud.gpuaas("ssh", "slurm", "--", "id -un", home=home).stdout.strip() == LEAVER
        refused = cloud.gpuaas("ssh", "slurm", "--root", "--", "id", home=home, check=False)
        assert "permission" in refused.stderr
        job = _submit_long(cloud, LEAVER)
        others = _submit_long(cloud, STAYER)
        with _open_session(cloud, home) as session:
            left_at = time.monotonic()
            began = await _leave(cloud, LEAVER)
            session.wait(slurm_people.LIMIT_S)
        slurm_people.until("Slurm refuses them", lambda: not _can_submit(cloud, LEAVER))
        assert cloud.gpuaas("ssh", "slurm", "--", "id -un", home=home, check=False).returncode != 0
    for command in ("sbatch --wrap true", "srun true", f"scancel {others}"):
        assert _as(cloud, LEAVER, command) == "refused", command
    for node in NODES:
        assert cloud.on(node, f"pgrep -u {LEAVER} -f 'sleep 4321' || true") == "", "nothing of the session is left"
    slurm_people.until(
        "the account is expired", lambda: "account" in cloud.on("gpu-1", f"su - {LEAVER} -c true 2>&1 || true")
    )
    slurm_people.show_left(f"{LEAVER} can do nothing", time.monotonic() - left_at)
    assert f"{job}\n" in cloud.on("gpu-1", f"squeue -h -u {LEAVER} -o %i"), "the running job is not cancelled"
    slurm_people.until("the job is named", lambda: f"{LEAVER}: {job}." in _reason_of_controller(cloud))
    _follow(cloud, _reason_of_controller(cloud).split("To end them: ", 1)[1])
    slurm_people.until(
        "the printed command ended the job", lambda: cloud.on("gpu-1", f"squeue -h -u {LEAVER} -o %i") == ""
    )
    assert "slurm-" in cloud.on("gpu-3", f"ls /home/people/{LEAVER}"), "the files stay, on every machine"
    assert _as(cloud, STAYER, "sbatch --mem=16 --wrap true") == "accepted"
    cloud.on("gpu-1", f"scancel {others}")
    await _print_record(cloud, "left", began)


async def _join(cloud: Cloud) -> datetime.datetime:
    """Give all people a role at the same time. Return when the first role was given."""
    times = sorted(binding.created_at for binding in await slurm_people.join(cloud, LOGINS))
    sys.stdout.write(f"50 roles given within {(times[-1] - times[0]).total_seconds():.1f} s\n")
    return times[0]


async def _leave(cloud: Cloud, login: str) -> datetime.datetime:
    """Take the role of a person. Return the time by the platform's clock."""
    async with cloud.client() as client:
        pages = client.pages(bindings.PROJECT_BINDING_LIST, project_id=cloud.project_id)
        (held,) = [binding async for binding in pages if binding.user_name == login]
        await client.call(bindings.PROJECT_BINDING_DELETE, project_id=cloud.project_id, binding_id=held.binding_id)
        rows = await client.call(
            audit.AUDIT_LIST, query={"action": bindings.PROJECT_BINDING_DELETE.name}, project_id=cloud.project_id
        )
    return max(row.occurred_at for row in rows.items)


async def _print_record(cloud: Cloud, what: str, began: datetime.datetime) -> None:
    """Print what the platform recorded since then: announcements of the people, and repairs of the cluster."""
    async with cloud.client() as client:
        listed = await client.call(events.EVENT_LIST, query={"limit": 500}, project_id=cloud.project_id)
        announced = [event.occurred_at for event in listed.items if event.type == "identity.posix.changed"]
        done = [
            (operation.created_at, operation.ended_at)
            async for operation in client.pages(operations.OPERATION_LIST, project_id=cloud.project_id)
            if operation.kind == "repair" and "PeopleChanged" in operation.reason and operation.created_at >= began
        ]

    def after(moment: datetime.datetime | None) -> str:
        return f"{(moment - began).total_seconds():.1f}" if moment else "-"

    news = sorted(moment for moment in announced if moment >= began)
    woken = [f"{(asked - max(m for m in news if m <= asked)).total_seconds():.2f}" for asked, _ in sorted(done)]
    sys.stdout.write(
        f"{what}: announced after {[after(moment) for moment in news]} s; repairs requested and ended after "
        f"{[(after(asked), after(ended)) for asked, ended in sorted(done)]} s; from the newest announcement to the "
        f"request {woken} s\n"
    )


def _can_submit(cloud: Cloud, login: str) -> bool:
    return login in slurm_people.submitters(cloud)


def _has_accounts(cloud: Cloud, node: str) -> bool:
    return int(cloud.on(node, "getent passwd | grep -c ^person || true")) == len(LOGINS)


def _as(cloud: Cloud, login: str, command: str) -> str:
    """Try a command as a person, as root of the machine could make them; their own logins are refused before."""
    script = f"cd; timeout 60 {command} >/dev/null 2>&1 && echo accepted || echo refused"
    return cloud.on("gpu-1", f"HOME=/home/people/{login} runuser -u {login} -- sh -c {json.dumps(script)}").strip()


def _submit_long(cloud: Cloud, login: str) -> str:
    job = cloud.on("gpu-1", f"runuser -l {login} -c \"sbatch --parsable --mem=16 --wrap 'sleep 1234'\"").strip()
    assert job.isdigit(), job
    slurm_people.until("the job runs", lambda: "RUNNING" in cloud.on("gpu-1", f"squeue -h -j {job} -o %T"))
    return job


def _reason_of_controller(cloud: Cloud) -> str:
    listed = json.loads(cloud.gpuaas("get", "members", "--instance", "slurm", "-o", "json").stdout)["items"]
    return str(next(member["status_reason"] for member in listed if member["component_key"] == "controller"))


def _follow(cloud: Cloud, line: str) -> None:
    """Run a command that the product prints."""
    program, *words = shlex.split(line)
    assert program == "gpuaas"
    cloud.gpuaas(*words)


def _open_session(cloud: Cloud, home: Path) -> subprocess.Popen[str]:
    """Log in as the person and stay, with a process that has detached itself from the terminal."""
    script = "setsid -f sleep 4321; echo open; sleep 4321"
    words = [str(BIN / "gpuaas"), "ssh", "slurm", "--", script]
    session = subprocess.Popen(words, env=cloud.environment(home), stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    assert session.stdout.readline() == "open\n"
    return session
