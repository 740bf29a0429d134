"""Users of the cluster who are not people of the project: the form's `users`, and those that are added later.

Their Unix accounts on the machine of slurmctld are the record: a number is given once. A user who is removed keeps
account, number and files, and the account is expired, as the agent does it for people who leave.

Only `users.add` makes an expired account active again. Every other writer may have read the list before a user was
removed, so it makes accounts and expires them, and never lifts an expiry."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.machine import Command, Machine, commands

from gpuaas_app_slurm.workload import home
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm.workload.people import Person

FIRST_ID, LAST_ID = 6000, 9999

USERS = (
    home.MAKE_HOME
    + r"""
while [ $# -gt 0 ]; do
  name=$1 id=$2 state=$3 home=/home/people/$1; shift 3
  own=$(id -u "$name" 2>/dev/null || true)
  # The account of this machine belongs to another one, such as a person of the project: it is not the removed user.
  [ "$state" != removed ] || [ -z "$own" ] || [ "$own" = "$id" ] || continue
  # The group would be the user's own, and be deleted with the user: `shadow`, `disk` and `sudo` are groups like that.
  if ! getent passwd "$name" >/dev/null; then
    gid=$(getent group "$name" | cut -d: -f3 || true)
    case $gid in
      "" | "$id") ;;
      # Another user got the number first, so useradd refused it to this one and left the group.
      [6-9][0-9][0-9][0-9]) groupdel -f "$name" ;;
      *) echo "group $name exists with number $gid and is not of this cluster: choose another name" >&2; exit 1 ;;
    esac
  fi
  # Before the account is made: accounts are the record of who is a user. Other machines may make the home now.
  if [ "$state" != removed ] && [ -e "$home" ]; then
    [ "$(stat -c %u "$home")" = "$id" ] || {
      echo "$home belongs to uid $(stat -c %u "$home"), but $name has uid $id in this cluster" >&2; exit 1; }
  elif [ "$state" != removed ] && [ -d /home/people ]; then
    other=$(find /home/people -mindepth 1 -maxdepth 1 -type d -uid "$id" ! -name "$name" ! -name '.*' -printf %f -quit)
    [ -z "$other" ] || {
      echo "/home/people/$other belongs to uid $id, the number of $name in this cluster: another cluster made this" \
        "home, and $name would own its files" >&2; exit 1; }
  fi
  getent group "$name" >/dev/null || groupadd -g "$id" "$name"
  getent passwd "$name" >/dev/null || useradd -M -d "/home/people/$name" -u "$id" -g "$name" -s /bin/bash "$name"
  [ "$(id -u "$name")" = "$id" ] || {
    echo "user $name exists with uid $(id -u "$name"), but needs uid $id on every machine" >&2; exit 1; }
  expires=$(getent shadow "$name" | cut -d: -f8)
  case $state in
    removed)
      [ "$expires" = 1 ] || usermod -e 1 "$name"
      loginctl terminate-user "$name" 2>/dev/null || true ;;
    restored) [ -z "$expires" ] || usermod -e "" "$name" ;;
  esac
  [ "$(getent passwd "$name" | cut -d: -f6)" = "$home" ] || continue
  make_home "$name" "$id" "$id"
  [ "$state" = removed ] || [ "$(stat -c %u "$home")" = "$id" ] || {
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


def at_deploy(names: Sequence[str], people: Iterable[Person] = ()) -> tuple[User, ...]:
    """Return the users of the deploy form, with the numbers that a new cluster gives them: none of a person. Pure."""
    taken = {person.uid for person in people}
    free = itertools.filterfalse(taken.__contains__, itertools.count(FIRST_ID))
    return tuple(User(name, number) for name, number in zip(names, free, strict=False))


def refuse_people(names: Iterable[str], people: Iterable[Person], fix: str) -> None:
    """Refuse names that are logins of people: two accounts cannot share a login. Nothing was changed yet."""
    logins = {person.login for person in people}
    if taken := [name for name in names if name in logins]:
        raise Refused(f"{', '.join(taken)}: people of the project are users already, also after they left", fix=fix)


def shared_logins(people: Iterable[Person], users: Iterable[User]) -> tuple[str, ...]:
    """Return the logins of people that belong to a user of the cluster, who was there before the person. Pure."""
    names = {user.name for user in users}
    return tuple(sorted(person.login for person in people if person.login in names))


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


def with_added(
    present: Sequence[User], names: Iterable[str], owners: Mapping[str, int], people: Iterable[Person] = ()
) -> tuple[User, ...]:
    """Return the users after some are added. Each new one gets the number that owns a home with its name, or one that
    no user of the cluster and no person had and that owns no home: another cluster may share the folder. Pure."""
    by_name = {user.name: User(user.name, user.uid) if user.name in names else user for user in present}
    used = {user.uid for user in present}
    taken = {*owners.values(), *(person.uid for person in people)}
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


async def of_cluster(controller: Machine, names: Sequence[str], people: Sequence[Person]) -> tuple[User, ...]:
    """Return the users of a deployed cluster: those of its form, and those that were added later."""
    return known(names, await read(controller), people)


def known(names: Sequence[str], accounts: Iterable[User], people: Sequence[Person]) -> tuple[User, ...]:
    """Return the users of the form and those of these accounts that belong to no person of the project. An admin can
    give a person a number of the app, and the home of the person is in the same folder. Pure."""
    persons = {(person.login, person.uid) for person in people if person.login not in names}
    own = [user for user in accounts if (user.name, user.uid) not in persons]
    return tuple({user.name: user for user in (*at_deploy(names, people), *own)}.values())


async def read(controller: Machine) -> tuple[User, ...]:
    """Return the accounts with numbers of the app, also those of removed users."""
    lines = (await controller.script(LIST, str(FIRST_ID), str(LAST_ID), timeout_s=60)).stdout.splitlines()
    return tuple(User(name, int(uid), bool(rest)) for name, uid, *rest in (line.split() for line in lines))


def accounts(users: Sequence[User], *, restores: bool = False) -> Command:
    """Return the command that makes the accounts and homes of the users on a machine, and expires those of removed
    ones. With `restores`, it makes the others active again."""
    words = [word for user in users for word in (user.name, str(user.uid), _state(user, restores))]
    return commands.script(USERS, *words)


async def ensure_noted(machine: Machine, instance_id: str, users: Sequence[User], *, restores: bool = False) -> None:
    """Run it on a machine of a deployed cluster, after the new accounts are on its receipt."""
    await receipts.add_users(machine, SLURM, instance_id, [user.name for user in users])
    await machine.run_all(accounts(users, restores=restores), timeout_s=300)


def _state(user: User, restores: bool) -> str:
    if user.is_removed:
        return "removed"
    return "restored" if restores else "active"
