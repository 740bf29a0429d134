"""People of the project as users of Slurm: associations for those who have access, and none to use for those who left.

Their Unix accounts are made by the platform's agent, with the same numbers on every machine. The number of commands
does not depend on the number of people."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import associations, home
from gpuaas_app_slurm.workload.associations import Association

POLL_S = 1.0

# Prints who has no Unix account yet. The others get their home.
HOMES = (
    home.MAKE_HOME
    + r"""
while [ $# -gt 0 ]; do
  login=$1 uid=$2 gid=$3; shift 3
  if getent passwd "$login" >/dev/null; then make_home "$login" "$uid" "$gid"; else echo "$login"; fi
done
"""
)


class Person(msgspec.Struct, frozen=True):
    """A person with a Unix account on the machines of the cluster, or one who had it."""

    login: str
    uid: int
    gid: int
    has_left: bool = False


class Changes(msgspec.Struct, frozen=True):
    """How Slurm must change so that it has the people of the project."""

    add: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    """Logins of people who came back."""
    block: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.restore or self.block)

    @property
    def text(self) -> str:
        """Return how Slurm differs from the people of the project; empty if it does not."""
        missing = sorted((*self.add, *self.restore))
        parts = [f"{', '.join(missing)} cannot submit jobs yet"] if missing else []
        parts += [f"{', '.join(self.block)} left the project and can still submit jobs"] if self.block else []
        return "; ".join(parts)


class Synced(msgspec.Struct, frozen=True):
    """What a sync changed, which jobs of people who left still run or wait, and who has no Unix account yet."""

    changes: Changes
    jobs: Mapping[str, Sequence[str]]
    waiting: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Logins of people that belong to users of the cluster, who keep them."""


def changes(people: Sequence[Person], can_submit: Mapping[str, bool], waiting: Collection[str] = ()) -> Changes:
    """Return what must change. Users whom the project does not have are left alone. Pure.

    `can_submit`: user of Slurm -> whether the user can submit jobs. `waiting`: logins without a Unix account yet."""
    active = [person.login for person in people if not person.has_left and person.login not in waiting]
    left = [person.login for person in people if person.has_left]
    return Changes(
        add=tuple(login for login in active if login not in can_submit),
        restore=tuple(login for login in active if can_submit.get(login) is False),
        block=tuple(login for login in left if can_submit.get(login)),
    )


def jobs_text(jobs: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{login}: {', '.join(numbers)}" for login, numbers in sorted(jobs.items()))


async def sync(
    controller: Machine, cluster_name: str, people: Sequence[Person], *, within_s: float, progress: Show
) -> Synced:
    """Give the people their associations and homes, and take them from those who left.

    Waits for Unix accounts as long as one more is there within this time. The rest is left to a later sync."""
    work = _Sync(controller, cluster_name, people)
    await work.step()
    while work.waiting:
        check = await checks.until(work.has_fewer_waiting, within_s=within_s, every_s=POLL_S, show=progress)
        if not check.ok:
            break
    known = await associations.read(controller, cluster_name)
    left = [person.login for person in people if person.has_left and person.login in known]
    return Synced(_all(work.done), await associations.jobs_of(controller, left), work.waiting)


class _Sync:
    """One sync, repeated while Unix accounts appear."""

    def __init__(self, controller: Machine, cluster_name: str, people: Sequence[Person]) -> None:
        self._controller, self._cluster_name, self._people = controller, cluster_name, people
        self.done: list[Changes] = []
        self.waiting: tuple[str, ...] = ()

    async def step(self) -> None:
        self.waiting = await _make_homes(self._controller, self._people)
        self.done.append(await _apply(self._controller, self._cluster_name, self._people, self.waiting))

    async def has_fewer_waiting(self) -> Check:
        before = self.waiting
        await self.step()
        logins = ", ".join(self.waiting)
        return Check(
            len(self.waiting) < len(before), f"waiting for the Unix accounts of {logins} on {self._controller.hostname}"
        )


async def _make_homes(controller: Machine, people: Sequence[Person]) -> tuple[str, ...]:
    """Make the homes of people and return who has no Unix account yet."""
    active = [person for person in people if not person.has_left]
    words = [word for person in active for word in (person.login, str(person.uid), str(person.gid))]
    return tuple((await controller.script(HOMES, *words)).stdout.split())


async def _apply(controller: Machine, cluster_name: str, people: Sequence[Person], waiting: Collection[str]) -> Changes:
    """Make Slurm as it should be, and read it again: a command can fail in part, or beside another one."""
    needed = changes(people, await _can_submit(controller, cluster_name), waiting)
    if needed.is_empty:
        return needed
    await associations.add(controller, cluster_name, needed.add)
    await associations.change(controller, cluster_name, needed.restore, associations.UNBLOCK)
    await associations.change(controller, cluster_name, needed.block, associations.BLOCK)
    missing = changes(people, await _can_submit(controller, cluster_name), waiting)
    if not missing.is_empty:
        raise Permanent(
            f"Slurm on {controller.hostname} did not take the change: {missing.text}",
            fix=f"gpuaas ssh {controller.hostname} --root -- sudo sacctmgr show association",
        )
    return needed


async def _can_submit(controller: Machine, cluster_name: str) -> dict[str, bool]:
    return can_submit(await associations.read(controller, cluster_name))


def can_submit(present: Mapping[str, Association]) -> dict[str, bool]:
    """Return user -> whether the user can submit jobs. Pure."""
    return {user: association.can_submit for user, association in present.items() if user}


def _all(done: Sequence[Changes]) -> Changes:
    return Changes(
        add=tuple(login for some in done for login in some.add),
        restore=tuple(login for some in done for login in some.restore),
        block=tuple(login for some in done for login in some.block),
    )
