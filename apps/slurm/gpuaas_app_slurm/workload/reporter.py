"""The health reporter of a machine: a service that looks at its units, disks, clock, key and files every few seconds.

It also remembers the files that the app wrote, so that a repair can put them back. Started when a machine has become
what it should be, and again after every change of the app."""

from collections.abc import Sequence
from importlib import resources

from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload import receipts, undo

UNIT = receipts.REPORTER_UNIT
PROGRAM_PATH = f"{receipts.REPORTER_FOLDER}/health.py"
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


async def start(machine: Machine, roles_here: Sequence[str]) -> None:
    """Remember the files that the app wrote, and report on the machine from now on."""
    units = sorted({unit for role in roles_here for unit in undo.UNITS_OF[role]})
    node_name = machine.hostname if "slurmd" in units else ""
    await machine.run("install", "-d", "-m", "0755", receipts.REPORTER_FOLDER)
    await machine.put(PROGRAM_PATH, _program())
    await machine.put(UNIT_PATH, _UNIT_TEXT.format(program=PROGRAM_PATH, arguments=f"'{node_name}' {' '.join(units)}"))
    await machine.run("systemctl", "daemon-reload")
    await remember(machine)


async def remember(machine: Machine) -> None:
    """Remember the files as they are now, and restart the reporter, which compares them from now on."""
    await machine.script(SAVE, receipts.FILES_LIST, SAVED, *receipts.WRITTEN, PROGRAM_PATH, UNIT_PATH)
    await run(machine)


async def ensure(machine: Machine, roles_here: Sequence[str]) -> None:
    """Have the reporter run. A machine of a cluster that an earlier release deployed gets it now."""
    if await machine.get(UNIT_PATH) is None:
        await start(machine, roles_here)
    else:
        await run(machine)


async def run(machine: Machine) -> None:
    """Restart the reporter. The files that it compares stay those that were remembered: a repair adopts no edit."""
    await machine.run("systemctl", "enable", "-q", UNIT)
    await machine.run("systemctl", "restart", UNIT)


async def restore(machine: Machine) -> bool:
    """Put back the files as the app wrote them. Return whether any had changed."""
    ran = await machine.script(RESTORE, receipts.FILES_LIST, SAVED)
    return ran.stdout.strip() == "changed"


def _program() -> str:
    return resources.files("gpuaas_app_slurm.workload").joinpath("reporter_program.py").read_text()
