"""Replace the authentication key of a cluster: every pair of daemons accepts each other at every moment."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from crashes import ended_despite_crash
from gpuaas_app_slurm import auth_actions, checks, controller
from gpuaas_app_slurm.workload import key_rotation, key_sets, keys, reporter_program, state
from gpuaas_app_slurm.workload.observed import Observed, Report, Reported
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster
from gpuaas_sdk.checks import Check
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.machine import Machine
from test_slurm_checks import HEAD, MACHINE, SOUND, node

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
NAMES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
COMMANDS_BETWEEN = 7
"""The controller is killed before every so many commands on the machine of slurmctld."""
OLD = b"key made on gpu-1"


def _keys(cluster: NewCluster, *names: str) -> set[bytes | None]:
    return {cluster.host(name).files.get(keys.SLURM_KEY) for name in names}


def _is_rotated(cluster: NewCluster, *names: str) -> bool:
    """Whether these machines and their daemons have one key, which is not the old one."""
    held = _keys(cluster, *names)
    loaded = {key.signs_with for (name, _), key in cluster.slurm.keys.daemons.items() if name in names}
    sets = [name for name in names if keys.KEY_SET in cluster.host(name).files]
    named = [key for (name, _), key in cluster.slurm.keys.daemons.items() if name in names and key.by_name]
    return held == loaded and len(held) == 1 and held != {OLD} and not sets and not named


async def _rotated(cluster: NewCluster) -> Any:
    await cluster.perform("deploy")
    cluster.slurm.keys.refused.clear()  # Daemons start one after the other in a deploy.
    return await cluster.act("auth.rotate")


async def test_every_machine_gets_the_new_key_and_no_daemon_ever_refuses_another() -> None:
    async with new_cluster(MEMBERS) as cluster:
        ended = await _rotated(cluster)
        assert ended.status == "succeeded", ended.error
        assert _is_rotated(cluster, *NAMES)
        assert cluster.slurm.keys.refused == []
        assert [(row["machine"], row["role"]) for row in ended.result["rows"]] == [
            ("gpu-1", "controller"),
            ("gpu-2", "worker"),
            ("gpu-3", "worker"),
            ("gpu-4", "login"),
        ]
        assert {row["state"] for row in ended.result["rows"]} == {auth_actions.NEW}


async def test_the_key_of_one_machine_with_both_roles_is_replaced() -> None:
    async with new_cluster({"controller": ["gpu-1"], "worker": ["gpu-1"]}, topology="single_node") as cluster:
        ended = await _rotated(cluster)
        assert ended.status == "succeeded", ended.error
        assert (_is_rotated(cluster, "gpu-1"), cluster.slurm.keys.refused) == (True, [])


async def test_the_new_key_counts_as_what_the_app_wrote_so_no_repair_brings_the_old_one_back() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await _rotated(cluster)
        new = _keys(cluster, "gpu-1")
        for name in ("gpu-1", "gpu-2"):
            await cluster.perform("repair", [cluster.member_of(cluster.instance, name)])
            assert _keys(cluster, name) == new


async def test_no_key_is_in_the_result_the_steps_or_the_log_of_the_operation() -> None:
    async with new_cluster(MEMBERS) as cluster:
        ended = await _rotated(cluster)
        (new,) = _keys(cluster, "gpu-1")
        assert new is not None
        shown = f"{ended!r} {cluster.platform.records!r}"
        assert key_sets.started(OLD, new).keys[1].k not in shown
        assert repr(new) not in shown


async def test_a_cluster_whose_controller_dies_between_commands_is_finished_by_the_next_one() -> None:
    commands, is_hung = 0, True
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.platform.records.manifests[cluster.instance.app_version] = controller.app.manifest
    while is_hung:
        cluster.slurm.keys.refused.clear()
        before = _keys(cluster, "gpu-1")
        operation = cluster.platform.invoke(cluster.instance, "auth.rotate", {})
        ended, is_hung = await ended_despite_crash(cluster, operation.operation_id, commands)
        assert ended.status == "succeeded", (commands, ended.error)
        assert _is_rotated(cluster, *NAMES), commands
        assert (cluster.slurm.keys.refused, _keys(cluster, "gpu-1") != before) == ([], True), commands
        commands += COMMANDS_BETWEEN
    assert commands > 20


async def test_a_rotation_that_was_given_up_is_finished_by_the_next_one_with_the_same_new_key() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.slurm.keys.refused.clear()
        left = key_sets.started(OLD, b"made by the first attempt")
        cluster.host("gpu-1").files[keys.KEY_SET] = key_sets.encode(left)
        ended = await cluster.act("auth.rotate")
        assert ended.status == "succeeded", ended.error
        assert _keys(cluster, *NAMES) == {b"made by the first attempt"}
        assert (_is_rotated(cluster, *NAMES), cluster.slurm.keys.refused) == (True, [])


async def test_the_end_repeated_after_the_set_was_deleted_gives_a_machine_the_new_key() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await _rotated(cluster)
        host, (new,) = cluster.host("gpu-2"), _keys(cluster, "gpu-1")
        host.files[keys.SLURM_KEY] = OLD
        head = Machine(cluster.host("gpu-1"))
        await key_rotation.finish(Machine(host), head, QUICK, lambda text: asyncio.sleep(0))
        assert (_keys(cluster, "gpu-2"), host._changed()) == ({new}, [])


async def test_a_machine_that_is_down_is_named_and_gets_the_new_key_by_its_repair() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        silent = cluster.host("gpu-3")
        silent.reachable, cluster.slurm.nodes["gpu-3"] = False, ["DOWN", "NOT_RESPONDING"]
        ended = await cluster.act("auth.rotate")
        assert ended.status == "succeeded", ended.error
        states = {row["machine"]: row["state"] for row in ended.result["rows"]}
        assert states == dict.fromkeys(NAMES, auth_actions.NEW) | {"gpu-3": auth_actions.LATER}
        assert (_is_rotated(cluster, "gpu-1", "gpu-2", "gpu-4"), _keys(cluster, "gpu-3")) == (True, {OLD})
        silent.reachable = True
        repaired = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-3")])
        assert repaired.status == "succeeded", repaired.error
        assert _is_rotated(cluster, *NAMES)
        assert keys.SLURM_KEY not in silent._changed(), "the key that the repair brought counts as right"


async def test_a_machine_that_slurm_uses_and_that_does_not_answer_stops_the_rotation_before_anything_changes() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.host("gpu-3").reachable = False
        ended = await cluster.act("auth.rotate")
        assert (ended.status, ended.error.failure_class) == ("failed", "refused")
        assert "gpu-3 does not answer, and Slurm uses its node (IDLE)" in ended.error.message
        assert (_keys(cluster, *NAMES), keys.KEY_SET in cluster.host("gpu-1").files) == ({OLD}, False)


async def test_an_edit_of_a_file_of_the_app_is_not_adopted_with_the_new_key() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.host("gpu-2").files["/etc/slurm/gpuaas-gres.conf"] = b"edited"
        ended = await cluster.act("auth.rotate")
        assert ended.error.failure_class == "refused"
        assert (
            "files on gpu-2 were changed after the app wrote them: /etc/slurm/gpuaas-gres.conf" in ended.error.message
        )
        assert _keys(cluster, *NAMES) == {OLD}


async def test_a_cluster_with_munge_or_an_old_slurm_is_refused() -> None:
    async with new_cluster(MEMBERS, auth="munge") as cluster:
        await cluster.perform("deploy")
        ended = await cluster.act("auth.rotate")
        assert (ended.error.failure_class, "munge has one key" in ended.error.message) == ("refused", True)
        assert "restart munge on the controller machine" in ended.error.fix
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        cluster.slurm.version = "23.11.4"
        ended = await cluster.act("auth.rotate")
        assert (ended.error.failure_class, "Slurm 23.11.4 cannot have two keys" in ended.error.message) == (
            "refused",
            True,
        )


async def test_a_worker_that_joins_while_two_keys_are_accepted_gets_both() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        content = key_sets.encode(key_sets.started(OLD, b"the new key of the cluster"))
        cluster.host("gpu-1").files[keys.KEY_SET] = content
        await cluster.perform("add", [cluster.add_worker("gpu-5")])
        assert cluster.host("gpu-5").files[keys.KEY_SET] == content


async def test_a_decommission_after_an_unfinished_rotation_leaves_no_key() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        for name in NAMES:
            cluster.host(name).files[keys.KEY_SET] = b"two keys"
        ended = await cluster.perform("decommission")
        assert ended.status == "succeeded", ended.error
        assert [name for name in NAMES if keys.KEY_SET in cluster.host(name).files] == []


def test_a_key_set_names_its_keys_by_their_content_and_signs_with_one_of_them() -> None:
    first = key_sets.started(b"old" * 10, b"new" * 10)
    second = key_sets.switched(first)
    assert [key.kid for key in first.keys] == [key.kid for key in second.keys]
    assert [key.use for key in (*first.keys, *second.keys)] == ["default", "", "", "default"]
    assert key_sets.decode(key_sets.encode(second)) == second
    assert second.new == b"new" * 10


@pytest.mark.parametrize("content", [b"", b"{}", b'{"keys":[]}', b'{"keys":[{"kid":"a","k":"c2VjcmV0"}]}'])
def test_a_key_set_of_others_is_refused_without_showing_it(content: bytes) -> None:
    with pytest.raises(Refused) as refused:
        key_sets.decode(content)
    assert "was not written by this app" in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "ok"), [({"DOWN", "NOT_RESPONDING"}, True), ({"IDLE", "NOT_RESPONDING"}, False), ({"MIXED"}, False)]
)
def test_only_a_node_that_slurm_does_not_use_may_miss_a_rotation(flags: set[str], ok: bool) -> None:
    assert key_rotation.may_miss("gpu-2", state.Node("gpu-2", frozenset(flags))).ok is ok
    assert key_rotation.may_miss("gpu-2", None).ok


def test_releases_that_read_key_sets_are_known_by_their_number() -> None:
    read = [
        version for version in ("23.11.4", "24.05.0", "24.11.5", "26.05.5", "") if key_rotation.reads_key_sets(version)
    ]
    assert read == ["24.05.0", "24.11.5", "26.05.5"]


def test_the_reporter_shows_a_rotation_and_that_one_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key_set = tmp_path / "slurm.jwks"
    monkeypatch.setattr(reporter_program, "KEY_SET", str(key_set))
    assert reporter_program.rotation() == ""
    key_set.write_text("{}")
    assert reporter_program.rotation() == "runs"
    monkeypatch.setattr(time, "time", lambda: key_set.stat().st_mtime + reporter_program.ROTATION_S + 1)
    assert reporter_program.rotation() == "left"


def test_a_rotation_that_was_left_is_a_finding_and_one_that_runs_is_none() -> None:
    def codes(rotation: str) -> list[str]:
        own = Reported(report=Report(key="aa", rotation=rotation), is_stale=False)
        return [finding.code for finding in checks.of_controller(MACHINE, Observed(Check(True), Check(True), {}, own))]

    assert (codes(""), codes("runs"), codes("left")) == ([], [], ["KeyRotationLeft"])


def test_machines_with_different_keys_are_no_fault_while_the_key_is_replaced() -> None:
    worker = node(report=Report(units=SOUND.units, key="bb", package=SOUND.package))
    rotating = Reported(report=Report(key="aa", rotation="runs"), is_stale=False)
    assert [finding.code for finding in checks.of_worker(MACHINE, worker, None, HEAD, "24.11.5")] == ["KeyMismatch"]
    assert checks.of_worker(MACHINE, worker, None, rotating, "24.11.5") == []


def test_a_machine_that_was_away_at_the_end_of_a_rotation_is_repaired() -> None:
    def findings(rotation: str) -> list[tuple[str, bool]]:
        report = Report(units=SOUND.units, key="aa", package=SOUND.package, rotation=rotation)
        worker = node(report=report)
        return [(each.code, each.repairs) for each in checks.of_worker(MACHINE, worker, None, HEAD, "24.11.5")]

    assert findings("left") == [("KeyRotationLeft", True)]
    assert findings("runs") == [], "its report may be older than that of the controller machine"


async def test_a_repair_takes_the_old_key_from_a_machine_that_was_away_at_the_end() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await _rotated(cluster)
        late, (new,) = cluster.host("gpu-3"), _keys(cluster, "gpu-1")
        assert new is not None
        late.files[keys.KEY_SET] = key_sets.encode(key_sets.switched(key_sets.started(OLD, new)))
        cluster.slurm.keys.start("gpu-3", "slurmd", late.files)
        assert not _is_rotated(cluster, *NAMES)
        repaired = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-3")])
        assert repaired.status == "succeeded", repaired.error
        assert (_is_rotated(cluster, *NAMES), cluster.slurm.keys.refused) == (True, [])
