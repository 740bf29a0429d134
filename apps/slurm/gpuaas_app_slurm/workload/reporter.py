"""The health reporter of a machine: a service that looks at its units, disks, clock, key and files every few seconds.

It also remembers the files that the app wrote, so that a repair can put them back. Started when a machine has become
what it should be, and again after every change of the app."""

from collections.abc import Sequence
from importlib import resources

from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Command, File, Machine, commands

from gpuaas_app_slurm.workload import footprint

UNIT = footprint.REPORTER_UNIT
PROGRAM_PATH = f"{footprint.REPORTER_FOLDER}/health.py"
UNIT_PATH = f"/etc/systemd/system/{UNIT}.service"
SAVED = "/etc/slurm/gpuaas-files.tar"
"""The files as the app wrote them, for root only: the key of the cluster is among them."""

_UNIT_TEXT = """\
[Unit]
Description=Health of this machine of a Slurm cluster, for the GPUaaS Slurm app
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 {program} {arguments}
RuntimeDirectory=gpuaas-slurm
Restart=always
RestartSec=3
Nice=5

[Install]
WantedBy=multi-user.target
"""

SAVE = r"""
listed=$1 saved=$2; shift 2
umask 077
present=()
for path in "$@"; do [ ! -f "$path" ] || present+=("$path"); done
sha256sum -- "${present[@]}" > "$listed.new"
chmod 0644 "$listed.new"; mv -f "$listed.new" "$listed"
tar -cPf "$saved.new" -- "${present[@]}" "$listed"
mv -f "$saved.new" "$saved"
"""
RESTORE = r"""
listed=$1 saved=$2
[ -s "$saved" ] || { echo missing; exit 0; }
if [ -s "$listed" ] && sha256sum --quiet --check "$listed" >/dev/null 2>&1; then echo same; exit 0; fi
tar -xpPf "$saved"
systemctl daemon-reload
echo changed
"""


CHANGED = r"""
{ sha256sum --quiet --check "$1" 2>/dev/null || true; } | sed -n 's/: FAILED.*$//p'
"""
RESTORE_ONE = r"""
saved=$1 path=$2
before=$(sha256sum < "$path" || true)
tar -xpPf "$saved" -- "$path"
[ "$before" = "$(sha256sum < "$path")" ] || echo changed
"""


async def start(machine: Machine, roles_here: Sequence[str], *, is_written: bool = False) -> None:
    """Remember the files that the app wrote, and report on the machine from now on. `is_written`: `files` were written
    just now, and systemd has read them."""
    if is_written:
        await remember(machine)
        return
    await machine.run_all(commands.put_all(files(machine.hostname, roles_here)), units.RELOAD, *_remember(), *_run())


def files(hostname: str, roles_here: Sequence[str]) -> tuple[File, ...]:
    """Return the program and the unit of the reporter."""
    names = sorted({unit for role in roles_here for unit in footprint.SLURM.roles[role].units})
    node_name = hostname if "slurmd" in names else ""
    text = _UNIT_TEXT.format(program=PROGRAM_PATH, arguments=f"'{node_name}' {' '.join(names)}")
    return program(), File(UNIT_PATH, text)


def program() -> File:
    return File(PROGRAM_PATH, resources.files("gpuaas_app_slurm.workload").joinpath("reporter_program.py").read_text())


async def remember(machine: Machine) -> None:
    """Remember the files as they are now, and restart the reporter, which compares them from now on."""
    await machine.run_all(*_remember(), *_run())


async def ensure(machine: Machine, roles_here: Sequence[str]) -> None:
    """Have the reporter run. A machine of a cluster that an earlier release deployed gets it now."""
    if await machine.get(UNIT_PATH) is None:
        await start(machine, roles_here)
    else:
        await run(machine)


async def run(machine: Machine) -> None:
    """Restart the reporter. The files that it compares stay those that were remembered: a repair adopts no edit."""
    await machine.run_all(*_run())


async def restore(machine: Machine) -> bool:
    """Put back the files as the app wrote them. Return whether any had changed."""
    ran = await machine.script(RESTORE, footprint.FILES_LIST, SAVED)
    return ran.stdout.strip() == "changed"


async def restore_one(machine: Machine, path: str) -> bool:
    """Put one file back as the app wrote it. Return whether it had changed."""
    return (await machine.script(RESTORE_ONE, SAVED, path)).stdout.strip() == "changed"


async def changed(machine: Machine) -> tuple[str, ...]:
    """Return the files that are not as the app wrote them."""
    return tuple((await machine.script(CHANGED, footprint.FILES_LIST)).stdout.splitlines())


async def is_remembered(machine: Machine) -> bool:
    """Return whether the files of the app were remembered. Those of earlier releases were not."""
    return await machine.get(footprint.FILES_LIST) is not None


def _remember() -> tuple[Command, ...]:
    return (commands.script(SAVE, footprint.FILES_LIST, SAVED, *footprint.WRITTEN, PROGRAM_PATH, UNIT_PATH),)


def _run() -> tuple[Command, ...]:
    return units.enable(UNIT), units.restart(UNIT)
