"""One member of etcd on its machine: files, commands and what they print. Each function is safe to repeat."""

from typing import Any

import msgspec
from gpuaas_sdk.certificates import Authority
from gpuaas_sdk.checks import Check
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import File, Machine, commands

from gpuaas_app_etcd import checks, plan
from gpuaas_app_etcd.settings import SNAPSHOT_S
from gpuaas_app_etcd.workload.footprint import DATA, DROP_IN, FOLDER, SNAPSHOTS, UNIT, UNPACKED

CA, CERTIFICATE, KEY = f"{FOLDER}/ca.crt", f"{FOLDER}/member.crt", f"{FOLDER}/member.key"
CTL = ("etcdctl", f"--cacert={CA}", f"--cert={CERTIFICATE}", f"--key={KEY}")
_TLS = {"CERT_FILE": CERTIFICATE, "KEY_FILE": KEY, "TRUSTED_CA_FILE": CA, "CLIENT_CERT_AUTH": "true"}
_METRICS = "http://127.0.0.1:2381"
# Health checks run as a user without rights, who cannot read the key. So etcd answers this question without TLS, on its
# own machine only. The proxy of the machine must not be asked.
_HEALTH = f"""import urllib.request as r, urllib.error as e
try: print(r.build_opener(r.ProxyHandler({{}})).open("{_METRICS}/health", timeout=5).read().decode())
except e.HTTPError as error: print(error.read().decode())
except OSError: print('{{"health":"false","reason":"it does not answer"}}')"""


async def put_tls(machine: Machine, authority: Authority, name: str, address: str) -> None:
    """Write what the member proves its identity with."""
    issued = authority.issue(name, [address, "127.0.0.1", "localhost"])
    key = File(KEY, issued.key, mode=0o640, owner="root:etcd")
    await machine.put_all([File(CA, authority.certificate), File(CERTIFICATE, issued.certificate), key])


async def configure(machine: Machine, name: str, address: str, cluster: str, token: str, state: str) -> None:
    """Write the configuration. etcd reads what begins with INITIAL at its first start only."""
    peer, client = plan.url(address), plan.url(address, plan.CLIENT_PORT)
    values = {"NAME": name, "DATA_DIR": DATA, "LISTEN_PEER_URLS": peer, "INITIAL_ADVERTISE_PEER_URLS": peer}
    values |= {"LISTEN_CLIENT_URLS": f"{client},{plan.url('127.0.0.1', plan.CLIENT_PORT)}"}
    values |= {"ADVERTISE_CLIENT_URLS": client, "LISTEN_METRICS_URLS": _METRICS, "INITIAL_CLUSTER": cluster}
    values |= {"INITIAL_CLUSTER_TOKEN": token, "INITIAL_CLUSTER_STATE": state}
    values |= {f"{prefix}{key}": value for prefix in ("", "PEER_") for key, value in _TLS.items()}
    lines = "".join(f"ETCD_{key}={value}\n" for key, value in values.items())
    drop_in = f"[Service]\nEnvironmentFile={FOLDER}/etcd.env\nRestart=on-failure\nRestartSec=1\n"
    await machine.put_all([File(f"{FOLDER}/etcd.env", lines), File(f"{DROP_IN}/gpuaas.conf", drop_in)])


async def start(machine: Machine) -> None:
    """Start the member and do not wait: it serves when enough others have started."""
    await machine.run_all(units.enable(UNIT), units.RELOAD, commands.run("systemctl", "start", "--no-block", UNIT))


async def restart(machine: Machine, cause: str) -> None:
    await machine.run_all(units.RELOAD, units.restart_once(UNIT, cause, 120), timeout_s=120)


async def stop(machine: Machine) -> None:
    await machine.run_all(units.stop(UNIT, timeout_s=120), timeout_s=120)


async def clear(machine: Machine) -> None:
    """Stop the member and delete its data, so that it can join as a new one."""
    await stop(machine)
    await machine.run("rm", "-rf", DATA)


async def healthy(machine: Machine) -> Check:
    ran = await machine.run("python3", "-c", _HEALTH)
    return checks.healthy(machine.hostname, msgspec.json.decode(ran.stdout, type=dict[str, Any]))


async def version(machine: Machine) -> str:
    """Return the version of the program that runs."""
    return str(msgspec.json.decode(await control(machine, "endpoint", "status", "-w", "json"))[0]["Status"]["version"])


async def peers(machine: Machine) -> tuple[plan.Peer, ...]:
    listed = msgspec.json.decode(await control(machine, "member", "list", "-w", "json"))
    return msgspec.convert(listed["members"], tuple[plan.Peer, ...])


async def control(machine: Machine, *argv: str, timeout_s: float = 60) -> str:
    """Run etcdctl. etcd refuses a change of members while one is away or too new, so a retry can help."""
    ran = await machine.run(*CTL, *argv, check=False, timeout_s=timeout_s)
    if ran.exit_status != 0:
        error = (ran.stderr.strip() or ran.stdout.strip())[-300:]
        raise Temporary(f"etcd on {machine.hostname} refuses `{' '.join(argv[:2])}` now: {error}", after_s=1.0)
    return ran.stdout


async def save(machine: Machine, name: str) -> dict[str, Any]:
    """Save a snapshot, unless it exists, and return its row. etcdctl gives the file its name when it is complete."""
    path = f"{SNAPSHOTS}/{name}"
    await machine.run("install", "-d", "-m", "0700", SNAPSHOTS)
    if not await machine.exists(path):
        await control(machine, "snapshot", "save", path, timeout_s=SNAPSHOT_S)
    ran = await machine.run("etcdutl", "snapshot", "status", path, "-w", "json", timeout_s=SNAPSHOT_S)
    seen = msgspec.json.decode(ran.stdout, type=dict[str, Any])
    values = {"revision": seen["revision"], "keys": seen["totalKey"], "size": seen["totalSize"]}
    return {"snapshot": name, "machine": machine.hostname, "path": path} | values


async def discard(machine: Machine, name: str) -> None:
    await machine.run("rm", "-f", f"{SNAPSHOTS}/{name}", f"{SNAPSHOTS}/{name}.part")


async def unpack(machine: Machine, snapshot: str, name: str, address: str, token: str) -> None:
    """Make the data of a new cluster from the snapshot, beside the present data: a damaged file must change nothing."""
    cluster, path = plan.initial_cluster((), {plan.url(address): name}), f"{SNAPSHOTS}/{snapshot}"
    names = (f"--name={name}", f"--initial-cluster={cluster}", f"--initial-advertise-peer-urls={plan.url(address)}")
    flags = (*names, f"--initial-cluster-token={token}", f"--data-dir={UNPACKED}")
    await machine.run("rm", "-rf", UNPACKED)
    await machine.run("etcdutl", "snapshot", "restore", path, *flags, timeout_s=SNAPSHOT_S)
    await machine.run("chown", "-R", "etcd:etcd", UNPACKED)


async def restore(machine: Machine, name: str, address: str, token: str) -> None:
    """Put the unpacked data in the place of the present data. The member is then the only one of a new cluster."""
    if await machine.exists(UNPACKED):  # otherwise it was moved before a crash
        await clear(machine)
        await machine.run("mv", UNPACKED, DATA)
    await configure(machine, name, address, plan.initial_cluster((), {plan.url(address): name}), token, "new")
