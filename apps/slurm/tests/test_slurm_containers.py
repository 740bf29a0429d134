"""Containers on a fake Slurm: which machines get crun and oci.conf, the check of a worker, repairs and removals."""

import pathlib
import re

import jsonschema_rs
import msgspec
import pytest
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.workload import config, containers, footprint
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from gpuaas_sdk.controller import App
from test_slurm_upgrade import NEW, add_version, move

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2"], "login": ["gpu-4"]}
OCI_CONF = footprint.OCI_CONF
CRUN = footprint.CONTAINER_PACKAGES[0]
GOLDEN = pathlib.Path(__file__).parent / "golden" / "oci.conf"


async def deployed(cluster: NewCluster) -> None:
    ended = await cluster.perform("deploy")
    assert ended.status == "succeeded", ended.error


def has(cluster: NewCluster, name: str) -> tuple[bool, bool]:
    """Return whether the machine has crun, and whether it has oci.conf."""
    host = cluster.host(name)
    return CRUN in host.installed, OCI_CONF in host.files


def checks(cluster: NewCluster, name: str) -> list[str | None]:
    """Return as whom containers were tried on the machine."""
    return [command.as_user for command in cluster.host(name).commands if containers.CHECK in command.argv]


def sent(cluster: NewCluster) -> int:
    """Return how often slurmctld was asked to send its files to every slurmd."""
    return sum(command.argv == ("scontrol", "reconfigure") for command in cluster.host("gpu-1").commands)


