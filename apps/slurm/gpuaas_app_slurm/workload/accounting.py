"""Set up accounting on the controller machine: MariaDB, slurmdbd, the cluster, its account and its users.

Called by `slurm` before the first start of slurmctld, because accounting cannot easily be added to a cluster later."""

from collections.abc import Mapping

from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import state

ACCOUNT = "default"
DATABASE = "slurm_acct_db"
POLL_S = 0.1

CREATE_DATABASE = f"""
CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON {DATABASE}.* TO 'slurm'@'localhost';
"""
DROP_DATABASE = f"DROP DATABASE IF EXISTS {DATABASE}; DROP USER IF EXISTS 'slurm'@'localhost';"

# Add only what is missing: sacctmgr fails if there is nothing to add.
ASSOCIATIONS = r"""
cluster=$1 account=$2; shift 2
have() { [ -n "$(sacctmgr -nP "$@")" ]; }
have show cluster "$cluster" format=Cluster || sacctmgr -i -Q add cluster "$cluster" >/dev/null
have show account "$account" cluster="$cluster" withassoc format=Account ||
  sacctmgr -i -Q add account "$account" cluster="$cluster" Description=default Organization=default >/dev/null
for user in "$@"; do
  getent passwd "$user" >/dev/null || { echo "Unix user $user does not exist" >&2; exit 1; }
  have show association where cluster="$cluster" account="$account" user="$user" format=User ||
    sacctmgr -i -Q add user "$user" cluster="$cluster" account="$account" DefaultAccount="$account" >/dev/null
done
"""
USERS = r"""
while [ $# -gt 0 ]; do
  name=$1 id=$2; shift 2
  getent group "$name" >/dev/null || groupadd -g "$id" "$name"
  getent passwd "$name" >/dev/null || useradd -M -d "/home/people/$name" -u "$id" -g "$name" -s /bin/bash "$name"
  [ "$(id -u "$name")" = "$id" ] || {
    echo "user $name exists with uid $(id -u "$name"), but needs uid $id on every machine" >&2; exit 1; }
  home=/home/people/$name
  [ "$(getent passwd "$name" | cut -d: -f6)" = "$home" ] || continue
  # The folder gets its name when it is complete: another machine may make the same one on the shared disk now.
  if [ ! -d "$home" ]; then
    made=$(mktemp -d "/home/people/.$name-XXXXXX")
    cp -a /etc/skel/. "$made"
    chown -R "$name:$name" "$made"
    chmod 700 "$made"
    mv -nT -- "$made" "$home" 2>/dev/null || true
    [ ! -d "$made" ] || rm -rf -- "$made"
  fi
  [ "$(stat -c %u "$home")" = "$id" ] || {
    echo "$home belongs to uid $(stat -c %u "$home"), but $name has uid $id in this cluster" >&2; exit 1; }
done
"""


async def add_unix_users(machine: Machine, user_ids: Mapping[str, int]) -> None:
    await machine.script(USERS, *(word for name, number in user_ids.items() for word in (name, str(number))))


async def start(
    controller: Machine, cluster_name: str, users: tuple[str, ...], settings: Settings, progress: Show
) -> None:
    await progress("starting MariaDB")
    await controller.run("systemctl", "enable", "-q", "--now", "mariadb", timeout_s=settings.accounting_start_s)
    await controller.run("mariadb", input=CREATE_DATABASE)
    await progress("starting slurmdbd")
    await controller.run("systemctl", "enable", "-q", "slurmdbd")
    await controller.run("systemctl", "restart", "slurmdbd")
    await _wait_for_slurmdbd(controller, settings, progress)
    await controller.script(ASSOCIATIONS, cluster_name, ACCOUNT, *users)


async def ready(controller: Machine, cluster_name: str) -> Check:
    return state.accounting_answers(await _clusters(controller), cluster_name)


async def _wait_for_slurmdbd(controller: Machine, settings: Settings, progress: Show) -> None:
    async def answers() -> Check:
        ran = await controller.run("timeout", "5", "sacctmgr", "-nP", "show", "cluster", check=False)
        return Check(ran.exit_status == 0, "waiting for slurmdbd to answer")

    check = await checks.until(answers, within_s=settings.accounting_start_s, every_s=POLL_S, show=progress)
    if not check.ok:
        raise Permanent(
            f"slurmdbd on {controller.hostname} did not answer within {settings.accounting_start_s:.0f} s",
            fix=f"ssh {controller.address} journalctl -u slurmdbd -u mariadb --no-pager -n 50",
        )


async def _clusters(controller: Machine) -> str:
    ran = await controller.run("timeout", "5", "sacctmgr", "-nP", "show", "cluster", "format=Cluster", check=False)
    return ran.stdout
