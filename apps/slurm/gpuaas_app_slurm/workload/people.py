"""People of the project as users of Slurm: associations for those who have access, and none to use for those who left.

Their Unix accounts are made by the platform's agent, with the same numbers on every machine."""

from collections.abc import Mapping, Sequence

import msgspec
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import accounting

POLL_S = 1.0

# MaxJobs=0 also keeps queued jobs of a person who left from starting. Running ones are named, not cancelled.
SYNC = r"""
cluster=$1 account=$2; shift 2
association() {
  sacctmgr -nP show association where cluster="$cluster" account="$account" user="$1" format=User,MaxSubmitJobs
}
limit() { sacctmgr -i -Q modify user where name="$1" cluster="$cluster" account="$account" \
  set MaxJobs="$2" MaxSubmitJobs="$2" >/dev/null; }
make_home() {
  home=/home/people/$1
  [ ! -d "$home" ] || return 0
  made=$(mktemp -d "/home/people/.$1-XXXXXX")
  cp -a /etc/skel/. "$made"
  chown -R "$2:$3" "$made"
  chmod 700 "$made"
  mv -nT -- "$made" "$home" 2>/dev/null || true
  [ ! -d "$made" ] || rm -rf -- "$made"
}
while [ $# -gt 0 ]; do
  login=$1 state=$2 uid=$3 gid=$4; shift 4
  known=$(association "$login")
  if [ "$state" = left ]; then
    case $known in "" | *'|0') ;; *) limit "$login" 0 ;; esac
    jobs=$(squeue -h -u "$login" -o %i 2>/dev/null | tr '\n' ' ')
    [ -z "$jobs" ] || echo "jobs $login $jobs"
  elif ! getent passwd "$login" >/dev/null; then
    echo "pending $login"
  else
    make_home "$login" "$uid" "$gid"
    case $known in
      "") sacctmgr -i -Q add user "$login" cluster="$cluster" account="$account" DefaultAccount="$account" >/dev/null ;;
      *'|0') limit "$login" -1 ;;
    esac
  fi
done
"""


class Person(msgspec.Struct, frozen=True):
    """A person with a Unix account on the machines of the cluster, or one who had it."""

    login: str
    uid: int
    gid: int
    has_left: bool = False


def outdated(people: Sequence[Person], associations: Mapping[str, bool]) -> str:
    """Return how Slurm differs from the people of the project; empty if it does not. Pure.

    `associations`: login -> whether it can submit jobs. Users whom the project does not have are left alone."""
    active = [person.login for person in people if not person.has_left]
    missing = [login for login in active if not associations.get(login, False)]
    blocked = [person.login for person in people if person.has_left and associations.get(person.login, False)]
    parts = [f"{', '.join(missing)} cannot submit jobs yet"] if missing else []
    parts += [f"{', '.join(blocked)} left the project and can still submit jobs"] if blocked else []
    return "; ".join(parts)


async def sync(
    controller: Machine, cluster_name: str, people: Sequence[Person], *, within_s: float, progress: Show
) -> str:
    """Give the people their associations and homes, and take them from those who left. Waits for Unix accounts.

    Returns which jobs of people who left still run or wait, as text; empty if there are none."""
    words = [word for person in people for word in _words(person)]
    jobs: list[str] = []

    async def is_synced() -> Check:
        ran = await controller.script(SYNC, cluster_name, accounting.ACCOUNT, *words)
        lines = [line.split() for line in ran.stdout.splitlines()]
        jobs[:] = [f"{line[1]}: {', '.join(line[2:])}" for line in lines if line[0] == "jobs"]
        pending = [line[1] for line in lines if line[0] == "pending"]
        return Check(not pending, f"waiting for the Unix accounts of {', '.join(pending)} on {controller.hostname}")

    check = await checks.until(is_synced, within_s=within_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise Permanent(check.reason, fix="check that the agent of the machine is up to date: gpuaas get nodes")
    return "; ".join(jobs)


def _words(person: Person) -> tuple[str, str, str, str]:
    return person.login, "left" if person.has_left else "active", str(person.uid), str(person.gid)
