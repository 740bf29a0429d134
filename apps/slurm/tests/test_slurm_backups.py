"""Backups of the accounting database: the actions on a fake Slurm, and what their scripts print."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from crashes import ended_despite_crash
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import accounting_backups, backup
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from test_slurm_health import until

SPLIT = {"controller": ["gpu-1"], "worker": ["gpu-2"]}


async def _restore(cluster: NewCluster, **inputs: Any) -> Any:
    await cluster.perform("deploy")
    name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
    return await cluster.act("accounting.restore", **({"name": name, "confirm": CLUSTER_NAME} | inputs))


def _exchanged(cluster: NewCluster) -> bool:
    return any(accounting_backups.EXCHANGE in command.input.decode() for command in cluster.host("gpu-1").commands)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [({"confirm": "another"}, "not the name of the cluster"), ({"name": "gone.sql.gz"}, "there is no such file")],
)
async def test_a_restore_that_is_not_confirmed_or_has_no_backup_changes_nothing(
    inputs: dict[str, str], reason: str
) -> None:
    async with new_cluster(SPLIT) as cluster:
        ended = await _restore(cluster, **inputs)
        assert (ended.status, ended.error.failure_class) == ("failed", "refused")
        assert reason in ended.error.message
        assert not _exchanged(cluster)


async def test_a_restore_is_refused_while_a_job_runs_and_the_partition_is_open_again() -> None:
    async with new_cluster(SPLIT) as cluster:
        cluster.slurm.jobs = [FakeJob(7)]
        ended = await _restore(cluster)
        assert ended.error.failure_class == "refused"
        assert "7 (ada, RUNNING)" in ended.error.message
        assert not _exchanged(cluster)
        assert cluster.slurm.partition_states == ["down", "up"]


async def test_a_restore_backs_up_the_present_database_first_and_opens_the_partition_afterwards() -> None:
    async with new_cluster(SPLIT) as cluster:
        ended = await _restore(cluster)
        assert ended.status == "succeeded", ended.error
        texts = [command.input.decode() for command in cluster.host("gpu-1").commands]
        order = [
            script
            for text in texts
            for script in (accounting_backups.BACK_UP, accounting_backups.EXCHANGE)
            if script in text
        ]
        assert order == [accounting_backups.BACK_UP, accounting_backups.BACK_UP, accounting_backups.EXCHANGE]
        assert cluster.slurm.partition_states[-1] == "up"


@pytest.mark.parametrize(
    "script", [accounting_backups.EXCHANGE, accounting_backups.STAGE], ids=["exchange", "load the backup"]
)
async def test_a_restore_that_fails_leaves_the_partition_open(script: str) -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
        cluster.slurm.closed["main"] = "down"  # by an attempt before
        cluster.faults.failing_script = script
        ended = await cluster.act("accounting.restore", **_inputs(name))
        assert (ended.status, cluster.slurm.closed["main"]) == ("failed", "up")


async def test_a_restore_that_waits_for_slurm_leaves_the_partition_open_until_it_continues() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
        cluster.slurm.queue_fails_at_close = True
        operation = cluster.platform.invoke(cluster.instance, "accounting.restore", _inputs(name))
        await until(lambda: cluster.slurm.partition_states == ["down", "up"])
        cluster.slurm.queue_fails_at_close = False
        assert (await cluster.platform.ended(operation.operation_id)).status == "succeeded"


async def test_a_restore_whose_controller_dies_is_finished_by_the_next_one_with_the_partition_open() -> None:
    async with new_cluster(SPLIT) as cluster:
        await cluster.perform("deploy")
        cluster.platform.records.manifests[cluster.instance.app_version] = controller.app.manifest
        name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
    for commands in (2, 5, 7):
        operation = cluster.platform.invoke(cluster.instance, "accounting.restore", _inputs(name))
        ended, _ = await ended_despite_crash(cluster, operation.operation_id, commands)
        assert ended.status == "succeeded", (commands, ended.error)
        assert cluster.slurm.partition_states[-1] == "up"


def _inputs(name: str) -> dict[str, str]:
    return {"name": name, "confirm": CLUSTER_NAME}


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _run(programs: Path, script: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    path = f"{programs}:{os.environ['PATH']}"
    bash = ["bash", "-seuo", "pipefail", "--", *argv]
    return subprocess.run(
        bash, input=script, text=True, capture_output=True, env={**os.environ, "PATH": path}, check=False
    )


def test_a_backup_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    _program(tmp_path / "mariadb-dump", "echo half; exit 2")
    assert _run(tmp_path, accounting_backups.BACK_UP, str(folder), "a.sql.gz", "acct").returncode != 0
    assert not [path for path in folder.iterdir() if path.suffix != ".sha256"]
    _program(tmp_path / "mariadb-dump", "echo whole")
    assert _run(tmp_path, accounting_backups.BACK_UP, str(folder), "a.sql.gz", "acct").returncode == 0
    (backup,) = accounting_backups.parse(_run(tmp_path, accounting_backups.LIST, str(folder)).stdout)
    assert backup.name == "a.sql.gz"
    digest = subprocess.run(["sha256sum", folder / "a.sql.gz"], capture_output=True, text=True, check=True).stdout
    assert digest.startswith(backup.sha256)


def test_a_damaged_backup_is_refused_before_the_database_is_touched(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    _program(tmp_path / "mariadb-dump", "echo whole")
    _program(tmp_path / "mariadb", 'touch "$0.called"')
    _run(tmp_path, accounting_backups.BACK_UP, str(folder), "a.sql.gz", "acct")
    (folder / "a.sql.gz").write_bytes(b"damaged")
    ran = _run(tmp_path, accounting_backups.STAGE, str(folder), "a.sql.gz", "staged", "lab", "acct")
    assert (ran.returncode, "its content is not what was written" in ran.stderr) == (
        accounting_backups.NOT_A_BACKUP,
        True,
    )
    assert not (tmp_path / "mariadb.called").exists()


@pytest.mark.parametrize(("version", "status"), [(15, 0), (16, 0), (17, accounting_backups.NOT_A_BACKUP)])
def test_a_backup_with_tables_of_a_newer_version_is_refused_before_the_database_is_touched(
    tmp_path: Path, version: int, status: int
) -> None:
    """After a rollback there can be one."""
    folder = tmp_path / "backups"
    _program(tmp_path / "mariadb-dump", "echo whole")
    answers = f"*staged.convert*) echo {version};; *acct.convert*) echo 16;; *COUNT*) echo 1;; *) cat >/dev/null;;"
    _program(tmp_path / "mariadb", f'case "$*" in *DROP*) ;; {answers} esac')
    _run(tmp_path, accounting_backups.BACK_UP, str(folder), "a.sql.gz", "acct")
    ran = _run(tmp_path, accounting_backups.STAGE, str(folder), "a.sql.gz", "staged", "lab", "acct")
    assert (ran.returncode, "a newer version" in ran.stderr) == (status, status != 0), ran.stderr


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup from before an upgrade."""
    folder = tmp_path / "backup"
    folder.mkdir()
    for name in ("systemctl", "tar"):
        _program(tmp_path / name, '[ "$3" != -cf ] || echo state > "$4"')
    _program(tmp_path / "mariadb-dump", "echo all tables")
    ran = _run(tmp_path, backup.SAVE, str(folder), "acct")
    assert ran.returncode == 0, ran.stderr
    return folder


def _damage(saved: Path) -> str:
    return _run(saved.parent, backup.DAMAGE, str(saved)).stdout


def test_a_backup_from_before_an_upgrade_is_compared_with_what_was_written(saved: Path) -> None:
    assert _damage(saved) == ""
    (saved / "database.sql").write_text("half")
    assert _damage(saved) == "database.sql is not as it was written\n"
    (saved / "state.tar").unlink()
    assert "state.tar is missing\n" in _damage(saved)
    (saved / "state.tar").mkdir()  # it exists, and reading it fails
    assert _damage(saved) == "state.tar cannot be read\ndatabase.sql is not as it was written\n"


def test_a_backup_of_an_earlier_release_without_sums_must_have_its_files(saved: Path) -> None:
    (saved / "done").write_text("")
    assert _damage(saved) == ""
    (saved / "database.sql").write_text("")
    assert _damage(saved) == "database.sql is missing\n"
