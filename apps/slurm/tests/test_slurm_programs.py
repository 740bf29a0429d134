"""A machine that joined with an earlier release of the app gets the health programs of this one by a repair."""

import pytest
from gpuaas_app_slurm.workload import config, footprint, programs, reporter, reporter_program
from gpuaas_app_slurm_conformance.fresh_machines import new_cluster
from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine, commands

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2"]}
HEALTH_CHECK = config.health_check().path


@pytest.mark.parametrize("name", ["gpu-1", "gpu-2"])
async def test_a_repair_replaces_the_programs_of_another_release_and_keeps_slurm_running(name: str) -> None:
    async with new_cluster(MEMBERS) as cluster:
        assert (await cluster.perform("deploy")).status == "succeeded"
        host = cluster.host(name)
        present = {path: host.files[path] for path in (reporter.PROGRAM_PATH, HEALTH_CHECK)}
        listed = host.files[footprint.FILES_LIST]
        host.files |= dict.fromkeys(present, b"of an earlier release")
        await reporter.remember(Machine(host))
        assert host.files[footprint.FILES_LIST] != listed
        started = list(host.started)
        ended = await cluster.perform("repair", [cluster.member_of(cluster.instance, name)])
        assert ended.status == "succeeded", ended.error
        assert {path: host.files[path] for path in present} == present == {path: host.saved[path] for path in present}
        assert host.files[footprint.FILES_LIST] == listed
        assert not [unit for unit in host.started[len(started) :] if unit.startswith("slurm")]


async def test_a_repair_of_a_machine_with_the_programs_of_this_release_writes_none() -> None:
    async with new_cluster(MEMBERS) as cluster:
        assert (await cluster.perform("deploy")).status == "succeeded"
        host = cluster.host("gpu-2")
        listed = reporter_program.parsed(host.files[footprint.FILES_LIST].decode())
        assert reporter_program.programs(listed) == programs.digest()
        since = len(host.commands)
        assert (await cluster.perform("repair", [cluster.member("gpu-2")])).status == "succeeded"
        summaries = [command.summary for command in host.commands[since:]]
        assert commands.put_all([config.health_check()]).summary not in summaries
        assert units.RELOAD.summary not in summaries
