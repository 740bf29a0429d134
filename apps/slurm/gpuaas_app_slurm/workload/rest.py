"""The REST API of a cluster: slurmrestd on the controller machine, the key of its tokens, and tokens of people.

`config` renders the unit. A controller machine without the unit's file has no REST API, and nothing is started there.
A token is a secret: it passes only through the input and output of commands, which are not recorded."""

import base64
import datetime
import json
import re
from collections.abc import Sequence

import msgspec
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check, Show
from gpuaas_sdk.failures import Permanent, Refused, Temporary
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm import roles as role_names
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import config, footprint, keys

UNIT = footprint.REST_UNIT
POLL_S = 0.2
START = r"""
[ -e "$2" ] || exit 0
systemctl daemon-reload
systemctl reset-failed "$1" 2>/dev/null || true
systemctl enable -q "$1"
systemctl restart "$1"
"""
STOP = r"""
[ ! -e "$2" ] || systemctl disable -q --now "$1"
"""
# The unit can be active before the daemon listens, or although it is about to end.
ANSWERS = r"""
[ -e "$2" ] || exit 0
systemctl is-active -q "$1" || { echo "slurmrestd is $(systemctl is-active "$1")"; exit 0; }
timeout 2 bash -c ': < "/dev/tcp/$0/$1"' "$3" "$4" 2>/dev/null || echo "slurmrestd does not listen on $3:$4"
"""
# It runs as the person, so a link in the home leads to no file that the person could not write anyway. curl reads the
# file as a header, so that the token is in no command line.
WRITE = r"""
set -eu
umask 077
path=$HOME/$1
new=$(mktemp "$path.XXXXXX")
trap 'rm -f -- "$new"' EXIT
{ printf 'X-SLURM-USER-TOKEN: '; cat; } > "$new"
mv -fT -- "$new" "$path"
printf '%s\n' "$path"
"""


class Token(msgspec.Struct, frozen=True):
    """A token and when it ends. Not printable, so that no log or error can have its text."""

    text: str
    ends_at: datetime.datetime

    def __repr__(self) -> str:
        return f"Token(ends_at={self.ends_at!r})"


def packages(is_chosen: bool, roles: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of the REST API for a machine with these roles. Pure."""
    return footprint.REST_PACKAGES if is_chosen and role_names.CONTROLLER in roles else ()


def refuse_without_packages(specs: Sequence[str]) -> None:
    """Refuse a change of packages without those of the REST API: they work only with their own version. Pure."""
    missing = [name for name in footprint.REST_PACKAGES if name not in {spec.partition("=")[0] for spec in specs}]
    if specs and missing:
        raise Refused(
            f"the package bundle has no {' and no '.join(missing)}, which the REST API of this cluster needs",
            fix="make the bundle again with this release of the app: gpuaas-slurm bundle make",
        )


async def make_key(machine: Machine) -> None:
    """Make the key of the tokens on the machine, unless it exists."""
    await machine.script(keys.MAKE, footprint.TOKEN_KEY, "slurm")


async def start(machine: Machine, settings: Settings, progress: Show) -> None:
    """Restart slurmrestd, now and after each start of the machine, and wait until it listens."""
    await machine.script(START, UNIT, footprint.REST_DROP_IN, check=False)
    check = await checks.until(
        lambda: answers(machine), within_s=settings.controller_start_s, every_s=POLL_S, show=progress
    )
    if not check.ok:
        raise Permanent(
            f"{UNIT} on {machine.hostname} did not start: {check.reason}",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo journalctl -n 50 -u {UNIT}",
        )


async def stop(machine: Machine) -> None:
    await machine.script(STOP, UNIT, footprint.REST_DROP_IN)


async def answers(machine: Machine) -> Check:
    """Return whether slurmrestd listens. A machine that has no REST API passes."""
    address, port = machine.address, str(config.REST_PORT)
    reason = (await machine.script(ANSWERS, UNIT, footprint.REST_DROP_IN, address, port)).stdout.strip()
    return Check(not reason, reason)


async def token(controller: Machine, login: str, lifetime_s: int) -> Token:
    """Have slurmctld make a token, as the person themselves: Slurm makes none for another one."""
    argv = ("scontrol", "token", f"username={login}", f"lifespan={lifetime_s}")
    ran = await controller.run(*argv, as_user=login, check=False)
    match = re.fullmatch(r"SLURM_JWT=([\w-]+\.[\w-]+\.[\w-]+)", ran.stdout.strip())
    if ran.exit_status == 0 and match:
        return Token(match[1], ends_at(match[1]))
    error = f"Slurm made no token for {login}: {ran.stderr.strip()[-500:]}"
    if "contact" in ran.stderr.lower():
        raise Temporary(error, after_s=2.0)
    look = f"gpuaas ssh {controller.hostname} --root -- sudo tail -n 20 /var/log/slurm/slurmctld.log"
    raise Refused(error, fix=look)


async def write(machine: Machine, login: str, name: str, made: Token) -> str:
    """Write the token into a file of the person's home, which only the person can read. Return its path."""
    ran = await machine.run("sh", "-c", WRITE, "token", name, input=f"{made.text}\n", as_user=login, check=False)
    if ran.exit_status != 0:
        raise Refused(
            f"the token could not be written into the home of {login} on {machine.hostname}: {ran.stderr[-300:]}",
            fix=f"gpuaas ssh {machine.hostname} -- ls -la",
        )
    return ran.stdout.strip()


def ends_at(token: str) -> datetime.datetime:
    """Return when the token ends, as it states itself. Pure."""
    claims = token.split(".")[1]
    stated = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return datetime.datetime.fromtimestamp(int(stated["exp"]), datetime.UTC)
