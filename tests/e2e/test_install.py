"""A fresh Debian machine becomes a server by the commands of `docs/how-to/install.md`, and stays one."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.machines

ROOT = Path(__file__).parents[2]
LAB, MACHINE, USER_HOME = "e2einstall", "gpu-1", "/root"
PARTS = ("contract", "sdk", "platform", "agent", "apps/slurm", "cli", "console")
DATABASE = "/var/lib/gpuaas-platform/gpuaas.sqlite"


@dataclass(frozen=True)
class Server:
    """The machine, and the documented commands for it."""

    address: str
    bundle: str

    def documented(self, heading: str) -> str:
        """Return the commands of a section for this machine."""
        section = (ROOT / "docs/how-to/install.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
        commands = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))
        return commands.replace("10.0.0.5", self.address).replace("gpuaas-0.1.0-python3.13-x86_64", self.bundle)

    def run(self, script: str, *, check: bool = True) -> str:
        environment = f"HOME={USER_HOME}; export HOME; cd; "
        done = lab("exec", MACHINE, "--", "sh", "-euc", environment + script)
        sys.stdout.write(f"$ {script}\n{done.stdout}{done.stderr}\n")
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout + done.stderr

    def release(self) -> str:
        """Return the release that the running server was started from."""
        shown = self.run("tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID gpuaas-platform)/cmdline")
        return shown.splitlines()[0]


def lab(*arguments: str, stdin: Path = Path(os.devnull)) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuaas_lab.main", arguments[0], "--lab", LAB, *arguments[1:]]
    with stdin.open("rb") as stream:
        return subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle for the lab's machines. Most of its time is the download of the locked packages."""
    folder = tmp_path_factory.mktemp("bundle") / "dist"
    environment = {**os.environ, "DIST": str(folder)}
    subprocess.run([str(ROOT / "tools/wheels"), *PARTS], env=environment, check=True)
    subprocess.run([str(ROOT / "tools/bundle")], env=environment, check=True)
    (made,) = folder.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Server]:
    lab("down", "--purge")
    try:
        assert lab("up", "--nodes", "1", "--gpus", "0").returncode == 0
        made = Server(lab("address", MACHINE).stdout.strip(), bundle.name.removesuffix(".tar.gz"))
        copied = lab("exec", MACHINE, "--", "sh", "-c", f"cat > {USER_HOME}/{bundle.name}", stdin=bundle)
        assert copied.returncode == 0, copied.stderr
        made.run(made.documented("One server"))
        yield made
    finally:
        assert lab("down", "--purge").returncode == 0


def test_the_documented_commands_make_a_private_server(server: Server) -> None:
    assert "demo" in server.run("gpuaas get projects")
    assert server.run("stat -c '%U %a' /var/lib/gpuaas-platform").split() == ["gpuaas", "700"]
    assert server.run("systemctl show -P User gpuaas-platform").strip() == "gpuaas"
    assert server.run("/opt/gpuaas/venv/bin/python -c 'import pytest'", check=False).strip().endswith("'pytest'")


def test_installing_again_changes_nothing(server: Server) -> None:
    before = server.run("systemctl show -P MainPID gpuaas-platform")
    output = server.run("gpuaas-platform install")
    assert "nothing changed" in output
    assert "written" not in output
    assert server.run("systemctl show -P MainPID gpuaas-platform") == before


def test_the_documented_check_of_a_running_server_finds_no_failure(server: Server) -> None:
    page = (ROOT / "docs/how-to/check-an-installation.md").read_text()
    (command,) = re.findall(r"^runuser .*gpuaas-platform doctor .*$", page, re.MULTILINE)
    report = server.run(command.replace("10.0.0.5", server.address))
    assert f"a server of the platform answers at https://{server.address}:7443" in report


def test_after_a_backup_of_root_the_user_of_the_server_can_make_one(server: Server) -> None:
    server.run(
        "gpuaas-platform backup --new-identity backup.identity > recipient && install -d -o gpuaas -m 700 /backups && "
        'backup="gpuaas-platform backup --data /var/lib/gpuaas-platform --recipient $(cat recipient)" && '
        "$backup --to /backups/of-root && runuser -u gpuaas -- $backup --to /backups/of-the-user"
    )


def test_the_controller_of_an_app_runs_with_a_key_that_only_root_reads(server: Server) -> None:
    project = re.findall(r"proj_\w+", server.run("gpuaas get projects -o json"))[0]
    version = json.loads(server.run("gpuaas-slurm manifest"))["version"]
    server.run(server.documented("The controller of an app").replace("PROJECT", project).replace("VERSION", version))
    server.run("journalctl -fu gpuaas-app-slurm | timeout 60 grep -m 1 controller.started")
    assert server.run("stat -c %a /etc/gpuaas/slurm-key.json").strip() == "600"
    assert server.run("systemctl show -P User gpuaas-app-slurm").strip() != "root"


def test_the_server_and_its_data_survive_a_power_cut(server: Server) -> None:
    assert lab("kill", MACHINE).returncode == 0
    assert lab("start", MACHINE).returncode == 0
    assert "demo" in server.run(f"{answers(server)} && gpuaas get projects")


def test_a_new_release_takes_over_with_the_same_data_and_an_older_one_is_refused(server: Server) -> None:
    before = server.release()
    server.run(
        f"cp -r {server.bundle} newer && cd newer && echo 9.9.9 > VERSION && "
        "find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum > SHA256SUMS && ./install"
    )
    assert server.release() == before
    server.run("gpuaas-platform install")
    assert "/opt/gpuaas/releases/9.9.9-" in server.release()
    assert "demo" in server.run("gpuaas get projects")
    server.run(change("INSERT INTO migrations VALUES (9999)"))
    server.run(f"{server.bundle}/install")
    refused = server.run("gpuaas-platform install", check=False)
    assert "a newer release changed the database" in refused
    assert "Run the newer release" in refused
    assert server.run("systemctl is-failed gpuaas-platform").strip() == "failed"
    server.run(change("DELETE FROM migrations WHERE number = 9999"))
    server.run("gpuaas-platform install")
    assert server.release() == before


def test_a_damaged_bundle_is_refused(server: Server, bundle: Path) -> None:
    with tarfile.open(bundle) as archive:
        assert f"{server.bundle}/SHA256SUMS" in archive.getnames()
    refused = server.run(
        f"cp -r {server.bundle} damaged && echo changed >> damaged/runtime.lock && damaged/install", check=False
    )
    assert "the bundle is damaged" in refused


def answers(server: Server) -> str:
    url = f"https://{server.address}:7443/readyz"
    return f"curl -sS --retry 60 --retry-delay 1 --retry-connrefused --cacert /etc/gpuaas/ca.crt {url}"


def change(statement: str) -> str:
    """Return a command that changes the database of the server, as its user."""
    code = f"import sqlite3; c = sqlite3.connect('{DATABASE}'); c.execute('{statement}'); c.commit()"
    return f'runuser -u gpuaas -- python3 -c "{code}"'
