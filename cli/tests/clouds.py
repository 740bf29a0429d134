"""A real server process, the real `gpuaas` executable, nodes that answer over the node API, and a real controller. The
tests of the console use them too."""

import base64
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import preloaded
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_agent import signer
from gpuaas_sdk.testing import free_port

TESTS = Path(__file__).parent
PROGRAMS = Path(sys.executable).parent
COMMAND = preloaded.Program(str(PROGRAMS / "gpuaas"), "gpuaas_cli.main", first=("node", "health", "--help"))
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """The executable with a home of its own."""

    home: Path

    def __call__(self, *words: str, given: str = "", expect: int | None = 0, **environment: str) -> Ended:
        full = self.full_environment(**environment)
        ended = preloaded.run(COMMAND, words, given=given, environment=full, timeout_s=90)
        if expect is not None:
            assert ended.returncode == expect, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def full_environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        return {**kept, "GPUAAS_HOME": str(self.home), "COLUMNS": "100", **more}


@dataclass(frozen=True)
class Server:
    url: str
    password: str


@pytest.fixture(scope="session")
def release_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private key that signs releases of the agent; the server has its public key."""
    path = tmp_path_factory.mktemp("offline") / "release.key"
    signer.create_key(path)
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, release_key: Path) -> Iterator[Server]:
    logs, traces = "https://logs.example/q?id={correlation_id}", "https://traces.example/{trace_id}"
    links = ("--log-url-template", logs, "--trace-url-template", traces)
    with serving(tmp_path_factory.mktemp("server"), "--agent-release-key", f"{release_key}.pub", *links) as running:
        yield running


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts sealed, and lets people sign in through an identity provider."""
    with identity_provider() as issuer:
        client = ("--oidc-client-id", "gpuaas", "--oidc-redirect-url", "http://127.0.0.1:1/signed-in")
        with serving(tmp_path_factory.mktemp("guarded"), "--sealed", "--oidc-issuer", issuer, *client) as running:
            yield running


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    data = ["--data", str(folder / "data")]
    admin = subprocess.run(
        [str(PROGRAMS / "gpuaas-platform"), "admin", *data], capture_output=True, text=True, check=True
    )
    port = free_port()
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(PROGRAMS / "gpuaas-platform"), "server", *data, "--listen", f"127.0.0.1:{port}", *options],
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the server is ready")
        yield Server(f"http://127.0.0.1:{port}", admin.stdout.strip())
    finally:
        end(process)


@contextlib.contextmanager
def identity_provider() -> Iterator[str]:
    """The provider of the platform's own tests, in a process of its own."""
    program, port = TESTS.parents[1] / "platform" / "tests" / "oidc_provider.py", free_port()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(program), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    issuer = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{issuer}/.well-known/openid-configuration"), "the provider is ready")
        yield issuer
    finally:
        end(process)


