"""The rules between the parts: no app word in the platform, complete import rules, an app that runs alone."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECRET_COMPARISONS = ROOT / "tools" / "secret-comparisons"
NO_APP_WORDS = ROOT / "tools" / "no-app-words"
ONE_OWNER = ROOT / "tools" / "one-owner"
RULE = """def is_over(lease, now):
    latest = max(lease.expires_at, lease.renewed_at + lease.length)
    return latest < now and not lease.kept
"""


def test_no_app_word_is_in_a_generic_part() -> None:
    checked = subprocess.run([NO_APP_WORDS], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("line", ["# as Slurm does", "import ray", 'ETCD_PORT = "2379"', "-- k8s"])
def test_an_app_word_is_reported_in_comments_imports_and_values(line: str, tmp_path: Path) -> None:
    (tmp_path / "innocent.sql").write_text("SELECT array_agg(name), drained FROM members\n")
    (tmp_path / "guilty.py").write_text(f"first = 1\n{line}\n")
    checked = subprocess.run([NO_APP_WORDS, tmp_path], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (1, f"{tmp_path}/guilty.py:2:{line}\n")


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ('if row["request_digest"] != digest: pass', True),
        ("known = session.token == token", True),
        ("if ids.digest(given) == expected: pass", True),
        ("if artifact.digest == digest: pass", False),
        ('if secret.state == "issued": pass', False),
        ('if token == "": pass', False),
        ("if secret_id != other_id: pass", False),
    ],
)
def test_a_secret_is_not_compared_character_by_character(line: str, is_refused: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"{line}\n")
    checked = subprocess.run([SECRET_COMPARISONS, tmp_path], capture_output=True, text=True, check=False)
    assert checked.returncode == int(is_refused)
    assert ("hmac.compare_digest" in checked.stdout) == is_refused


def test_the_tree_compares_no_secret_character_by_character() -> None:
    checked = subprocess.run([SECRET_COMPARISONS], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_no_store_is_used_by_another_domain_and_no_rule_is_written_twice() -> None:
    checked = subprocess.run([ONE_OWNER], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "from gpuaas_platform.nodes import rules, store",
        "from gpuaas_platform.nodes import store as node_store",
        "from gpuaas_platform.nodes.tasks.store import TASKS",
        "from gpuaas_platform.nodes.tasks import (\n    store,\n)",
    ],
)
def test_a_store_that_another_domain_imports_is_reported(line: str, tmp_path: Path) -> None:
    _write(tmp_path / "platform/gpuaas_platform/usage/service.py", f"{line}\n")
    _write(tmp_path / "platform/gpuaas_platform/nodes/service.py", f"{line}\n")
    checked = subprocess.run([ONE_OWNER, tmp_path], capture_output=True, text=True, check=False)
    reported = "platform/gpuaas_platform/usage/service.py:1: the store of nodes is private to it."
    assert (checked.returncode, checked.stdout.startswith(reported), checked.stdout.count("\n")) == (1, True, 1)


def test_a_rule_that_is_written_again_under_other_names_is_reported(tmp_path: Path) -> None:
    _write(tmp_path / "contract/gpuaas_contract/protocol/lease.py", RULE)
    copy = (
        RULE.replace("is_over", "expired")
        .replace("latest", "end")
        .replace("lease,", "held,")
        .replace("lease.", "held.")
    )
    _write(tmp_path / "sdk/gpuaas_sdk/testing/rules.py", f"# The fake platform's own.\n{copy}")
    checked = subprocess.run([ONE_OWNER, tmp_path], capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "lease.py:1 is_over is written again in sdk/gpuaas_sdk/testing/rules.py:2 expired" in checked.stdout


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_every_package_on_disk_is_under_the_import_rules() -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    named = set(rules["importlinter"]["root_packages"].split())
    on_disk = {path.parent.name for path in ROOT.glob("*/gpuaas_*/__init__.py")}
    on_disk |= {path.parent.name for path in ROOT.glob("apps/*/gpuaas_*/__init__.py")}
    assert named == on_disk


def test_each_app_installs_and_starts_with_the_sdk_and_the_contract_alone(tmp_path: Path) -> None:
    apps = ("slurm", "etcd", "ray")
    for part in ("contract", "sdk", *(f"apps/{app}" for app in apps)):
        _uv(
            "build",
            "-q",
            "--wheel",
            "--no-build-isolation",
            "-p",
            sys.executable,
            "-o",
            tmp_path / "wheels",
            ROOT / part,
        )
    alone = tmp_path / "alone"
    _uv("venv", "-q", "-p", sys.executable, alone)
    wheels = sorted((tmp_path / "wheels").glob("*.whl"))
    _uv("pip", "install", "-q", "-p", alone / "bin/python", "-c", ROOT / "requirements.lock", *wheels)
    for app in apps:
        command = [str(alone / f"bin/gpuaas-{app}"), "manifest"]
        assert f'"slug": "{app}"' in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    absent = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, sys.argv[1:])))"
    others = ["gpuaas_platform", "gpuaas_lab", "gpuaas_cli", "gpuaas_agent"]
    subprocess.run([str(alone / "bin/python"), "-c", absent, *others], check=True, cwd=tmp_path)


def _uv(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "uv", *map(str, arguments)], check=True, cwd="/")