async def test_workers_get_crun_and_the_controller_machine_gets_oci_conf() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        assert {name: has(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")} == {
            "gpu-1": (False, True),
            "gpu-2": (True, False),
            "gpu-4": (False, False),
        }


async def test_a_cluster_without_the_option_has_nothing_of_it_and_tries_no_container() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await deployed(cluster)
        assert {has(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")} == {(False, False)}
        assert [checks(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")] == [[], [], []]


async def test_a_machine_that_is_controller_and_worker_has_both() -> None:
    members = {"controller": ["gpu-1"], "worker": ["gpu-1"]}
    async with new_cluster(members, topology="single_node", containers="oci") as cluster:
        await deployed(cluster)
        assert (has(cluster, "gpu-1"), checks(cluster, "gpu-1")) == ((True, True), ["researcher"])


async def test_a_container_is_tried_on_each_worker_as_a_normal_user_before_it_joins() -> None:
    async with new_cluster(MEMBERS, containers="oci", users=["ada"]) as cluster:
        await deployed(cluster)
        assert {name: checks(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")} == {
            "gpu-1": [],
            "gpu-2": ["ada"],
            "gpu-4": [],
        }


async def test_a_worker_that_runs_no_containers_fails_alone_with_the_reason_and_never_joins() -> None:
    members = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
    async with new_cluster(members, containers="oci") as cluster:
        cluster.faults.without_containers.add("gpu-3")
        ended = await cluster.perform("deploy")
        assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready", "gpu-3": "failed"}
        assert "gpu-3 does not run containers of normal users" in ended.error.message
        assert "clone: Operation not permitted" in ended.error.message
        assert "cat /proc/sys/user/max_user_namespaces" in ended.error.fix
        assert "gpu-3" not in cluster.slurm.nodes


async def test_a_worker_that_joins_later_gets_crun_and_must_run_a_container() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        cluster.faults.without_containers.add("gpu-6")
        good, bad = cluster.add_worker("gpu-5"), cluster.add_worker("gpu-6")
        await cluster.perform("add", [good, bad])
        assert (has(cluster, "gpu-5"), checks(cluster, "gpu-5")) == ((True, False), ["researcher"])
        assert (cluster.statuses()["gpu-5"], cluster.statuses()["gpu-6"]) == ("ready", "failed")


async def test_a_new_machine_of_a_worker_gets_crun() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        ended = await cluster.perform("replace", [cluster.member("gpu-2")], replacements=["gpu-5"])
        assert ended.status == "succeeded", ended.error
        assert (has(cluster, "gpu-5"), has(cluster, "gpu-2")) == ((True, False), (False, False))


async def test_a_new_machine_that_runs_no_containers_does_not_take_the_place_of_a_worker() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        cluster.faults.without_containers.add("gpu-5")
        ended = await cluster.perform("replace", [cluster.member("gpu-2")], replacements=["gpu-5"])
        assert (ended.status, ended.error.code) == ("failed", "refused")
        assert "gpu-5 does not run containers of normal users" in ended.error.message
        assert (has(cluster, "gpu-5"), has(cluster, "gpu-2")) == ((False, False), (True, False))


async def test_oci_conf_moves_with_the_controller() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        ended = await cluster.perform("replace", [cluster.member_of(cluster.instance, "gpu-1")], replacements=["gpu-5"])
        assert ended.status == "succeeded", ended.error
        assert (has(cluster, "gpu-1"), has(cluster, "gpu-5")) == ((False, False), (False, True))


async def test_a_repair_puts_oci_conf_back_and_sends_it_to_every_slurmd() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        host = cluster.host("gpu-1")
        written = host.saved[OCI_CONF]
        host.files[OCI_CONF] = b"RunTimeRun=/bin/false\n"
        assert not sent(cluster)
        ended = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-1")])
        assert ended.status == "succeeded", ended.error
        assert (host.files[OCI_CONF], sent(cluster)) == (written, 1)


async def test_a_repair_sends_no_files_if_none_was_changed() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        ended = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-1")])
        assert (ended.status, sent(cluster)) == ("succeeded", 0)


async def test_an_upgrade_keeps_crun_and_oci_conf() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version="1.0.0"))
        await deployed(cluster)
        ended = await move(cluster, "upgrade", add_version(cluster, NEW))
        assert ended.status == "succeeded", ended.error
        assert (has(cluster, "gpu-1"), has(cluster, "gpu-2")) == ((False, True), (True, False))


async def test_a_decommission_removes_crun_and_oci_conf() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        await deployed(cluster)
        assert (await cluster.perform("decommission")).status == "succeeded"
        assert {has(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")} == {(False, False)}


async def test_a_crun_that_was_there_before_stays() -> None:
    async with new_cluster(MEMBERS, containers="oci") as cluster:
        cluster.host("gpu-2").installed.add(CRUN)
        await deployed(cluster)
        assert (await cluster.perform("decommission")).status == "succeeded"
        assert CRUN in cluster.host("gpu-2").installed


def test_oci_conf_is_the_golden_one() -> None:
    wanted = config.Cluster("inst_1", "lab", "gpu-1", "10.0.0.1", "v2", 1000, containers="oci")
    [file] = [each for each in config.controller_files(wanted) if each.path == OCI_CONF]
    assert (file.content, file.mode) == (GOLDEN.read_text(), 0o644)


def test_oci_conf_has_every_command_that_slurm_requires_and_root_uses_no_state_of_a_user() -> None:
    """Slurm fails each job with a container if one is missing. It runs all but RunTimeRun as root, in a folder of the
    user: crun would act on what the user wrote there."""
    commands = dict(re.findall(r'^RunTime(\w+)="(.*)"$', GOLDEN.read_text(), re.MULTILINE))
    assert commands.keys() == {"EnvExclude", "Query", "Kill", "Delete", "Run"}
    assert commands["Run"].startswith(f"exec {containers.CRUN} --root=%b/state run ")
    assert not [name for name in ("Query", "Kill", "Delete") if "crun" in commands[name]]
    assert "runuser -u %u -- rm" in commands["Query"]
    assert not [text for text in commands.values() if '"' in text or "\\" in text]  # Slurm cannot read these.


def test_the_check_runs_a_container_as_oci_conf_does() -> None:
    assert f'{containers.CRUN} --root="$folder/state" run {containers.RUN_OPTIONS} --bundle' in containers.CHECK


def test_the_form_has_the_option_and_it_cannot_be_changed_later() -> None:
    form = controller.app.manifest.deploy_form
    inputs = {"cluster_name": "lab", "controller_allocation_id": "alloc_1"}
    jsonschema_rs.validate(form, inputs | {"containers": "oci"})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(form, inputs | {"containers": "docker"})
    assert config.parse_inputs(inputs).containers == form["properties"]["containers"]["default"]
    assert "x-gpuaas-changeable" not in form["properties"]["containers"]


def test_bundles_and_the_package_sources_of_labs_have_crun() -> None:
    app: App = controller.app
    assert CRUN in app.packages
    assert CRUN in controller.OPTIONS
