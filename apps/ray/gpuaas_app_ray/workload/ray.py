"""Ray on one machine. Each function brings the machine into a state, so it can be repeated."""

import json
from importlib import resources
from typing import Any

import msgspec
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.installs import Footprint, Role, receipts, units, wheels
from gpuaas_sdk.machine import File, Machine

from gpuaas_app_ray.checks import View

UNIT, USER = "gpuaas-work-ray", "ray"
UNIT_FILE = f"/etc/systemd/system/{UNIT}.service"
HOME, DATA = f"/opt/{UNIT}", f"/var/lib/{UNIT}"
ENVIRONMENT, PROGRAM, TOKEN, CLOSED = f"{HOME}/env", f"{HOME}/program.py", f"{DATA}/token", f"{DATA}/closed"
DASHBOARD = "http://127.0.0.1:8265"
PLACES = (UNIT_FILE, HOME, DATA)
ROLES = dict.fromkeys(("head", "worker"), Role(units=(UNIT,)))
RAY = Footprint(app="ray", name="Ray", roles=ROLES, paths=PLACES, own_paths=PLACES, users=(USER,))
FACTS = "nproc; awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo; df --output=size -m /dev/shm | tail -1"
FOLDERS = """getent passwd "$1" >/dev/null || useradd --system --no-create-home --home-dir "$3" "$1"
install -d "$2"; install -d -o "$1" -m 0700 "$3"; install -d -o "$1" "$3/jobs"
"""


async def install(machine: Machine, instance_id: str, role: str, path: str, options: str, token: str) -> None:
    """Put Ray, its unit and its token on the machine, and list them on the receipt first."""
    await receipts.open_for(machine, RAY, instance_id, (role,))
    await machine.script(FOLDERS, USER, HOME, DATA)
    await wheels.install(machine, path, ENVIRONMENT)
    here = resources.files(__package__)
    unit = (here / "ray.service").read_text().replace("OPTIONS_HERE", options)
    secret = File(TOKEN, token.encode(), mode=0o400, owner=f"{USER}:{USER}")
    await machine.put_all((File(PROGRAM, (here / "program.py").read_bytes()), File(UNIT_FILE, unit.encode()), secret))
    await machine.run_all(units.RELOAD)


async def start(machine: Machine, view: View) -> None:
    """Let the machine join the cluster. A node that already takes part is not disturbed."""
    if view.runs and view.closed:
        raise Temporary(f"Ray cannot take a drain back; {machine.hostname} opens when its tasks have ended", after_s=1)
    await machine.run("rm", "-f", CLOSED)
    await machine.run_all(units.enable(UNIT), *([] if view.runs else [units.restart(UNIT)]))


async def close(machine: Machine) -> None:
    """Take no new tasks. Ray ends the node when the present ones have ended."""
    await machine.put(CLOSED, "")
    ran = await machine.run("python3", PROGRAM, "drain", check=False)
    if ran.exit_status != 0:
        raise Temporary(f"Ray did not accept the drain of {machine.hostname}: {ran.stderr.strip()[-300:]}")


async def stop(machine: Machine) -> None:
    """End Ray on the machine. It stays closed after a restart of the machine."""
    await machine.put(CLOSED, "")
    await machine.run_all(units.stop(UNIT))


async def look(machine: Machine, role: str, address: str) -> View:
    """Return what Ray does on the machine now. If that cannot be read while Ray may run, it is not idle."""
    urls = (f"http://{address}:52365/api/local_raylet_healthz", f"{DASHBOARD}/api/gcs_healthz")
    ran = await machine.run("python3", PROGRAM, "look", *urls[: 2 if role == "head" else 1], check=False)
    if ran.exit_status == 0:
        return msgspec.json.decode(ran.stdout, type=View)
    active = await machine.run("systemctl", "is-active", UNIT, check=False)
    if active.exit_status not in (3, 4) or await machine.exists(PROGRAM):  # 3: it does not run, 4: there is no unit
        raise Temporary(f"cannot look at Ray on {machine.hostname}: {ran.stderr.strip()[-300:]}")
    return View()


async def api(machine: Machine, method: str, path: str, body: object = None) -> Any:
    """Call the API of the dashboard on the head and return its answer."""
    ran = await machine.run("python3", PROGRAM, method, DASHBOARD + path, input=json.dumps(body), check=False)
    if ran.exit_status != 0:
        raise Temporary(f"the dashboard of Ray does not answer: {ran.stderr.strip()[-500:]}")
    return json.loads(ran.stdout)
