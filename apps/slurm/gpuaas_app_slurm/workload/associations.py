"""Users of Slurm: their associations in the cluster's account, who may submit jobs, and their limits.

Every change takes one command for all users. A user who may not submit has group limits of 0, so that limits which
people set for the user (`Max...`, `GrpTRES`) stay as they are."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

ACCOUNT = "default"
LOGINS_PER_COMMAND = 500
"""Logins are arguments of a command, whose length the system limits."""
FIELDS = "User,GrpSubmitJobs,MaxJobs,MaxSubmitJobs,MaxWall,GrpTRES,Fairshare"
BLOCK = ("GrpJobs=0", "GrpSubmitJobs=0")
"""Keeps the user from submitting, and queued jobs from starting. Running jobs continue."""
NOTHING_TO_CHANGE = "Nothing modified"
"""sacctmgr prints this, and ends with status 1, if no association fits what a change is for."""
UNBLOCK = ("GrpJobs=-1", "GrpSubmitJobs=-1")


class Limits(msgspec.Struct, frozen=True):
    """The limits of a user, or of the whole account; None: no limit, and for a change: stays as it is."""

    max_jobs: int | None = None
    max_submit: int | None = None
    max_wall: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    fairshare: int | None = None


class Association(msgspec.Struct, frozen=True):
    user: str
    """Empty for the account itself."""
    can_submit: bool
    limits: Limits = Limits()


def parse(text: str) -> dict[str, Association]:
    """Return user -> association from the output of `sacctmgr -nP show association`. Pure."""
    lines = [line.split("|") for line in text.splitlines() if line.count("|") == FIELDS.count(",")]
    return {user: _association(user, *values) for user, *values in lines}


def settings(change: Limits) -> tuple[str, ...]:
    """Return what `sacctmgr modify` sets for a change; -1 removes a limit. Pure."""
    tres = {"cpu": change.cpus, "gres/gpu": change.gpus}
    grouped = ",".join(f"{name}={number}" for name, number in tres.items() if number is not None)
    values = {
        "MaxJobs": change.max_jobs,
        "MaxSubmitJobs": change.max_submit,
        "MaxWall": change.max_wall,
        "GrpTRES": grouped or None,
        "Fairshare": change.fairshare,
    }
    return tuple(f"{name}={value}" for name, value in values.items() if value is not None)


async def read(controller: Machine, cluster_name: str) -> Mapping[str, Association]:
    """Return user -> association; the one of the account itself has an empty user."""
    where = ("where", f"cluster={cluster_name}", f"account={ACCOUNT}", f"format={FIELDS}")
    ran = await controller.run("sacctmgr", "-nP", "show", "association", *where)
    return parse(ran.stdout)


async def add(controller: Machine, cluster_name: str, users: Collection[str]) -> None:
    """Add users to the account. Another command may have added some of them at the same time: read the result."""
    place = (f"cluster={cluster_name}", f"account={ACCOUNT}", f"DefaultAccount={ACCOUNT}")
    for some in _parts(users):
        await controller.run("sacctmgr", "-i", "-Q", "add", "user", some, *place, check=False)


async def change(controller: Machine, cluster_name: str, users: Collection[str], values: Sequence[str]) -> None:
    place = (f"cluster={cluster_name}", f"account={ACCOUNT}")
    for some in _parts(users):
        words = ("sacctmgr", "-i", "-Q", "modify", "user", "where", f"name={some}", *place, "set", *values)
        await _modify(controller, *words)


async def change_account(controller: Machine, cluster_name: str, values: Sequence[str]) -> None:
    """Set limits of the account: of all users together, and of each user without a limit of their own."""
    place = ("where", f"name={ACCOUNT}", f"cluster={cluster_name}")
    await _modify(controller, "sacctmgr", "-i", "-Q", "modify", "account", *place, "set", *values)


async def _modify(controller: Machine, *words: str) -> None:
    """Run a change, and fail with what sacctmgr printed. A change of nothing is no failure: read the result."""
    ran = await controller.run(*words, check=False)
    printed = " ".join(f"{ran.stdout} {ran.stderr}".split())
    if ran.exit_status != 0 and NOTHING_TO_CHANGE not in printed:
        raise Permanent(
            f"sacctmgr on {controller.hostname} did not change {words[4]}s: {printed or 'it printed nothing'}",
            fix=f"gpuaas ssh {controller.hostname} --root -- sudo tail /var/log/slurm/slurmdbd.log",
        )


async def jobs_of(controller: Machine, users: Collection[str]) -> Mapping[str, list[str]]:
    """Return user -> ids of their jobs that run or wait, for users who have some."""
    jobs: dict[str, list[str]] = {}
    for some in _parts(users):
        ran = await controller.run("squeue", "-h", "-o", "%u|%i", "-u", some, check=False)
        for user, job in (line.split("|") for line in ran.stdout.splitlines() if line.count("|") == 1):
            jobs.setdefault(user, []).append(job)
    return jobs


def refuse_missing(controller: Machine, users: Iterable[str], present: Mapping[str, Association], what: str) -> None:
    missing = [user for user in users if user not in present]
    if missing:
        raise Permanent(
            f"Slurm {what} {', '.join(missing)} on {controller.hostname}",
            fix=f"gpuaas ssh {controller.hostname} --root -- sudo sacctmgr show association",
        )


def _association(user: str, submit: str, jobs: str, queued: str, wall: str, tres: str, fairshare: str) -> Association:
    limits = Limits(
        _number(jobs), _number(queued), wall or None, _of(tres, "cpu"), _of(tres, "gres/gpu"), _number(fairshare)
    )
    return Association(user, submit != "0", limits)


def _of(tres: str, name: str) -> int | None:
    match = re.search(rf"(?:^|,){re.escape(name)}=(\d+)", tres)
    return int(match[1]) if match else None


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _parts(users: Collection[str]) -> list[str]:
    names = sorted(users)
    starts = range(0, len(names), LOGINS_PER_COMMAND)
    return [",".join(names[start : start + LOGINS_PER_COMMAND]) for start in starts]
