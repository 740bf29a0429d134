"""The app's handlers against real machines: systemd, apt, MariaDB, Slurm. Only the platform is a fake."""

import asyncio
import json
import os
import posixpath
from collections.abc import Iterator
from typing import Any

import pytest
from gpuaas_app_slurm import plan
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload.footprint import CONTROLLER_PACKAGES, SLURM, WORKER_PACKAGES
from gpuaas_sdk.controller import Instance
from gpuaas_sdk.installs import apt, packages, receipts, removals
from gpuaas_sdk.machine import connect
from slurm_lab import SHARED_HOME, Cloud, Lab

pytestmark = pytest.mark.machines


@pytest.fixture
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"))
    machines.command("down", "--purge")
    try:
        machines.up()
        yield machines
    finally:
        machines.command("down", "--purge")


@pytest.fixture
def cloud(lab: Lab) -> Cloud:
    return Cloud(lab, Settings(old_key_s=5.0))


@pytest.fixture
def impatient_cloud(lab: Lab) -> Cloud:
    """An app that waits only a moment for machines that do not answer."""
    return Cloud(lab, Settings(reach_s=2.0, reach_leaving_s=2.0))


async def _changes_since(lab: Lab, before: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the lines of each machine's snapshot that differ; machines without changes are left out."""
    changes = {name: await lab.snapshot(name) ^ lines for name, lines in before.items()}
    return {name: lines for name, lines in changes.items() if lines}


async def test_a_cluster_is_deployed_changed_and_decommissioned(lab: Lab, cloud: Cloud) -> None:
    before = {name: await lab.snapshot(name) for name in lab.addresses}
    async with cloud.controller():
        await _homes_that_cannot_work_are_refused_before_anything_changes(lab, cloud, before)
        instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        _all_members_are_ready(cloud, instance)
        assert "COMPLETED" in await _first_batch_job(lab)
        await _people_work_on_the_shared_home(lab)

        await _a_fourth_machine_joins(cloud, instance)
        await _the_key_is_replaced_beside_jobs(lab, cloud, instance)
        await _drain_waits_for_the_job_and_resume_lifts_it(lab, cloud, instance)
        await _a_foreign_drain_is_not_lifted(lab, cloud, instance)
        await _a_removed_worker_leaves_its_machine_clean(lab, cloud, instance, before["gpu-4"])
        await _a_login_machine_joins_and_leaves(lab, cloud, instance, before["gpu-4"])
        await _decommission_protects_jobs_until_forced(lab, cloud, instance)
    assert await _changes_since(lab, before) == {}
    assert "one.txt" in await lab.run("gpu-2", "ls", "/shared/home/researcher"), "files on the shared folder stay"


async def _homes_that_cannot_work_are_refused_before_anything_changes(
    lab: Lab, cloud: Cloud, before: dict[str, set[str]]
) -> None:
    reasons = {
        "shared:/srv": "is not shared: machine gpu-2 does not have a file that machine gpu-1 wrote",
        "shared:/nowhere/home": "/nowhere/home does not exist there, and no folder above it",
        "nfs": "home nfs cannot be used on machine gpu-1: its kernel has no nfsd",
        "nfs:10.0.0.9:/export": "its kernel has no nfs4",
    }
    for wanted, reason in reasons.items():
        instance = cloud.instance("gpu-1", ["gpu-2"], home=wanted)
        refused = await cloud.perform(instance, "deploy")
        assert (refused.status, reason in refused.error.message) == ("failed", True), refused.error
    assert await _changes_since(lab, {"gpu-1": before["gpu-1"], "gpu-2": before["gpu-2"]}) == {}


A_DAY = r"""
test "$PWD" = /home/people/researcher
sbatch -Q --wait --mem=16 -o one.txt --wrap 'hostname; ulimit -n; echo "gpus=[${CUDA_VISIBLE_DEVICES-unset}]"'
echo "batch $(tr '\n' ' ' < one.txt)"
sbatch -Q --wait --mem=16 --array=1-3 -o task-%a.txt --wrap 'echo "task $SLURM_ARRAY_TASK_ID"'
cat task-[123].txt
salloc -Q --mem=16 -N2 srun hostname | sort | tr '\n' ' '; echo
cat > both <<'END'
#!/bin/sh
echo "$SLURM_JOB_NAME=[$CUDA_VISIBLE_DEVICES]"
touch $SLURM_JOB_NAME
while [ ! -e left ] || [ ! -e right ]; do sleep 0.1; done
END
gpu="-Q --wait --mem=16 -w gpu-2 --gres=gpu:lab-gpu:1"
for name in left right; do sbatch $gpu -J $name -o $name.txt both & done
wait
cat left.txt right.txt
srun -Q --mem=16 -N2 sh -c '[ $SLURM_PROCID = 0 ] && sleep 600 || exit 3' || echo "step ended"
"""


async def _people_work_on_the_shared_home(lab: Lab) -> None:
    """As a normal user, with the shared folder as the home on every machine."""
    shown = (await lab.script("gpu-1", A_DAY, "researcher")).splitlines()
    batch, gpus = shown[0].split(), sorted(line for line in shown if line.startswith(("left", "right")))
    assert (batch[1] in ("gpu-2", "gpu-3"), batch[3]) == (True, "gpus=[]"), "a job without GPUs has an empty list"
    limit = await lab.run("gpu-2", "sh", "-c", "grep 'Max open files' /proc/$(pidof -s slurmd)/limits")
    assert batch[2] == limit.split()[3], "limits are those of slurmd, not those of the login shell"
    assert shown[1:5] == ["task 1", "task 2", "task 3", "gpu-2 gpu-3 "]
    assert gpus in (["left=[0]", "right=[1]"], ["left=[1]", "right=[0]"]), "two jobs do not have the same GPU"
    assert shown[-1] == "step ended", "one failed task ends the step, not the sleep of the other"


async def _a_login_machine_joins_and_leaves(lab: Lab, cloud: Cloud, instance: Instance, before: set[str]) -> None:
    cloud.platform.records.add_member(instance, "login", "gpu-4")
    added = await cloud.perform(instance, "add", ["gpu-4"], role="login")
    assert added.status == "succeeded", added.error
    assert "gpu-4" not in await lab.run("gpu-1", "sinfo", "-N", "-h", "-o", "%N"), "it takes no jobs"
    assert cloud.platform.access_bundle(instance).commands[0].allocation_id == "alloc_gpu-4"
    shown = await lab.script("gpu-4", "srun -Q --mem=16 -w gpu-2 sh -c 'hostname; pwd'", "researcher")
    assert shown.splitlines() == ["gpu-2", "/home/people/researcher"]
    removed = await cloud.perform(instance, "remove", ["gpu-4"], role="login")
    assert removed.status == "succeeded", removed.error
    assert await lab.snapshot("gpu-4") ^ before == set()


def _all_members_are_ready(cloud: Cloud, instance: Instance) -> None:
    members = cloud.platform.members(instance)
    assert {member.status for member in members} == {"ready"}
    worker = cloud.worker(instance, "gpu-2")
    assert worker.adapter_detail["gpus"] == 2
    assert worker.adapter_detail["slurm_state"] == "IDLE"
    assert worker.observed_version
    assert (worker.adapter_detail["home"], worker.adapter_detail["warnings"]) == (SHARED_HOME, [])
    _access_bundle_has(2, cloud, instance)


def _access_bundle_has(workers: int, cloud: Cloud, instance: Instance) -> None:
    """Check the first command of the bundle, which `gpuaas up` runs."""
    assert cloud.platform.access_bundle(instance).commands[0].line == f"srun -N{workers} hostname"


async def _first_batch_job(lab: Lab) -> str:
    output = await lab.run("gpu-1", "sbatch", "--wrap", "hostname", as_user="researcher")
    job = output.split()[-1]
    return await _until(lab, "COMPLETED", "sacct", "-nXP", "-j", job, "-o", "State")


async def _a_fourth_machine_joins(cloud: Cloud, instance: Instance) -> None:
    cloud.platform.records.add_member(instance, "worker", "gpu-4")
    added = await cloud.perform(instance, "add", ["gpu-4"])
    assert added.status == "succeeded", added.error
    assert cloud.worker(instance, "gpu-4").status == "ready"
    again = await cloud.perform(instance, "add", ["gpu-4"])
    assert again.status == "succeeded", again.error


async def _the_key_is_replaced_beside_jobs(lab: Lab, cloud: Cloud, instance: Instance) -> None:
    """A job on two nodes runs all the time, and queued ones start before, between and after the restarts."""
    before = {await lab.run(name, "sha256sum", "/etc/slurm/slurm.key") for name in lab.addresses}
    steps = "srun sh -c 'while [ ! -e go ]; do sleep 0.2; done'; srun hostname"
    long = (await _submit(lab, "-N2", "--wrap", steps)).split()[-1]
    await _until(lab, "RUNNING", "squeue", "-h", "-j", long, "-o", "%T")
    queued = (await _submit(lab, "--array=1-20%1", "--wrap", "sleep 1")).split()[-1]
    operation = cloud.platform.invoke(instance, "auth.rotate", {})
    rotated = await cloud.platform.ended(operation.operation_id, timeout_s=300)
    assert rotated.status == "succeeded", rotated.error
    assert rotated.result is not None
    assert [row["state"] for row in rotated.result["rows"]] == ["has the new key only"] * 4
    after = {await lab.run(name, "sha256sum", "/etc/slurm/slurm.key") for name in lab.addresses}
    assert (len(before), len(after), before & after) == (1, 1, set())
    await lab.script("gpu-1", "touch go", "researcher")
    for job, count in ((long, 1), (queued, 20)):
        await _until(lab, f"{count} COMPLETED 0", "sh", "-c", f"sacct -nXP -j {job} -o State,Restarts | {COUNTED}")
    await lab.script("gpu-1", "rm go", "researcher")


COUNTED = "tr '|' ' ' | sort | uniq -c"


async def _drain_waits_for_the_job_and_resume_lifts_it(lab: Lab, cloud: Cloud, instance: Instance) -> None:
    job = (await _submit(lab, "-w", "gpu-3", "--time=5", "--wrap", "sleep 300")).split()[-1]
    await _until(lab, "RUNNING", "squeue", "-h", "-j", job, "-o", "%T")
    requested = cloud.request(instance, "drain", ["gpu-3"], reason="new cables")
    waiting = await cloud.platform.until(
        requested.operation_id, lambda seen: any(f"{job} (researcher, ends by" in step.message for step in seen.steps)
    )
    assert waiting.status == "running"
    assert cloud.worker(instance, "gpu-3").status == "draining"
    await lab.run("gpu-1", "scancel", job)
    drained = await cloud.platform.ended(requested.operation_id)
    assert drained.status == "succeeded", drained.error
    member = cloud.worker(instance, "gpu-3")
    assert member.status == "drained"
    assert member.adapter_detail["reason"] == f"gpuaas:{requested.operation_id}: new cables"
    _access_bundle_has(2, cloud, instance)
    resumed = await cloud.perform(instance, "resume", ["gpu-3"])
    assert resumed.status == "succeeded", resumed.error
    assert cloud.worker(instance, "gpu-3").status == "ready"
    _access_bundle_has(3, cloud, instance)


async def _a_foreign_drain_is_not_lifted(lab: Lab, cloud: Cloud, instance: Instance) -> None:
    await lab.run("gpu-1", "scontrol", "update", "nodename=gpu-3", "state=drain", "reason=bad DIMM")
    drained = await cloud.perform(instance, "drain", ["gpu-3"], reason="maintenance")
    assert drained.status == "succeeded", drained.error
    detail = cloud.worker(instance, "gpu-3").adapter_detail
    assert (detail["drained_by"], detail["reason"]) == ("ExternallyDrained", "bad DIMM")
    refused = await cloud.perform(instance, "resume", ["gpu-3"])
    assert refused.status == "failed"
    assert "bad DIMM" in refused.error.message
    assert refused.error.fix.endswith("gpuaas ssh gpu-3 --root -- sudo scontrol update nodename=gpu-3 state=resume")
    assert cloud.worker(instance, "gpu-3").status == "drained"


async def _a_removed_worker_leaves_its_machine_clean(
    lab: Lab, cloud: Cloud, instance: Instance, before: set[str]
) -> None:
    removed = await cloud.perform(instance, "remove", ["gpu-4"])
    assert removed.status == "succeeded", removed.error
    assert removed.targets[0].evidence.state == "idle"
    assert await lab.snapshot("gpu-4") ^ before == set()
    _access_bundle_has(1, cloud, instance)
    nodes = json.loads(await lab.run("gpu-1", "scontrol", "show", "nodes", "--json"))["nodes"]
    assert {node["name"] for node in nodes} == {"gpu-2", "gpu-3"}


async def _decommission_protects_jobs_until_forced(lab: Lab, cloud: Cloud, instance: Instance) -> None:
    job = (await _submit(lab, "-w", "gpu-2", "--wrap", "sleep 300")).split()[-1]
    refused = await cloud.perform(instance, "decommission")
    assert refused.status == "failed"
    assert "running or queued" in refused.error.message
    assert "force" in refused.error.fix
    assert "up" in await lab.run("gpu-1", "sinfo", "-h", "-o", "%a")
    assert "RUNNING" in await _until(lab, "RUNNING", "squeue", "-h", "-j", job, "-o", "%T")
    forced = await cloud.perform(instance, "decommission", force=True)
    assert forced.status == "succeeded", forced.error
    assert cloud.platform.members(instance) == []
    # The statement agrees with the machines, which are compared afterwards.
    assert all(target.removed for target in forced.targets)
    assert not [item for target in forced.targets for item in target.left if item.why == removals.NOT_REMOVED]


async def _submit(lab: Lab, *arguments: str) -> str:
    output: str = await lab.run("gpu-1", "sbatch", "--mem=16", *arguments, as_user="researcher")
    return output


async def _until(lab: Lab, wanted: str, *argv: str, on: str = "gpu-1") -> str:
    output = ""
    async with asyncio.timeout(120):
        while wanted not in output:
            output = await lab.run(on, *argv)
            await asyncio.sleep(0.2)
    return output


async def test_controller_and_worker_share_one_machine(lab: Lab, cloud: Cloud) -> None:
    before = await lab.snapshot("gpu-1")
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-1", "gpu-2"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        assert cloud.worker(instance, "gpu-1").adapter_detail["gpus"] == 2
        removed = await cloud.perform(instance, "remove", ["gpu-1"])
        assert removed.status == "succeeded", removed.error
        assert "UP" in await lab.run("gpu-1", "scontrol", "ping")
        await _the_machine_reports_only_on(lab, {"slurmctld", "slurmdbd", "mariadb"})
        gone = await cloud.perform(instance, "decommission")
        assert gone.status == "succeeded", gone.error
    assert await lab.snapshot("gpu-1") ^ before == set()


async def _the_machine_reports_only_on(lab: Lab, units: set[str]) -> None:
    """The health reporter also finds no changed file: it forgot the files of the role that was removed."""
    report = await _until(lab, '"drift": []', "sh", "-c", "cat /run/gpuaas-slurm/health.json || true")
    assert set(json.loads(report)["units"]) == units


async def test_a_controller_that_dies_in_every_step_still_deploys_and_decommissions(lab: Lab, cloud: Cloud) -> None:
    before = {name: await lab.snapshot(name) for name in ("gpu-1", "gpu-2")}
    instance = cloud.instance("gpu-1", ["gpu-2"])
    kinds = ("deploy", "decommission")
    ended = [await _perform_with_a_crash_in_every_step(cloud, instance, kind) for kind in kinds]
    assert [operation.status for operation in ended] == ["succeeded"] * 2, [operation.error for operation in ended]
    assert await _changes_since(lab, before) == {}


async def _perform_with_a_crash_in_every_step(cloud: Cloud, instance: Instance, kind: str) -> Any:
    """Stop the controller when a step first runs, and expire its lease; repeat until the operation ends."""
    operation = cloud.request(instance, kind)
    crashed: set[tuple[str, str]] = set()

    def fresh(seen: Any) -> set[tuple[str, str]]:
        running = {(step.name, step.member_id) for step in seen.steps if step.state == "running"}
        return running - crashed

    while True:
        async with cloud.controller():
            seen = await cloud.platform.until(
                operation.operation_id,
                lambda seen: seen.status in ("succeeded", "failed") or bool(fresh(seen)),
                timeout_s=300,
            )
            if seen.status in ("succeeded", "failed"):
                assert crashed
                return seen
            crashed |= fresh(seen)
        cloud.platform.expire_lease(operation.operation_id)


async def test_a_worker_that_cannot_be_reached_fails_alone(lab: Lab, impatient_cloud: Cloud) -> None:
    cloud = impatient_cloud
    lab.command("cut", "gpu-3")
    try:
        async with cloud.controller():
            instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"])
            deployed = await cloud.perform(instance, "deploy")
            assert deployed.status == "failed"
            assert "gpu-3" in deployed.error.message
            assert cloud.worker(instance, "gpu-2").status == "ready"
            lost = cloud.worker(instance, "gpu-3")
            assert lost.status == "failed"
            assert lost.adapter_detail["phase"] == "reach the machine"
            gone = await cloud.perform(instance, "decommission")
            assert gone.status == "succeeded", gone.error
            assert "left_behind" in cloud.platform.member(lost.member_id).adapter_detail
            assert cloud.platform.member(lost.member_id).status == "tombstoned"
    finally:
        lab.command("heal", "gpu-3")


async def test_a_lost_worker_is_removed_only_by_force(lab: Lab, impatient_cloud: Cloud) -> None:
    cloud = impatient_cloud
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        lab.command("cut", "gpu-3")
        try:
            refused = await cloud.perform(instance, "remove", ["gpu-3"])
            assert refused.error.failure_class == "refused"
            assert "force" in refused.error.fix
            assert cloud.worker(instance, "gpu-3").status in ("ready", "failed"), "as before, or as a look found it"
            forced = await cloud.perform(instance, "remove", ["gpu-3"], force=True)
            assert forced.status == "succeeded", forced.error
            assert forced.targets[0].evidence.state == "unreachable"
            assert "drained" in await lab.run("gpu-1", "sinfo", "-N", "-h", "-n", "gpu-3", "-o", "%T")
            jobs = [(await _submit(lab, "--exclusive", "--wrap", "hostname")).split()[-1] for _ in range(6)]
        finally:
            lab.command("heal", "gpu-3")
        await lab.run("gpu-3", "systemctl", "restart", "slurmd")
        await _until(lab, "drained\n", "sinfo", "-N", "-h", "-n", "gpu-3", "-o", "%T")
        await _until_unknown(cloud, instance, "node gpu-3 was given up by force, and its slurmd has returned")
        for job in jobs:
            await _until(lab, "COMPLETED", "sacct", "-Xn", "-j", job, "-o", "State")
        assert "gpu-3" not in await lab.run("gpu-1", "sacct", "-Xn", "-j", ",".join(jobs), "-o", "NodeList")
        await _until(lab, "quiet", "sh", "-c", "squeue -h | grep -q . || echo quiet")
        gone = await cloud.perform(instance, "decommission")
        assert gone.status == "succeeded", gone.error


async def _until_unknown(cloud: Cloud, instance: Instance, text: str) -> None:
    async with asyncio.timeout(60):
        while True:
            conditions = cloud.platform.records.instances[instance.instance_id].conditions
            if any(text in each.message for each in conditions if each.type == plan.NODES_KNOWN):
                return
            await asyncio.sleep(0.2)


# What a machine has that lost its power while dpkg worked: a record of the last change that was not merged yet.
INTERRUPT_DPKG = "dpkg -s slurmd > /var/lib/dpkg/updates/0000 && apt-get check 2>&1 | grep -q 'dpkg was interrupted'"


async def test_a_dead_slurmd_and_an_interrupted_dpkg_do_not_stop_a_removal(lab: Lab, cloud: Cloud) -> None:
    before = {name: await lab.snapshot(name) for name in ("gpu-1", "gpu-2", "gpu-3")}
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        job = (await _submit(lab, "-w", "gpu-3", "--wrap", "sleep 300")).split()[-1]
        await _until(lab, "RUNNING", "squeue", "-h", "-j", job, "-o", "%T")
        await lab.run("gpu-3", "systemctl", "kill", "-s", "KILL", "slurmd")
        removed = await cloud.perform(instance, "remove", ["gpu-3"], force=True)
        assert removed.status == "succeeded", removed.error
        assert "gpu-3" not in await lab.run("gpu-1", "sinfo", "-N", "-h", "-o", "%N")
        await lab.run("gpu-2", "bash", "-c", INTERRUPT_DPKG)
        gone = await cloud.perform(instance, "decommission", force=True)
        assert gone.status == "succeeded", gone.error
    assert await _changes_since(lab, before) == {}


# What is left if apt-get is killed while it purges: packages that it had not reached, and one that is half-installed.
HALF_PURGED = r"""
dpkg --remove slurmd slurm-client
status='Status: deinstall ok half-installed'
sed -i "/^Package: slurm-wlm-basic-plugins\$/,/^\$/s/^Status: .*/$status/" /var/lib/dpkg/status
"""
# What is left if it is killed in the moment in which dpkg replaces the files of a package.
MARKED = HALF_PURGED.replace("deinstall ok half-installed", "install reinstreq unpacked")
# What is left if it is killed while it unpacks: packages without their dependencies.
HALF_UNPACKED = "dpkg --force-depends --purge slurm-wlm-basic-plugins && dpkg --unpack /srv/packages/slurmd_*.deb"


@pytest.mark.parametrize("interrupted", [HALF_PURGED, MARKED, HALF_UNPACKED], ids=["purge", "marked", "unpack"])
async def test_interrupted_package_work_is_repaired_by_the_next_installation_or_purge(
    lab: Lab, interrupted: str
) -> None:
    listed = ("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n")
    before = await lab.run("gpu-4", *listed)
    async with connect(lab.target("gpu-4")) as machine:
        await machine.run("mkdir", "-p", posixpath.dirname(receipts.path_of(SLURM, "inst_1")))
        receipt = receipts.Receipt("inst_1", ["worker"], [], [], [], [], [], [])
        for _ in range(2):
            await packages.install(machine, SLURM, receipt, ("worker",))
            await machine.script(interrupted)
        assert await apt.purge(machine, tuple(receipt.packages), SLURM.packages) == ()
    assert await lab.run("gpu-4", *listed) == before


async def test_a_cancelled_add_leaves_no_package_manager_running_and_no_trace(lab: Lab, cloud: Cloud) -> None:
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        before = await lab.snapshot("gpu-3")
        cloud.platform.records.add_member(instance, "worker", "gpu-3")
        requested = cloud.request(instance, "add", ["gpu-3"])
        await _until(lab, "apt-get", "sh", "-c", "pgrep -a apt-get || true", on="gpu-3")
        cloud.platform.cancel(requested.operation_id)
        ended = await cloud.platform.ended(requested.operation_id, timeout_s=300)
        assert ended.status == "cancelled", ended.error
        assert await lab.run("gpu-3", "sh", "-c", "pgrep -a 'apt-get|dpkg' || true") == ""
        assert await lab.snapshot("gpu-3") ^ before == set()


async def test_packages_that_were_installed_before_stay(lab: Lab, cloud: Cloud) -> None:
    await asyncio.gather(lab.preinstall("gpu-1", CONTROLLER_PACKAGES), lab.preinstall("gpu-2", WORKER_PACKAGES))
    before = {name: await lab.snapshot(name) for name in ("gpu-1", "gpu-2")}
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        gone = await cloud.perform(instance, "decommission")
        assert gone.status == "succeeded", gone.error
    assert await _changes_since(lab, before) == {}


async def test_a_cluster_works_again_by_itself_after_a_power_cut(lab: Lab, cloud: Cloud) -> None:
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        lab.command("kill", "gpu-1", "gpu-2")
        lab.command("start", "gpu-2", "gpu-1")
        # Slurm saves its state every few seconds, so a job that had just ended may still count as running: `mixed`.
        await _until(lab, "fit", "sh", "-c", "sinfo -N -h -o %T | grep -qxE 'idle|mixed' && echo fit || true")
        assert "COMPLETED" in await _first_batch_job(lab)


async def test_a_machine_of_another_instance_is_refused(lab: Lab, cloud: Cloud) -> None:
    async with cloud.controller():
        first = cloud.instance("gpu-1", ["gpu-2"])
        assert (await cloud.perform(first, "deploy")).status == "succeeded"
        second = cloud.instance("gpu-3", ["gpu-2"])
        refused = await cloud.perform(second, "deploy")
        assert refused.status == "failed"
        assert refused.error.failure_class == "refused"
        assert "another Slurm instance" in refused.error.message
        gone = await cloud.perform(second, "decommission")
        assert gone.status == "succeeded", gone.error
        assert await _until(lab, "idle", "sinfo", "-N", "-h", "-n", "gpu-2", "-o", "%T")