@pytest.fixture(scope="session")
def cli(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Signed in, with an organisation and a project."""
    cli = Cli(tmp_path_factory.mktemp("home"))
    cli("login", "--server", server.url, "--name", "admin", given=f"{server.password}\n")
    cli("org", "create", "acme", "--admin", "admin")
    cli("project", "create", "research", "--org", "acme")
    return cli


@pytest.fixture
def stranger(tmp_path: Path) -> Cli:
    """A home without settings."""
    return Cli(tmp_path / "home")


@pytest.fixture(scope="session")
def cloud(cli: Cli, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Six nodes with allocations and a controller of the demo app at work."""
    names = [f"gpu-{number}" for number in range(1, 7)]
    with at_work(cli, server, names):
        for name in names:
            cli("allocation", "request", "--node", name, "--wait")
        cli("app", "register", str(TESTS / "demo_manifest.yaml"))
        cli("app", "publish", "demo", "1.0.0")
        cli("app", "entitle", "demo")
        key = tmp_path_factory.mktemp("keys") / "demo.json"
        cli("service-account", "create", "demo-controller", "--app", "demo", "--key-file", str(key))
        project_id = cli("get", "project", "research", "-o", "json").json["project_id"]
        log = (key.parent / "controller.log").open("w")
        where = ["--server", server.url, "--project", project_id, "--credentials", str(key), "--name", "demo-1"]
        controller = subprocess.Popen(
            [sys.executable, str(TESTS / "demo_app.py"), "run", *where], stdout=log, stderr=log
        )
        try:
            yield cli
        finally:
            end(controller)
            log.close()


@pytest.fixture(scope="module")
def spare(cli: Cli, server: Server) -> Iterator[Cli]:
    """Two more nodes, which are not allocated; removed at the end."""
    names = ["spare-1", "spare-2"]
    with at_work(cli, server, names):
        yield cli
        for allocation in cli("allocation", "list", "-o", "json").json["items"]:
            if allocation["node_name"] in names:
                cli("allocation", "release", allocation["allocation_id"], "--wait")
        cli("node", "retire", *names, "--reason", "test is over")


@pytest.fixture(scope="module")
def fleet(cli: Cli, server: Server) -> Iterator[Cli]:
    """Three nodes sold as `fleet`, the last of which keeps the agent it has; gone at the end."""
    names = ["fleet-1", "fleet-2", "stubborn-1"]
    with at_work(cli, server, names):
        cli("node", "set", *names, "--sku", "fleet", "--reason", "for agents")
        yield cli
        cli("node", "retire", *names, "--reason", "test is over")


@contextlib.contextmanager
def at_work(cli: Cli, server: Server, names: Sequence[str], *, gpus: int = 0) -> Iterator[None]:
    stop = threading.Event()
    nodes = [Node(server.url, name, cli("node", "token", name).out.strip(), gpus) for name in names]
    threads = [threading.Thread(target=node.work, args=(stop,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)


class Node:
    """What an agent does on the wire, without a machine: enrol, beat, take tasks and call them done. One whose name
    begins with `stubborn` keeps the agent it has."""

    def __init__(self, server: str, name: str, token: str, gpus: int = 0) -> None:
        self.name = name
        self._server = server
        self._key = Ed25519PrivateKey.generate()
        self._agent = {"agent_version": "0.1.0", "agent_sha256": ""}
        self._facts = {
            "hostname": name,
            "cpus": 8,
            "memory_mb": 64000,
            "addresses": ["192.0.2.10"],
            "gpus": [{"index": number, "type": "simulated", "device": f"/dev/gpu{number}"} for number in range(gpus)],
        }
        public = self._key.public_key()
        pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        ssh = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        body = {
            "token": token,
            "name": name,
            "public_key_pem": pem.decode(),
            "ssh_host_public_key": ssh.decode(),
            "facts": self._facts,
        }
        self._node_id = self._send("POST", "/node/v1/enrol", body)["node_id"]
        self._token = self._login()

    def work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._beat()
                task = self._send("GET", "/node/v1/tasks?wait_s=2")["task"]
                if task:
                    payload = json.loads(task["payload"])
                    self._send("POST", f"/node/v1/tasks/{payload['task_id']}/result", self._done(payload))
            except OSError:  # refused, cut off, or not in time
                stop.wait(0.2)

    def _beat(self) -> None:
        self._send("PUT", "/node/v1/status", {**self._agent, "boot_id": "boot", "facts": self._facts})

    def _done(self, task: dict[str, Any]) -> dict[str, Any]:
        if task["type"] == "agent.upgrade":
            return self._upgraded(task["params"]["sha256"])
        checks = [{"name": "disk has room", "ok": not self.name.startswith("stubborn"), "message": "seen by a test"}]
        answers = {"host.facts": self._facts, "host.health": {"ok": checks[0]["ok"], "checks": checks}}
        return {"status": "succeeded", "result": answers.get(task["type"], {})}

    def _upgraded(self, sha256: str) -> dict[str, Any]:
        if self.name.startswith("stubborn"):
            error = {"code": "agent_did_not_report", "message": "version 0.1.0 stays; the new agent did not report"}
            return {"status": "failed", "error": error}
        self._agent = {"agent_version": "0.2.0", "agent_sha256": sha256}
        # Like the real agent: the new one sends a heartbeat before it reports that it took over.
        self._beat()
        return {"status": "succeeded", "result": {"sha256": sha256, "version": "0.2.0"}}

    def _login(self) -> str:
        moment, nonce = int(time.time()), secrets.token_hex(8)
        proof = f"gpuaas-node-token\n{self._node_id}\n{moment}\n{nonce}"
        signature = base64.b64encode(self._key.sign(proof.encode())).decode()
        body = {"node_id": self._node_id, "timestamp_s": moment, "nonce": nonce, "signature": signature}
        return str(self._send("POST", "/node/v1/token", body)["access_token"])

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "X-Idempotency-Key": secrets.token_hex(8)}
        if hasattr(self, "_token"):
            headers["Authorization"] = f"Bearer {self._token}"
        content = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._server + path, data=content, method=method, headers=headers)
        with _DIRECT.open(request, timeout=30) as answer:
            return json.loads(answer.read())


def until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    ends_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_at, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


@pytest.fixture(name="until", scope="session")
def until_fixture() -> Callable[..., None]:
    return until


@pytest.fixture(name="free_port")
def free_port_fixture() -> int:
    return free_port()


def end(process: "subprocess.Popen[Any]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        with _DIRECT.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
