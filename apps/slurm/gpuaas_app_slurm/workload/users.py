"""Users of the cluster who are not people of the project: the form's `users`, and those that are added later.

Their Unix accounts on the machine of slurmctld are the record: a number is given once. A user who is removed keeps
account, number and files, and the account is expired, as the agent does it for people who leave."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.machine import Command, Machine, commands

from gpuaas_app_slurm.workload import home
from gpuaas_app_slurm.workload.footprint import SLURM

FIRST_ID, LAST_ID = 6000, 9999

USERS = (
    home.MAKE_HOME
    + r"""
while [ $# -gt 0 ]; do
  name=$1 id=$2 state=$3 home=/home/people/$1; shift 3
  # Before the account is made: accounts are the record of who is a user. Other machines may make the home now.
  if [ "$state" = active ] && [ -e "$home" ]; then
    [ "$(stat -c %u "$home")" = "$id" ] || {
      echo "$home belongs to uid $(stat -c %u "$home"), but $name has uid $id in this cluster" >&2; exit 1; }
  elif [ "$state" = active ] && [ -d /home/people ]; then
    other=$(find /home/people -mindepth 1 -maxdepth 1 -type d -uid "$id" ! -name "$name" ! -name '.*' -printf %f -quit)
    [ -z "$other" ] || {
      echo "/home/people/$other belongs to uid $id, the number of $name in this cluster: another cluster made this" \
        "home, and $name would own its files" >&2; exit 1; }
  fi
  getent group "$name" >/dev/null || groupadd -g "$id" "$name"
  getent passwd "$name" >/dev/null || useradd -M -d "/home/people/$name" -u "$id" -g "$name" -s /bin/bash "$name"
  [ "$(id -u "$name")" = "$id" ] || {
    echo "user $name exists with uid $(id -u "$name"), but needs uid $id on every machine" >&2; exit 1; }
  expires=; [ "$state" = active ] || expires=1
  [ "$(getent shadow "$name" | cut -d: -f8)" = "$expires" ] || usermod -e "$expires" "$name"
  [ "$state" = active ] || loginctl terminate-user "$name" 2>/dev/null || true
  [ "$(getent passwd "$name" | cut -d: -f6)" = "$home" ] || continue
  make_home "$name" "$id" "$id"
  [ "$state" != active ] || [ "$(stat -c %u "$home")" = "$id" ] || {
    echo "$home belongs to uid $(stat -c %u "$home"), but $name has uid $id in this cluster" >&2; exit 1; }
done
"""
)
OWNERS = r"""
[ ! -d "$1" ] || find "$1" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -printf '%U %f\n' |
  while read -r uid name; do if [ "$uid" -ge "$2" ] && [ "$uid" -le "$3" ]; then echo "$uid $name"; fi; done
"""
LIST = r"""
while IFS=: read -r name _ uid _ _ home _; do
  if [ "$uid" -ge "$1" ] && [ "$uid" -le "$2" ] && [ "$home" = "/home/people/$name" ]; then
    expires=$(getent shadow "$name" | cut -d: -f8)
    echo "$name $uid ${expires:+removed}"
  fi
done < /etc/passwd
"""


class User(msgspec.Struct, frozen=True):
    """A user of the cluster with a Unix account on every machine."""

    name: str
    uid: int
    is_removed: bool = False


def at_deploy(names: Sequence[str]) -> tuple[User, ...]:
    """Return the users of the deploy form, with the numbers that a new cluster gives them."""
    return tuple(User(name, FIRST_ID + position) for position, name in enumerate(names))


async def refuse_other_owners(machine: Machine, folder: str, users: Sequence[User]) -> None:
    """Refuse a shared folder in which another cluster gave the numbers of these users to other names, or these names
    other numbers. Each cluster numbers its users alone, so a user would own the files of another one."""
    owners = await owners_of(machine, folder)
    if text := collision(folder, owners, users):
        raise Refused(f"{text}: another cluster made this home", fix=f"choose another folder for home{_order(owners)}")


async def owners_of(machine: Machine, folder: str = home.PEOPLE) -> dict[str, int]:
    """Return the homes in a folder whose owners have numbers of the app, as name -> number."""
    lines = (await machine.script(OWNERS, folder, str(FIRST_ID), str(LAST_ID), timeout_s=60)).stdout.splitlines()
    return {name: int(uid) for uid, _, name in (line.partition(" ") for line in lines)}


def _order(owners: Mapping[str, int]) -> str:
    """Return the advice to name the users of the folder first. With a gap in their numbers this is not possible."""
    names = sorted(owners, key=lambda name: owners[name])
    if [owners[name] for name in names] != list(range(FIRST_ID, FIRST_ID + len(names))):
        return ""
    return f", or name the users of the folder first, in the order of their numbers: {','.join(names)}"


def collision(folder: str, owners: Mapping[str, int], users: Sequence[User]) -> str:
    """Return which home has a number that does not fit these users; empty if all fit. Pure."""
    for user in users:
        if owners.get(user.name, user.uid) != user.uid:
            return f"{folder}/{user.name} belongs to {owners[user.name]}, and {user.name} gets {user.uid} here"
    names = {user.uid: user.name for user in users}
    other = [name for name, uid in owners.items() if names.get(uid, name) != name]
    return (
        f"{folder}/{other[0]} belongs to {owners[other[0]]}, the number of {names[owners[other[0]]]} here"
        if other
        else ""
    )


def with_added(present: Sequence[User], names: Iterable[str], owners: Mapping[str, int]) -> tuple[User, ...]:
    """Return the users after some are added. Each new one gets the number that owns a home with its name, or one that
    no user of the cluster had and that owns no home: another cluster may share the folder. Pure."""
    by_name = {user.name: User(user.name, user.uid) if user.name in names else user for user in present}
    used = {user.uid for user in present}
    taken = set(owners.values())
    free = (number for number in itertools.count(max(used, default=FIRST_ID - 1) + 1) if number not in taken)
    for name in names:
        if name not in by_name:
            own = owners.get(name)
            by_name[name] = User(name, own if own is not None and own not in used else next(free))
            used.add(by_name[name].uid)
    if max(used, default=0) > LAST_ID:
        raise Refused(f"all user numbers up to {LAST_ID} are used in this cluster", fix="deploy another cluster")
    return tuple(by_name.values())


def with_removed(present: Sequence[User], names: Iterable[str]) -> tuple[User, ...]:
    """Return the users after some are removed. They stay in the list, so that their numbers stay theirs. Pure."""
    gone = set(names)
    return tuple(User(user.name, user.uid, is_removed=True) if user.name in gone else user for user in present)


async def of_cluster(controller: Machine, names: Sequence[str]) -> tuple[User, ...]:
    """Return the users of a deployed cluster: those of its form, and those that were added later."""
    by_name = {user.name: user for user in (*at_deploy(names), *await read(controller))}
    return tuple(by_name.values())


async def read(controller: Machine) -> tuple[User, ...]:
    """Return the users of a deployed cluster, also those who were removed."""
    lines = (await controller.script(LIST, str(FIRST_ID), str(LAST_ID), timeout_s=60)).stdout.splitlines()
    return tuple(User(name, int(uid), bool(rest)) for name, uid, *rest in (line.split() for line in lines))


async def ensure(machine: Machine, users: Sequence[User]) -> None:
    """Make the accounts and homes of the users on a machine, and expire those of removed ones."""
    await machine.run_all(accounts(users), timeout_s=300)


def accounts(users: Sequence[User]) -> Command:
    """Return the command that does the same."""
    return commands.script(USERS, *(word for user in users for word in (user.name, str(user.uid), _state(user))))


async def ensure_noted(machine: Machine, instance_id: str, users: Sequence[User]) -> None:
    """Do the same on a machine of a deployed cluster, after the new accounts are on its receipt."""
    await receipts.add_users(machine, SLURM, instance_id, [user.name for user in users])
    await ensure(machine, users)


def _state(user: User) -> str:
    return "removed" if user.is_removed else "active"
