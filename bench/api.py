"""Durable POST, GET and list of 100 through the full edge against the bare floor: one store, interleaved."""

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

CONNECTIONS = (1, 16, 64)
REPEATS = 3
SECONDS = 2
_LUA = Path(__file__).with_name("wrk.lua")


def run() -> None:
    _install_wrk()
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        ours, floor = Path(folder, "ours"), Path(folder, "floor")
        token_of = admin_password(ours)
        platform = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(ours)]
        platform += ["--rate-limit-per-s", "0"]  # one caller sends everything here
        with (
            process([*platform, "--listen", "127.0.0.1:7171"], 7171) as _,
            process([sys.executable, "-m", "bench.floor", str(floor), "7172"], 7172) as _,
        ):
            token = login(token_of, 7171)
            print(
                f"{'':24}{'ours /s':>10}{'floor /s':>10}{'ratio':>8}   (median of {REPEATS} x {SECONDS} s, interleaved)"
            )
            for case in _cases(token):
                for connections in CONNECTIONS:
                    _compare(case, connections, token)


@dataclass(frozen=True)
class Case:
    title: str
    ours: str
    floor: str
    post: bool = False


def _cases(token: str) -> list[Case]:
    api, floor = "http://127.0.0.1:7171/api/v1", "http://127.0.0.1:7172"
    account_path = _make_account(api, token)
    org_id = httpx.post(floor, json={"name": "one"}).json()["org_id"]
    return [
        Case("durable POST", f"{api}/orgs", f"{floor}/", post=True),
        Case("GET of one", f"{api}{account_path}", f"{floor}/one/{org_id}"),
        Case("list of 100", f"{api}/orgs?page_size=100", f"{floor}/"),
    ]


def _make_account(api: str, token: str) -> str:
    """A service account to read: its route asks for a permission inside a project."""

    def create(path: str, name: str) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {token}", "X-Idempotency-Key": uuid.uuid4().hex}
        made: dict[str, str] = httpx.post(f"{api}{path}", json={"name": name}, headers=headers).json()
        return made

    org = create("/orgs", "bench")
    project = create(f"/orgs/{org['org_id']}/projects", "bench")
    accounts = f"/projects/{project['project_id']}/service-accounts"
    return f"{accounts}/{create(accounts, 'reader')['service_account_id']}"


def _compare(case: Case, connections: int, token: str) -> None:
    rates: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(REPEATS):
        rates["ours"].append(_wrk(case.ours, connections, token, post=case.post))
        rates["floor"].append(_wrk(case.floor, connections, token, post=case.post))
    ours_rate, floor_rate = statistics.median(rates["ours"]), statistics.median(rates["floor"])
    title = f"{case.title}, c={connections}"
    print(f"{title:24}{ours_rate:10.0f}{floor_rate:10.0f}{ours_rate / floor_rate:8.2f}", flush=True)


def _wrk(url: str, connections: int, token: str, *, post: bool) -> float:
    environment = {**os.environ, "BENCH_TOKEN": token, "BENCH_RUN": uuid.uuid4().hex[:12]}
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s"]
    if post:
        command += ["-s", str(_LUA)]
    else:
        command += ["-H", f"Authorization: Bearer {token}"]
    said = subprocess.run([*command, url], env=environment, capture_output=True, text=True, check=True).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    if failed:
        raise SystemExit(f"bench: {failed[1]} requests to {url} were refused; the numbers would mean nothing")
    found = re.search(r"Requests/sec:\s+([\d.]+)", said)
    if not found:
        raise SystemExit(f"bench: wrk said nothing to read:\n{said}")
    return float(found[1])


class process:
    def __init__(self, command: list[str], port: int) -> None:
        self._command, self._port = ["taskset", "-c", "0", *command], port

    def __enter__(self) -> None:
        self._child = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self._port}/livez")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise SystemExit(f"bench: nothing answers on port {self._port}")

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        self._child.wait(10)


def admin_password(data: Path) -> str:
    command = [sys.executable, "-m", "gpuaas_platform.main", "admin", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def login(password: str, port: int) -> str:
    body = {"name": "admin", "password": password}
    return str(httpx.post(f"http://127.0.0.1:{port}/api/v1/auth/login", json=body).json()["access_token"])


def _install_wrk() -> None:
    if shutil.which("wrk"):
        return
    print("installing wrk (load generator) with apt …", file=sys.stderr)
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "wrk"], check=True, stdout=subprocess.DEVNULL)
