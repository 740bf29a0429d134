"""Durable POST and list of 100 through the full edge against the bare floor: same store, same machine, interleaved."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
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
            for connections in CONNECTIONS:
                _compare(f"durable POST, c={connections}", connections, token, post=True)
            for connections in CONNECTIONS:
                _compare(f"list of 100, c={connections}", connections, token, post=False)


def _compare(title: str, connections: int, token: str, *, post: bool) -> None:
    rates: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(REPEATS):
        ours = "http://127.0.0.1:7171/api/v1/orgs"
        rates["ours"].append(_wrk(ours, connections, token, post=post))
        rates["floor"].append(_wrk("http://127.0.0.1:7172/", connections, token, post=post))
    ours_rate, floor_rate = statistics.median(rates["ours"]), statistics.median(rates["floor"])
    print(f"{title:24}{ours_rate:10.0f}{floor_rate:10.0f}{ours_rate / floor_rate:8.2f}")


def _wrk(url: str, connections: int, token: str, *, post: bool) -> float:
    environment = {**os.environ, "BENCH_TOKEN": token, "BENCH_RUN": uuid.uuid4().hex[:12]}
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s"]
    if post:
        command += ["-s", str(_LUA)]
    else:
        command += ["-H", f"Authorization: Bearer {token}"]
        url = f"{url}?page_size=100" if "api" in url else url
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
