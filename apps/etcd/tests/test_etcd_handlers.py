"""The handlers of the app on simulated machines."""

import pytest
from gpuaas_app_etcd import controller
from gpuaas_app_etcd.workload import etcd
from gpuaas_app_etcd.workload.footprint import DATA, SNAPSHOTS
from gpuaas_sdk.conformance import SimulatedMachine
from gpuaas_sdk.controller import quorum
from gpuaas_sdk.machine import Ran
from simulated_cluster import Cluster

THREE = ("n1", "n2", "n3")
READY = dict.fromkeys(THREE, "ready")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    short = quorum.Settings(start_s=5.0, answer_s=0.5, safe_s=0.1)
    monkeypatch.setattr(controller.PEERS, "settings", short)
    return Cluster()


async def test_three_members_serve_and_people_learn_how_to_use_them(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        deployed = await cluster.perform(instance, "deploy")
    assert (deployed.status, cluster.statuses(instance), cluster.voters()) == ("succeeded", READY, set(THREE))
    assert {member.observed_version for member in cluster.members(instance)} == {"3.5.16"}
    bundle = cluster.platform.access_bundle(instance)
    assert [endpoint.url for endpoint in bundle.endpoints] == [f"https://{name}:2379" for name in THREE]
    assert "--endpoints=https://n1:2379,https://n2:2379,https://n3:2379 member list" in bundle.commands[0].line
    assert bundle.paths["CA"] == etcd.CA


async def test_no_key_and_no_secret_is_in_a_command_line(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        await cluster.perform(instance, "add", ["n4"])
    keys = [cluster.machine(name).files[etcd.KEY].decode().splitlines()[1] for name in (*THREE, "n4")]
    assert len(set(keys)) == 4
    secrets = [*keys, *cluster.platform.secrets._values.values()]
    assert [argv for argv in cluster.argv for word in argv for secret in secrets if secret in word] == []


async def test_an_even_number_of_members_is_refused_before_anything_is_changed(cluster: Cluster) -> None:
    async with cluster.running():
        refused = await cluster.perform(cluster.instance("n1", "n2"), "deploy")
    assert (refused.status, refused.error.code, cluster.argv) == ("failed", "refused", [])


async def test_a_new_member_has_a_vote_before_the_old_one_leaves(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        replaced = await cluster.perform(instance, "replace", ["n1"], replacements=["n4"])
    assert (replaced.status, cluster.voters()) == ("succeeded", {"n2", "n3", "n4"})
    assert cluster.driver.changes == ["add", "promote", "remove"]
    assert cluster.machine("n1").files == {}


async def test_a_member_is_not_removed_while_the_others_have_no_quorum_without_it(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        cluster.machine("n2").units.pop("etcd.service")
        refused = await cluster.perform(instance, "remove", ["n1"])
        assert (refused.status, refused.targets[0].outcome) == ("failed", "refused")
        assert "without n1 there would be no quorum" in refused.targets[0].error
        assert (cluster.statuses(instance)["n1"], len(cluster.voters())) == ("ready", 3)
        removed = await cluster.perform(instance, "remove", ["n2"])
    assert (removed.status, cluster.voters()) == ("succeeded", {"n1", "n3"})
    evidence = removed.targets[0].evidence
    assert (evidence.state, evidence.detail) == ("idle", "2 others keep the quorum")


async def test_a_preview_of_a_removal_or_a_replacement_announces_its_refusal(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        healthy = [await cluster.preview(instance, kind, "n1") for kind in ("remove", "replace", "restart")]
        cluster.machine("n2").units.pop("etcd.service")
        one_away = [await cluster.preview(instance, kind, "n1") for kind in ("remove", "replace", "restart")]
        that_one = await cluster.preview(instance, "remove", "n2")
        cluster.machine("n3").units.pop("etcd.service")
        two_away = await cluster.preview(instance, "replace", "n1")
    assert [(shown.refusal, shown.notes) for shown in healthy] == [("", [])] * 3
    assert "without n1 there would be no quorum" in one_away[0].refusal
    assert "repair the members" in one_away[0].refusal
    assert [shown.refusal for shown in one_away[1:]] == ["", ""], "a new machine serves before the old one leaves"
    assert all("do not serve now: n2" in shown.notes[0] for shown in one_away)
    assert (that_one.refusal, that_one.notes) == ("", [])
    assert "without n1 there would be no quorum" in two_away.refusal


async def test_a_member_that_was_never_ready_can_have_a_vote_that_the_others_need(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves = cluster.driver.serves
    async with cluster.running():
        instance = cluster.instance(*THREE)
        monkeypatch.setattr(cluster.driver, "serves", lambda machine: machine.name != "n3" and serves(machine))
        await cluster.perform(instance, "deploy")
        assert cluster.statuses(instance) == {**READY, "n3": "failed"}
        monkeypatch.setattr(cluster.driver, "serves", serves)
        cluster.machine("n2").units.pop("etcd.service")
        refused = await cluster.perform(instance, "remove", ["n3"])
    assert (refused.status, refused.targets[0].outcome, cluster.voters()) == ("failed", "refused", set(THREE))


async def test_a_silent_machine_is_given_up_by_force_and_loses_its_vote(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        [lost] = [member for member in cluster.members(instance) if member.node_name == "n3"]
        cluster.silent.add("n3")
        removed = await cluster.perform(instance, "remove", ["n3"], force=True, reason="burnt")
    assert (removed.status, cluster.voters()) == ("succeeded", {"n1", "n2"})
    assert cluster.platform.member(lost.member_id).status == "tombstoned"
    assert removed.targets[0].left[0].what == "etcd (member) on n3"


async def test_the_first_member_that_fails_stops_a_rolling_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        respond = cluster.driver.respond

        def broken(machine: object, argv: tuple[str, ...], data: bytes) -> Ran | None:
            is_restart = argv[:2] == ("systemctl", "restart")
            return Ran(1, "", "no such library") if is_restart else respond(machine, argv, data)  # type: ignore[arg-type]

        monkeypatch.setattr(cluster.driver, "respond", broken)
        failed = await cluster.perform(instance, "restart")
    assert (failed.status, "no such library" in failed.error.message) == ("failed", True)
    assert sum(argv[:2] == ("systemctl", "restart") for argv in cluster.argv) == 1


async def test_a_rolling_restart_waits_for_each_member_before_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    asked: dict[str, int] = {}

    def slow(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        """A member that restarted serves from the third question about its health."""
        if argv[:2] == ("systemctl", "restart"):
            events.append(f"{machine.name} restarts")
            asked[machine.name] = 0
        elif argv[:2] == ("python3", "-c") and machine.name in asked:
            asked[machine.name] += 1
            if asked[machine.name] == 3:
                events.append(f"{machine.name} serves")
            elif asked[machine.name] < 3:
                return Ran(0, '{"health": "false", "reason": "it starts"}', "")
        return respond(machine, argv, data)

    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        respond = cluster.driver.respond
        monkeypatch.setattr(cluster.driver, "respond", slow)
        restarted = await cluster.perform(instance, "restart")
        ended = list(events)
    assert restarted.status == "succeeded"
    assert ended == [f"{name} {what}" for name in THREE for what in ("restarts", "serves")]


async def test_no_member_restarts_while_another_one_is_away(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        cluster.machine("n3").units.pop("etcd.service")
        operation = cluster.request(instance, "restart")
        await cluster.platform.until(
            operation.operation_id, lambda now: any("waits, because others" in step.message for step in now.steps)
        )
        assert [argv for argv in cluster.argv if argv[:2] == ("systemctl", "restart")] == []
        cluster.machine("n3").units["etcd.service"] = "active"
        assert (await cluster.platform.ended(operation.operation_id, timeout_s=60)).status == "succeeded"


async def test_a_member_without_its_data_gives_up_its_vote_and_joins_as_a_new_one(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        machine = cluster.machine("n1")
        machine.units.clear()
        machine.remove([DATA])
        repaired = await cluster.perform(instance, "repair", ["n1"])
    assert (repaired.status, cluster.voters(), cluster.statuses(instance)) == ("succeeded", set(THREE), READY)
    assert cluster.driver.changes == ["remove", "add", "promote"]


async def test_after_the_secret_has_expired_no_member_joins_until_all_were_stopped(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        cluster.platform.secrets.secrets.clear()
        failed = await cluster.perform(instance, "repair", ["n1"])
        assert (failed.status, "the TLS secret of the instance has expired" in failed.error.message) == ("failed", True)
        for kind in ("stop", "start"):
            assert (await cluster.perform(instance, kind)).status == "succeeded"
        assert (await cluster.perform(instance, "add", ["n4"])).status == "succeeded"
    assert len({cluster.machine(name).files[etcd.CA] for name in (*THREE, "n4")}) == 1


async def test_a_snapshot_is_saved_once_and_restored_on_all_members(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        saved = await cluster.act(instance, "snapshot.save")
        row = saved.result["rows"][0]
        restored = await cluster.act(instance, "snapshot.restore", snapshot=row["snapshot"])
        absent = await cluster.act(instance, "snapshot.restore", snapshot="other.db")
    assert (restored.status, restored.result["rows"], cluster.voters()) == ("succeeded", [row], set(THREE))
    assert (absent.status, absent.error.code) == ("failed", "refused")
    flags = next(argv for argv in cluster.argv if argv[:3] == ("etcdutl", "snapshot", "restore"))
    assert "--initial-cluster=alloc_n1=https://n1:2380" in flags


async def test_a_snapshot_is_on_one_machine_although_the_controller_crashed_and_another_member_answered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if "save" not in argv or machine.name != "n1":
            return respond(machine, argv, data)
        machine.files[f"{argv[-1]}.part"] = b"cut"
        return Ran(1, "", "connection lost")

    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        respond = cluster.driver.respond
        monkeypatch.setattr(cluster.driver, "respond", cut)
        operation = cluster.platform.invoke(cluster.platform.instance(instance.instance_id), "snapshot.save", {})
        await cluster.platform.until(operation.operation_id, lambda now: cluster.machine("n1").has(SNAPSHOTS))
    cluster.platform.expire_lease(operation.operation_id)
    cluster.machine("n1").units.pop("etcd.service")
    async with cluster.running():
        ended = await cluster.platform.ended(operation.operation_id, timeout_s=60)
    assert ended.status == "succeeded"
    assert ended.result is not None
    [row] = ended.result["rows"]
    files = {name: [path for path in cluster.machine(name).files if SNAPSHOTS in path] for name in THREE}
    assert (row["machine"], files) == ("n2", {"n1": [], "n2": [row["path"]], "n3": []})


async def test_a_damaged_snapshot_leaves_the_data_of_every_member(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        cluster.machine("n2").files[f"{SNAPSHOTS}/mine.db"] = b"cut"
        respond = cluster.driver.respond

        def damaged(machine: object, argv: tuple[str, ...], data: bytes) -> Ran | None:
            is_restore = argv[:3] == ("etcdutl", "snapshot", "restore")
            return Ran(1, "", "hash mismatch") if is_restore else respond(machine, argv, data)  # type: ignore[arg-type]

        monkeypatch.setattr(cluster.driver, "respond", damaged)
        failed = await cluster.act(instance, "snapshot.restore", snapshot="mine.db")
    assert (failed.status, "hash mismatch" in failed.error.message) == ("failed", True)
    assert [name for name in THREE if not cluster.machine(name).has(f"{DATA}/member")] == []
    assert cluster.voters() == set(THREE)


async def test_a_removal_that_had_begun_is_not_refused_after_a_crash(cluster: Cluster) -> None:
    async with cluster.running():
        instance = cluster.instance(*THREE)
        await cluster.perform(instance, "deploy")
        cluster.silent.add("n1")
        operation = cluster.request(instance, "remove", ["n1"])
        await cluster.platform.until(
            operation.operation_id, lambda now: cluster.statuses(instance)["n1"] == "removing", timeout_s=60
        )
    cluster.platform.expire_lease(operation.operation_id)
    cluster.silent.clear()
    cluster.machine("n2").units.pop("etcd.service")
    async with cluster.running():
        ended = await cluster.platform.ended(operation.operation_id, timeout_s=60)
    assert (ended.status, ended.targets[0].outcome, cluster.voters()) == ("succeeded", "succeeded", {"n2", "n3"})
