"""Every handler that the app registers does its work on a fake Slurm. A handler without a case here fails a test."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import keys
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster
from gpuaas_contract.posix import PosixPerson
from gpuaas_sdk.controller import Member
from test_slurm_health import line, node, until
from test_slurm_upgrade import NEW, OLD, add_version, everywhere, installed, move, now
from test_slurm_usage import row

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
OFTEN = dataclasses.replace(QUICK, health_every_s=0.05)
Case = Callable[[NewCluster], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def register(drive: Case) -> Case:
        CASES[name] = drive
        return drive

    return register


def registered() -> set[str]:
    handlers = controller.app._handlers
    return (
        {_name("", key) for key in handlers.operations}
        | {_name("undo ", key) for key in handlers.undos}
        | {_name("preview ", key) for key in handlers.previews}
        | {f"action {name}" for name in handlers.actions}
        | ({"health"} if handlers.health else set())
    )


def _name(what: str, key: tuple[str, str]) -> str:
    return f"{what}{key[0]} {key[1]}".strip()


def test_every_handler_of_the_app_has_a_case_here() -> None:
    assert set(CASES) == registered()


@pytest.mark.parametrize("name", sorted(registered()))
async def test_the_handler_does_its_work_on_a_fake_slurm(name: str) -> None:
    async with new_cluster(MEMBERS, settings=OFTEN) as cluster:
        if name != "undo deploy":
            await succeeds(cluster, "deploy")
        await CASES[name](cluster)


async def succeeds(cluster: NewCluster, kind: str, *targets: Member) -> None:
    ended = await cluster.perform(kind, list(targets) or None)
    assert ended.status == "succeeded", ended.error


async def cancelled_while(cluster: NewCluster, text: str, kind: str, *targets: Member, **options: Any) -> None:
    """Start an operation, cancel it when a step shows this text, and wait until it is undone."""
    operation_id = await cluster.started(kind, list(targets) or None, **options)
    await cluster.platform.until(
        operation_id, lambda now: any(text in f"{each.name} {each.message}" for each in now.steps)
    )
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error


def at(cluster: NewCluster, name: str) -> Member:
    return cluster.member_of(cluster.instance, name)


@case("deploy")
async def _(cluster: NewCluster) -> None:
    assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], "ready")


@case("add worker")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "add", cluster.add_worker("gpu-5"))
    assert (cluster.statuses()["gpu-5"], cluster.slurm.first_jobs_on[-1]) == ("ready", "gpu-5")


@case("add login")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "add", cluster.platform.records.add_member(cluster.instance, "login", "gpu-5"))
    assert (cluster.statuses()["gpu-5"], "gpu-5" in cluster.slurm.first_jobs_on) == ("ready", False)


@case("drain worker")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "drain", at(cluster, "gpu-2"))
    assert (cluster.statuses()["gpu-2"], cluster.slurm.nodes["gpu-2"]) == ("drained", ["DRAIN", "IDLE"])


@case("resume worker")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "drain", at(cluster, "gpu-2"))
    await succeeds(cluster, "resume", at(cluster, "gpu-2"))
    assert (cluster.statuses()["gpu-2"], cluster.slurm.nodes["gpu-2"]) == ("ready", ["IDLE"])


@case("remove worker")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "remove", at(cluster, "gpu-2"))
    _assert_gone(cluster, "gpu-2")


@case("remove login")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "remove", at(cluster, "gpu-4"))
    _assert_gone(cluster, "gpu-4")


@case("replace worker")
async def _(cluster: NewCluster) -> None:
    await _replaces(cluster, "gpu-2")
    assert cluster.slurm.first_jobs_on[-1] == "gpu-5"


@case("replace login")
async def _(cluster: NewCluster) -> None:
    await _replaces(cluster, "gpu-4")


@case("replace controller")
async def _(cluster: NewCluster) -> None:
    old = at(cluster, "gpu-1")
    ended = await cluster.perform("replace", [old], replacements=["gpu-5"])
    assert ended.status == "succeeded", ended.error
    _assert_gone(cluster, "gpu-1")
    assert (at(cluster, "gpu-5").member_id, cluster.slurm.controllers) == (old.member_id, {"gpu-5"})


@case("undo replace controller")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.first_job_waits = True
    await cancelled_while(cluster, "srun on", "replace", at(cluster, "gpu-1"), replacements=["gpu-5"])
    _assert_gone(cluster, "gpu-5")
    assert (cluster.statuses()["gpu-1"], cluster.slurm.controllers) == ("ready", {"gpu-1"})


@case("preview replace controller")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "replace", at(cluster, "gpu-1")) == ["7", "8"]


async def _replaces(cluster: NewCluster, name: str) -> None:
    old = at(cluster, name)
    ended = await cluster.perform("replace", [old], replacements=["gpu-5"])
    assert ended.status == "succeeded", ended.error
    _assert_gone(cluster, name)
    moved = at(cluster, "gpu-5")
    assert (moved.member_id, moved.component_key, moved.status) == (old.member_id, old.component_key, "ready")
    assert (moved.adapter_detail["replaced"], moved.adapter_detail["node_name"]) == ({"node_name": name}, "gpu-5")


@case("decommission")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "decommission")
    assert cluster.statuses() == {}


@case("reconfigure")
async def _(cluster: NewCluster) -> None:
    operation = cluster.platform.reconfigure(cluster.instance, {"max_time": "9-00:00:00"})
    ended = await cluster.platform.ended(operation.operation_id)
    assert (ended.status, "MaxTime=9-00:00:00" in cluster.slurm.conf) == ("succeeded", True), ended.error


@case("undo reconfigure")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.refuses = "MaxTime=9-00:00:00"
    operation = cluster.platform.reconfigure(cluster.instance, {"max_time": "9-00:00:00"})
    failed = await cluster.platform.ended(operation.operation_id)
    cluster.platform.compensate(failed.operation_id)
    assert (await cluster.platform.ended(failed.operation_id)).status == "cancelled"
    assert "MaxTime=7-00:00:00" in cluster.slurm.conf


@case("stop")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "stop")
    assert _running(cluster) == set()


@case("start")
async def _(cluster: NewCluster) -> None:
    before = _running(cluster)
    await succeeds(cluster, "stop")
    await succeeds(cluster, "start")
    assert _running(cluster) == before


@case("restart")
async def _(cluster: NewCluster) -> None:
    before = _running(cluster)
    await succeeds(cluster, "restart")
    assert _running(cluster) == before


@case("undo stop")
async def _(cluster: NewCluster) -> None:
    before = _running(cluster)
    await _turns_back(cluster, "stop")
    assert (_running(cluster), set(cluster.statuses().values())) == (before, {"ready"})


@case("undo restart")
async def _(cluster: NewCluster) -> None:
    before = _running(cluster)
    await _turns_back(cluster, "restart")
    assert (_running(cluster), set(cluster.statuses().values())) == (before, {"ready"})


@case("undo start")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "stop")
    await _turns_back(cluster, "start")
    assert (_running(cluster), set(cluster.statuses().values())) == (set(), {"drained"})


async def _turns_back(cluster: NewCluster, kind: str) -> None:
    """Cancel the operation while a command on a machine hangs that would change its daemon."""
    host = cluster.host("gpu-3")
    # The commands before: the connection, one that checks whether the machine answers, and before a stop another one.
    host.hangs_after = {"start": 1, "restart": 2, "stop": 3}[kind]
    operation_id = await cluster.started(kind)
    await host.hangs.wait()
    assert any(step.name == f"{kind} slurmd" for step in cluster.platform.operation(operation_id).steps)
    cluster.platform.cancel(operation_id)
    host.hangs_after = None
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error


def _running(cluster: NewCluster) -> set[str]:
    return {f"{name} {unit}" for name in cluster.machines.by_host for unit in cluster.host(name).active}


@case("upgrade")
async def _(cluster: NewCluster) -> None:
    ended = await move(cluster, "upgrade", add_version(cluster, NEW))
    assert (ended.status, installed(cluster)) == ("succeeded", everywhere(NEW)), ended.error


@case("undo upgrade")
async def _(cluster: NewCluster) -> None:
    cluster.faults.broken_units = {"gpu-2 slurmd"}
    failed = await move(cluster, "upgrade", add_version(cluster, NEW))
    cluster.faults.broken_units = set()
    cluster.platform.compensate(failed.operation_id)
    assert (await cluster.platform.ended(failed.operation_id)).status == "cancelled"
    assert installed(cluster) == everywhere(OLD)


@case("preview upgrade")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "upgrade") == ["7", "8"]


@case("rollback")
async def _(cluster: NewCluster) -> None:
    await _upgraded(cluster)
    ended = await move(cluster, "rollback", now(cluster).previous_version)
    assert (ended.status, installed(cluster)) == ("succeeded", everywhere(OLD)), ended.error


@case("preview rollback")
async def _(cluster: NewCluster) -> None:
    await _upgraded(cluster)
    assert await _previewed(cluster, "rollback") == ["7", "8"]


async def _upgraded(cluster: NewCluster) -> None:
    cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version=now(cluster).app_version))
    assert (await move(cluster, "upgrade", add_version(cluster, NEW))).status == "succeeded"


@case("repair controller")
async def _(cluster: NewCluster) -> None:
    await _repairs(cluster, "gpu-1", "slurmctld")


@case("repair worker")
async def _(cluster: NewCluster) -> None:
    await _repairs(cluster, "gpu-2", "slurmd")


@case("repair login")
async def _(cluster: NewCluster) -> None:
    await _repairs(cluster, "gpu-4", "slurmd")


async def _repairs(cluster: NewCluster, name: str, unit: str) -> None:
    cluster.host(name).active.discard(unit)
    await succeeds(cluster, "repair", at(cluster, name))
    assert (unit in cluster.host(name).active, cluster.statuses()[name]) == (True, "ready")


@case("undo deploy")
async def _(cluster: NewCluster) -> None:
    cluster.faults.broken_units = {"gpu-3 slurmd"}
    failed = await cluster.perform("deploy")
    cluster.platform.compensate(failed.operation_id)
    assert (await cluster.platform.ended(failed.operation_id)).status == "cancelled"
    assert cluster.statuses() == {}


@case("undo add worker")
async def _(cluster: NewCluster) -> None:
    await _undoes_add(cluster, cluster.add_worker("gpu-5"))


@case("undo add login")
async def _(cluster: NewCluster) -> None:
    await _undoes_add(cluster, cluster.platform.records.add_member(cluster.instance, "login", "gpu-5"))


async def _undoes_add(cluster: NewCluster, member: Member) -> None:
    cluster.faults.broken_units = {"gpu-5 slurmd"}
    failed = await cluster.perform("add", [member])
    assert cluster.statuses()["gpu-5"] == "failed"
    cluster.platform.compensate(failed.operation_id)
    undone = await cluster.platform.ended(failed.operation_id)
    assert undone.status == "cancelled", undone.error
    _assert_gone(cluster, "gpu-5")


@case("undo drain worker")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    await cancelled_while(cluster, "7 (ada)", "drain", at(cluster, "gpu-2"))
    assert (cluster.statuses()["gpu-2"], cluster.slurm.nodes["gpu-2"]) == ("ready", ["IDLE"])


@case("undo resume worker")
async def _(cluster: NewCluster) -> None:
    await succeeds(cluster, "drain", at(cluster, "gpu-2"))
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE", "UNKNOWN"]
    await cancelled_while(cluster, "gpu-2", "resume", at(cluster, "gpu-2"))
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"]


@case("undo remove worker")
async def _(cluster: NewCluster) -> None:
    await _keeps(cluster, "gpu-2")


@case("undo remove login")
async def _(cluster: NewCluster) -> None:
    await _keeps(cluster, "gpu-4")


@case("undo replace worker")
async def _(cluster: NewCluster) -> None:
    await _keeps(cluster, "gpu-2", "replace", replacements=["gpu-5"])
    _assert_gone(cluster, "gpu-5")


@case("undo replace login")
async def _(cluster: NewCluster) -> None:
    await _keeps(cluster, "gpu-4", "replace", replacements=["gpu-5"])
    _assert_gone(cluster, "gpu-5")


async def _keeps(cluster: NewCluster, name: str, kind: str = "remove", **options: Any) -> None:
    cluster.slurm.jobs = [FakeJob(7, node=name)]
    await cancelled_while(cluster, "7 (ada)", kind, at(cluster, name), **options)
    assert (cluster.statuses()[name], cluster.slurm.nodes[name]) == ("ready", ["IDLE"])
    assert "slurmd" in cluster.host(name).active


@case("preview drain worker")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "drain", at(cluster, "gpu-2")) == ["7"]


@case("preview remove worker")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "remove", at(cluster, "gpu-2")) == ["7"]


@case("preview replace worker")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "replace", at(cluster, "gpu-2")) == ["7"]


@case("preview remove login")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "remove", at(cluster, "gpu-4")) == []


@case("preview replace login")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "replace", at(cluster, "gpu-4")) == []


@case("preview stop")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "stop") == ["7", "8"]


@case("preview restart")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "restart") == ["7", "8"]


@case("preview decommission")
async def _(cluster: NewCluster) -> None:
    assert await _previewed(cluster, "decommission") == ["7", "8"]


@case("preview reconfigure")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, limit_minutes=120), FakeJob(8, limit_minutes=60)]
    limits = {"default_time": "01:00:00", "max_time": "01:00:00"}
    asked = cluster.platform.ask_preview(cluster.instance, "reconfigure", inputs=limits)
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert [change.subject for change in preview.changes] == ["default_time", "max_time"]
    assert [work.work_id for work in preview.running_work] == ["7"]


async def _previewed(cluster: NewCluster, kind: Any, *targets: Member) -> list[str]:
    """Return the jobs that the preview names. Another worker runs job 8."""
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2"), FakeJob(8, node="gpu-3")]
    role = targets[0].component_key if targets else ""
    asked = cluster.platform.ask_preview(now(cluster), kind, list(targets) or None, component_key=role)
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    return [work.work_id for work in preview.running_work]


@case("health")
async def _(cluster: NewCluster) -> None:
    names = ("gpu-2", "gpu-3", "gpu-4")
    drained = node("gpu-2", flags=["IDLE", "DRAIN"], reason="bad fan", reason_by="ada")
    cluster.host("gpu-1").printed.append(line(drained, *(node(name) for name in names[1:])))
    await until(lambda: cluster.statuses()["gpu-2"] == "degraded")
    assert "bad fan" in at(cluster, "gpu-2").status_reason


def _assert_gone(cluster: NewCluster, name: str) -> None:
    assert name not in cluster.statuses()
    assert name not in cluster.slurm.nodes
    assert (cluster.host(name).installed, cluster.host(name).active) == (set(), set())


async def acts(cluster: NewCluster, action: str, *, by: str = "test", **inputs: object) -> list[dict[str, Any]]:
    """Run an action, and return the rows of its result."""
    ended = await cluster.act(action, by=by, **inputs)
    assert ended.status == "succeeded", ended.error
    assert ended.result is not None
    rows: list[dict[str, Any]] = ended.result["rows"]
    return rows


@case("action users.list")
async def _(cluster: NewCluster) -> None:
    assert [row["login"] for row in await acts(cluster, "users.list")] == ["researcher"]


@case("action users.sync")
async def _(cluster: NewCluster) -> None:
    assert await acts(cluster, "users.sync") == []


@case("action users.add")
async def _(cluster: NewCluster) -> None:
    [row] = await acts(cluster, "users.add", names=["eva"])
    assert row["login"] == "eva"
    assert "eva" in cluster.slurm.accounting.users


@case("action users.remove")
async def _(cluster: NewCluster) -> None:
    await acts(cluster, "users.add", names=["eva"])
    await acts(cluster, "users.remove", names=["eva"])
    assert cluster.slurm.accounting.users["eva"]["GrpSubmitJobs"] == "0"


@case("action users.limits")
async def _(cluster: NewCluster) -> None:
    before, after = await acts(cluster, "users.limits", max_jobs=5)
    assert (before["max_jobs"], after["max_jobs"]) == (None, 5)


def joins(cluster: NewCluster, login: str) -> str:
    """Make a person of the project, and return the user id."""
    cluster.platform.records.people.append(
        PosixPerson(
            user_id=f"user_{login}",
            name=login,
            login=login,
            uid=20001,
            gid=20001,
            state="active",
            is_admin=False,
            public_keys=[],
        )
    )
    return f"user_{login}"


@case("action queue.submit")
async def _(cluster: NewCluster) -> None:
    [row] = await acts(cluster, "queue.submit", by=joins(cluster, "ada"), script="#!/bin/sh\nhostname\n")
    assert (row["job_id"], row["state"]) == ("101", "PENDING")


@case("action queue.read")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7)]
    assert [row["job_id"] for row in await acts(cluster, "queue.read")] == ["7"]


@case("action queue.cancel")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, user="ada"), FakeJob(8, user="bob")]
    assert await acts(cluster, "queue.cancel", by=joins(cluster, "ada"), jobs=["7"]) == []
    assert [job.job_id for job in cluster.slurm.jobs] == [8]


@case("action queue.cancel_any")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, user="ada")]
    assert await acts(cluster, "queue.cancel_any", jobs=["7"]) == []
    assert cluster.slurm.jobs == []


@case("action job.logs")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.queue.rows = {"7": "ada|RUNNING|gpu-2|/home/people/ada/out"}
    cluster.slurm.queue.outputs = {"/home/people/ada/out": "hello\n"}
    assert await acts(cluster, "job.logs", by=joins(cluster, "ada"), job="7") == [{"number": 1, "line": "hello"}]


@case("action usage.read")
async def _(cluster: NewCluster) -> None:
    cluster.slurm.ended = [row(1, gpus=2)]
    [used] = await acts(cluster, "usage.read")
    assert (used["login"], used["gpu_s"]) == ("ada", 20)


@case("action node.read")
async def _(cluster: NewCluster) -> None:
    assert sorted(row["node"] for row in await acts(cluster, "node.read")) == ["gpu-2", "gpu-3", "gpu-4"]


@case("action node.label")
async def _(cluster: NewCluster) -> None:
    [node_row] = await acts(cluster, "node.label", node="gpu-2", labels=["fast"])
    assert node_row["labels"] == "fast"


@case("action node.reboot")
async def _(cluster: NewCluster) -> None:
    [node_row] = await acts(cluster, "node.reboot", nodes=["gpu-2"])
    assert node_row["state"] == "IDLE+DRAIN+REBOOT_REQUESTED"


@case("action reservation.list")
async def _(cluster: NewCluster) -> None:
    assert await acts(cluster, "reservation.list") == []


@case("action reservation.create")
async def _(cluster: NewCluster) -> None:
    await acts(cluster, "reservation.create", name="course", minutes=5, users=["ada"], node_count=1)
    assert list(cluster.slurm.queue.reservations) == ["course"]


@case("action reservation.remove")
async def _(cluster: NewCluster) -> None:
    await acts(cluster, "reservation.create", name="course", minutes=5, users=["ada"], node_count=1)
    assert await acts(cluster, "reservation.remove", name="course") == []


@case("action accounting.backup")
async def _(cluster: NewCluster) -> None:
    ended = await cluster.act("accounting.backup")
    assert ended.status == "succeeded", ended.error
    assert [row["sha256"] for row in ended.result["rows"]] == ["a" * 64]


@case("action accounting.backups")
async def _(cluster: NewCluster) -> None:
    made = await cluster.act("accounting.backup")
    ended = await cluster.act("accounting.backups")
    assert ended.result["rows"] == made.result["rows"]


@case("action accounting.restore")
async def _(cluster: NewCluster) -> None:
    name = (await cluster.act("accounting.backup")).result["rows"][0]["name"]
    ended = await cluster.act("accounting.restore", name=name, confirm=CLUSTER_NAME)
    assert ended.status == "succeeded", ended.error
    assert "before-restore-" in ended.result["note"]


@case("action token.issue")
async def _(cluster: NewCluster) -> None:
    ended = await cluster.act("token.issue", by=joins(cluster, "ada"))  # `test_slurm_rest` has it with the option
    assert (ended.status, ended.error.code) == ("failed", "refused")


@case("action auth.rotate")
async def _(cluster: NewCluster) -> None:
    before = cluster.host("gpu-2").files[keys.SLURM_KEY]
    rows = await acts(cluster, "auth.rotate")
    assert [row["machine"] for row in rows] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert cluster.host("gpu-2").files[keys.SLURM_KEY] != before
