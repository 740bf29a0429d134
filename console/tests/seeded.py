"""A platform with the demo app at work, and a console in front of it: what the tests and the screenshots look at."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from clouds import TESTS, Cli, Server, answers, at_work, end, until
from gpuaas_console.changes import CHANGES
from gpuaas_console.controls import ACTS
from gpuaas_console.pages import records
from gpuaas_sdk.testing import free_port

PROGRAMS = Path(sys.executable).parent
REDIRECT = "http://127.0.0.1:1/signed-in"
"""Where the identity provider sends browsers; the tests take the answer from the address."""
LONG = "a-name-that-is-as-long-as-a-name-can-be-and-has-no-place-to-wra"
"""63 characters, the longest name of most resources."""
MACHINES = [*(f"gpu-{number}" for number in range(1, 10)), LONG]


@dataclass(frozen=True)
class Console:
    url: str
    links: Path
    cli: Cli
    server: Server
    project_id: str
    log: Path

    @property
    def controller_pid(self) -> int:
        return int((self.log.parent / "controller.pid").read_text())

    def link(self, token: str) -> str:
        """Return a one-time sign-in link for a token."""
        words = [str(PROGRAMS / "gpuaas-console"), "link", "--links", str(self.links), "--url", self.url]
        return subprocess.run(words, input=token, capture_output=True, text=True, check=True).stdout.strip()

    def token(self) -> str:
        """Return the token of the signed-in command line."""
        config = json.loads((self.cli.home / "config.json").read_text())
        return str(config["contexts"][config["current"]]["token"])


@contextlib.contextmanager
def demo_at_work(cli: Cli, server: Server, folder: Path, *, gpus: int = 0) -> Iterator[str]:
    """Six nodes with allocations, a controller of the demo app, and an instance named `lab`. Yield the project's id."""
    cli("login", "--server", server.url, "--name", "admin", given=f"{server.password}\n")
    cli("org", "create", "acme", "--admin", "admin")
    cli("project", "create", "research", "--org", "acme")
    with at_work(cli, server, MACHINES, gpus=gpus):
        for name in MACHINES[:5]:
            cli("allocation", "request", "--node", name, "--wait")
        cli("app", "register", str(TESTS / "demo_manifest.yaml"))
        cli("app", "publish", "demo", "1.0.0")
        cli("app", "entitle", "demo")
        key = folder / "demo.json"
        cli("service-account", "create", "demo-controller", "--app", "demo", "--key-file", str(key))
        project_id = str(cli("get", "project", "research", "-o", "json").json["project_id"])
        where = ["--server", server.url, "--project", project_id, "--credentials", str(key), "--name", "demo-1"]
        with (folder / "controller.log").open("w") as log:
            words = [sys.executable, str(TESTS / "demo_app.py"), "run", *where]
            controller = subprocess.Popen(words, stdout=log, stderr=log)
        (folder / "controller.pid").write_text(str(controller.pid))
        try:
            machines = ["--set", "head_allocation=gpu-1", "--set", "worker_allocations=gpu-2,gpu-3"]
            cli("deploy", "demo", "--name", "lab", "--topology", "split", "--set", "behaviour=fail_add", *machines)
            yield project_id
        finally:
            end(controller)


@contextlib.contextmanager
def console(cli: Cli, server: Server, project_id: str, folder: Path, *options: str) -> Iterator[Console]:
    port, links, log = free_port(), folder / "links", folder / "console.log"
    words = [str(PROGRAMS / "gpuaas-console"), "run", "--server", server.url, "--listen", f"127.0.0.1:{port}"]
    with log.open("w") as file:
        process = subprocess.Popen([*words, "--links", str(links), *options], stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/healthz"), "the console is ready")
        yield Console(url, links, cli, server, project_id, log)
    finally:
        end(process)


def failed_add(console: Console) -> str:
    """Return the id of the last operation that added a worker to `lab`."""
    rows = console.cli("get", "operations", "--instance", "lab", "-o", "json").json["items"]
    return str(next(row["operation_id"] for row in reversed(rows) if row["kind"] == "add"))


def every_page(console: Console, failed_add: str) -> dict[str, str]:
    """Return the address of every list, every change and every act, and one page of each other kind."""
    project = f"/p/{console.project_id}"
    lists = [plural for plurals in records.GROUPS.values() for plural in plurals]
    return {
        **pages(console, failed_add),
        **{f"list-{plural}": f"{project}/records/{plural}?wide=1" for plural in lists},
        **{f"change-{name}": f"{project}/change/{name}?target=lab&within=lab" for name in CHANGES},
        **{f"act-{verb}": f"{project}/instances/lab/act?verb={verb}" for verb in ACTS},
        "action-greet": f"{project}/instances/lab/actions/greet",
        "home-filtered": "/?q=nothing-has-this-name&sort=age",
        "members-filtered": f"{project}/instances/lab?of_role=worker&of_status=failed",
    }


def pages(console: Console, failed_add: str) -> dict[str, str]:
    """Return the address of one page of each kind."""
    project = f"/p/{console.project_id}"
    rows = console.cli("get", "operations", "-o", "json").json["items"]
    correlation = next(row["correlation_id"] for row in rows if row["operation_id"] == failed_add)
    [controller, *_] = console.cli("get", "controllers", "-o", "json").json["items"]
    return {
        "home": "/",
        "instance": f"{project}/instances/lab",
        "operation": f"{project}/operations/{failed_add}",
        "exit": f"{project}/operations/{failed_add}/exit/retry",
        "act": f"{project}/instances/lab/act?verb=add",
        "action": f"{project}/instances/lab/actions/guests.list",
        "catalog": f"{project}/catalog",
        "app": f"{project}/catalog/demo/1.0.0",
        "deploy": f"{project}/catalog/demo/1.0.0/deploy",
        "change": f"{project}/change/grant-role",
        "change-policy": f"{project}/change/set-policy",
        "enrol": f"{project}/change/enrol-node",
        "service-accounts": f"{project}/records/service-accounts",
        "events": f"{project}/records/events",
        "records": f"{project}/records",
        "nodes": f"{project}/records/nodes",
        "triage": f"{project}/triage?correlation_id={correlation}",
        "triage-empty": f"{project}/triage",
        "audit": f"{project}/records/audit",
        "change-org-policy": f"{project}/change/set-org-policy",
        "failure": f"{project}/instances/nothing-has-this-name",
        "policy": f"{project}/policy?region=local",
        "sessions": "/sessions",
        "controller": f"{project}/controllers?controller_id={quote(controller['controller_id'], safe='')}",
    }
