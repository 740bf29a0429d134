"""Compare a durable POST, a GET and a list of 100 items of the platform with those of a minimal server, the floor.

Both are measured in turns, each with its own store. The POST creates a service account, which needs a token, a
permission in a project, an idempotency key and an audit row in the organisation's chain. Both write the same rows: the
account, the audit row, and the response that is stored for repeated requests.
The processor time per request is printed too, because other work on the machine affects it less than the rate.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.floor import ORGS

CONNECTIONS = (1, 16, 64)
REPEATS = 3
SECONDS = 2
START_TIMEOUT_S = 60
_LUA = Path(__file__).with_name("wrk.lua")


def run() -> None:
    install_wrk()
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        data = Path(folder, "platform")
        password = admin_password(data)
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(data)]
        command += ["--rate-limit-per-s", "0"]  # one caller sends all requests of the benchmark
        with (
            process([*command, "--listen", "127.0.0.1:7171"], 7171) as platform,
            process([sys.executable, "-m", "bench.floor", str(Path(folder, "floor")), "7172"], 7172) as floor,
        ):
            token = login(password, 7171)
            print(
                f"{'':24}{'platform':>19}{'floor':>19}{'ratio of':>14}   (median of {REPEATS} x {SECONDS} s, in turns)"
            )
            print(f"{'':24}{'/s':>10}{'CPU us':>9}{'/s':>10}{'CPU us':>9}{'/s':>7}{'CPU':>7}")
            for case in _cases(token):
                for connections in CONNECTIONS:
                    _compare(case, connections, token, platform, floor)


@dataclass(frozen=True)
class Case:
    title: str
    platform: str
    floor: str
    post: bool = False


def _cases(token: str) -> list[Case]:
    api, floor = "http://127.0.0.1:7171/api/v1", "http://127.0.0.1:7172"
    accounts_path = _make_project(api, token)
    account_id = _create(api, token, accounts_path, "reader")["service_account_id"]
    floor_id = httpx.post(floor, json={"name": "reader"}).json()["service_account_id"]
    return [
        Case("durable POST", f"{api}{accounts_path}", f"{floor}/", post=True),
        Case("GET of one", f"{api}{accounts_path}/{account_id}", f"{floor}/one/{floor_id}"),
        Case("list of 100", f"{api}/orgs?page_size=100", f"{floor}/"),
    ]


def _make_project(api: str, token: str) -> str:
    """Make as many organisations as the floor has, and a project in the last one. Return the path of its accounts."""
    for number in range(ORGS):
        org = _create(api, token, "/orgs", f"org-{number}", first_admin="admin")
    project = _create(api, token, f"/orgs/{org['org_id']}/projects", "bench")
    return f"/projects/{project['project_id']}/service-accounts"


def _create(api: str, token: str, path: str, name: str, **more: str) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {token}", "X-Idempotency-Key": uuid.uuid4().hex}
    created: dict[str, str] = httpx.post(f"{api}{path}", json={"name": name, **more}, headers=headers).json()
    return created


@dataclass(frozen=True)
class Measured:
    rate: float
    """Requests per second."""
    cpu_us: float
    """Processor time of the server per request."""


def _compare(case: Case, connections: int, token: str, platform: "process", floor: "process") -> None:
    runs: list[tuple[Measured, Measured]] = []
    for _ in range(REPEATS):
        by_platform = _measure(platform, case.platform, connections, token, post=case.post)
        runs.append((by_platform, _measure(floor, case.floor, connections, token, post=case.post)))
    first, second = (_median([run[side] for run in runs]) for side in (0, 1))
    title = f"{case.title}, c={connections}"
    numbers = f"{first.rate:10.0f}{first.cpu_us:9.0f}{second.rate:10.0f}{second.cpu_us:9.0f}"
    print(f"{title:24}{numbers}{first.rate / second.rate:7.2f}{second.cpu_us / max(first.cpu_us, 1):7.2f}", flush=True)


def _median(measured: list[Measured]) -> Measured:
    rates, cpu_us = [run.rate for run in measured], [run.cpu_us for run in measured]
    return Measured(statistics.median(rates), statistics.median(cpu_us))


def _measure(server: "process", url: str, connections: int, token: str, *, post: bool) -> Measured:
    cpu_s_before = server.cpu_s()
    output = wrk(url, connections, token, post=post)
    used_s = server.cpu_s() - cpu_s_before
    rate, count = re.search(r"Requests/sec:\s+([\d.]+)", output), re.search(r"(\d+) requests in", output)
    if not rate or not count:
        raise SystemExit(f"bench: the output of wrk cannot be read:\n{output}")
    return Measured(float(rate[1]), used_s / int(count[1]) * 1_000_000)


def wrk(url: str, connections: int, token: str, *, post: bool, core: int | None = 1, seconds: int = SECONDS) -> str:
    """Load one server and return the report. `core` is the only one that the load may use; None: any."""
    environment = {**os.environ, "BENCH_TOKEN": token, "BENCH_RUN": uuid.uuid4().hex[:12]}
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    command = [*pinned, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    if post:
        command += ["-s", str(_LUA)]
    else:
        command += ["-H", f"Authorization: Bearer {token}"]
    output = subprocess.run([*command, url], env=environment, capture_output=True, text=True, check=True).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    if failed:
        raise SystemExit(f"bench: {failed[1]} requests to {url} failed, so the measurement is not valid")
    return output


class process:
    def __init__(self, command: list[str], port: int, core: int | None = 0) -> None:
        """`core` is the only one that the process may use; None: any."""
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        self._command, self._port = [*pinned, *command], port

    def __enter__(self) -> "process":
        self._child = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                httpx.get(f"http://127.0.0.1:{self._port}/livez")
                return self
            except httpx.TransportError:
                time.sleep(0.05)
        self.__exit__()
        raise SystemExit(f"bench: no server answered on port {self._port} within {START_TIMEOUT_S} s")

    @property
    def pid(self) -> int:
        return self._child.pid

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def kill(self) -> None:
        self._child.kill()

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        self._child.wait(10)


def cpu_s(pid: int) -> float:
    """Return the user and system processor time that a process has used so far."""
    fields_after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields_after_name[11]) + int(fields_after_name[12])) / os.sysconf("SC_CLK_TCK")


def admin_password(data: Path, database_url: str = "") -> str:
    command = [sys.executable, "-m", "gpuaas_platform.main", "admin", "--data", str(data)]
    command += ["--database", database_url] if database_url else []
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def login(password: str, port: int, name: str = "admin") -> str:
    body = {"name": name, "password": password}
    return str(
        httpx.post(f"http://127.0.0.1:{port}/api/v1/auth/login", json=body, timeout=START_TIMEOUT_S).json()[
            "access_token"
        ]
    )


def install_wrk() -> None:
    if shutil.which("wrk"):
        return
    print("installing wrk (load generator) with apt …", file=sys.stderr)
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "wrk"], check=True, stdout=subprocess.DEVNULL)
