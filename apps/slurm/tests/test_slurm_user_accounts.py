"""The Unix accounts of users who are not people of the project, without machines: a removed user stays removed beside
other operations, a dead machine does not stop a removal, and people keep their logins and numbers."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from gpuaas_app_slurm.workload import keys, users
from gpuaas_app_slurm.workload.people import Person
from gpuaas_app_slurm.workload.users import User
from gpuaas_app_slurm_conformance.fake_slurm import Cluster, deployed_cluster
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.machine import Ran
from test_slurm_users import joins, rows

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"]}
MACHINES = ["gpu-1", "gpu-2", "gpu-3"]
ZOE = Person("zoe", 6000, 6000)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster("gpu-2", "gpu-3") as deployed:
        deployed.machines.host("gpu-1").files[keys.SLURM_KEY] = b"key"
        assert (await deployed.act("users.add", names=["mallory"])).status == "succeeded"
        yield deployed


@pytest.fixture
async def fresh() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS) as deployed:
        assert (await deployed.perform("deploy")).status == "succeeded"
        assert (await deployed.act("users.add", names=["mallory"])).status == "succeeded"
        yield deployed


def _is_expired(cluster: Cluster, name: str) -> dict[str, bool]:
    return {machine: here[name][1] for machine, here in cluster.slurm.accounting.unix.items() if name in here}


def _removed_before_a_write(cluster: Cluster, is_now: Callable[[str], bool] = lambda machine: True) -> None:
    """Have mallory removed after an operation has read the users and before it writes them."""

    def remove(machine: str) -> None:
        if is_now(machine):
            accounting = cluster.slurm.accounting
            accounting.on_ensure = None
            for here in accounting.unix.values():
                here["mallory"] = (here["mallory"][0], True)
            accounting.users["mallory"]["GrpSubmitJobs"] = "0"

    cluster.slurm.accounting.on_ensure = remove


@pytest.mark.parametrize("work", ["users.sync", "users.add", "repair"])
async def test_a_user_who_is_removed_during_other_work_stays_removed(cluster: Cluster, work: str) -> None:
    _removed_before_a_write(cluster)
    if work == "repair":
        ended = await cluster.perform("repair", [cluster.member("gpu-2")])
    else:
        inputs: dict[str, Any] = {"names": ["bob"]} if work == "users.add" else {}
        ended = await cluster.act(work, **inputs)
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.accounting.on_ensure is None
    assert _is_expired(cluster, "mallory") == dict.fromkeys(MACHINES, True)
    assert cluster.slurm.accounting.users["mallory"]["GrpSubmitJobs"] == "0"


@pytest.mark.parametrize("work", ["add", "replace", "replace of the controller"])
async def test_a_user_who_is_removed_while_a_machine_is_installed_is_removed_there_too(
    fresh: NewCluster, work: str
) -> None:
    _removed_before_a_write(fresh, lambda machine: machine == "gpu-5")
    if work == "add":
        ended = await fresh.perform("add", [fresh.add_worker("gpu-5")])
    else:
        old = "gpu-2" if work == "replace" else "gpu-1"
        ended = await fresh.perform("replace", [fresh.member_of(fresh.instance, old)], replacements=["gpu-5"])
    assert ended.status == "succeeded", ended.error
    assert _is_expired(fresh, "mallory") == dict.fromkeys([*MACHINES, "gpu-5"], True)
    assert fresh.slurm.accounting.users["mallory"]["GrpSubmitJobs"] == "0"


async def test_a_user_who_is_added_while_a_machine_is_installed_gets_an_account_there(fresh: NewCluster) -> None:
    def add(machine: str) -> None:
        if machine == "gpu-5":
            fresh.slurm.accounting.on_ensure = None
            for name in MACHINES:
                fresh.slurm.accounting.unix[name]["bob"] = ("6002", False)

    fresh.slurm.accounting.on_ensure = add
    assert (await fresh.perform("add", [fresh.add_worker("gpu-5")])).status == "succeeded"
    assert fresh.slurm.accounting.unix["gpu-5"]["bob"] == ("6002", False)


async def test_a_removed_user_of_the_form_stays_blocked_when_the_controller_moves() -> None:
    async with new_cluster(MEMBERS, users=["researcher", "mallory"]) as fresh:
        assert (await fresh.perform("deploy")).status == "succeeded"
        assert (await fresh.act("users.remove", names=["mallory"])).status == "succeeded"
        controller = fresh.member_of(fresh.instance, "gpu-1")
        assert (await fresh.perform("replace", [controller], replacements=["gpu-5"])).status == "succeeded"
        assert fresh.slurm.accounting.users["mallory"]["GrpSubmitJobs"] == "0"
        assert _is_expired(fresh, "mallory")["gpu-5"]


@pytest.mark.parametrize("later", ["users.sync", "repair"])
async def test_a_dead_machine_keeps_a_user_active_nowhere_else_and_not_after_its_return(
    cluster: Cluster, later: str
) -> None:
    dead = cluster.machines.host("gpu-2")
    dead.reachable = False
    ended = await cluster.act("users.remove", names=["mallory"])
    assert rows(ended, "login", "change", "machines", "away") == [("mallory", "removed", 2, "gpu-2 (gpu-2)")]
    assert "Their accounts there are still active" in ended.result["note"]
    assert f"gpuaas action run {cluster.instance.name} users.sync" in ended.result["note"]
    assert _is_expired(cluster, "mallory") == {"gpu-1": True, "gpu-2": False, "gpu-3": True}
    dead.reachable = True
    returned = await (cluster.act(later) if later != "repair" else cluster.perform(later, [cluster.member("gpu-2")]))
    assert returned.status == "succeeded", returned.error
    assert _is_expired(cluster, "mallory") == dict.fromkeys(MACHINES, True)


async def test_a_dead_machine_is_named_by_an_add_and_a_sync_and_gets_the_user_later(cluster: Cluster) -> None:
    dead = cluster.machines.host("gpu-2")
    dead.reachable = False
    added = await cluster.act("users.add", names=["bob"])
    assert rows(added, "login", "machines", "away") == [("bob", 2, "gpu-2 (gpu-2)")]
    assert "users.add --input names=bob" in added.result["note"]
    synced = await cluster.act("users.sync")
    assert (synced.status, "gpu-2 (gpu-2)" in synced.result["note"]) == ("succeeded", True)
    dead.reachable = True
    assert (await cluster.act("users.sync")).status == "succeeded"
    assert set(_is_expired(cluster, "bob")) == set(MACHINES)


async def test_a_machine_that_refuses_an_account_fails_the_action_after_the_others_were_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting = cluster.slurm.accounting
    ensure = accounting.ensure

    def answer(words: Sequence[str], machine: str) -> Ran:
        return Ran(1, "", "user mallory exists with uid 1001") if machine == "gpu-2" else ensure(words, machine)

    monkeypatch.setattr(accounting, "ensure", answer)
    ended = await cluster.act("users.remove", names=["mallory"])
    assert (ended.status, "exists with uid 1001" in ended.error.message) == ("failed", True)
    assert _is_expired(cluster, "mallory")["gpu-3"]


@pytest.mark.parametrize("state", ["active", "left"])
async def test_a_deploy_with_the_login_of_a_person_is_refused_before_anything_is_changed(state: Any) -> None:
    async with new_cluster(MEMBERS, users=["researcher", "ada"]) as fresh:
        joins(fresh, "ada", state=state)
        ended = await fresh.perform("deploy")
        assert (ended.status, ended.error.failure_class) == ("failed", "refused")
        assert ended.error.message.startswith("ada: people of the project are users already")
        assert "other names in `users`" in ended.error.fix
        assert all(not fresh.host(name).installed for name in MACHINES)


async def test_a_person_with_the_login_of_a_user_is_ignored_with_a_warning_and_the_user_can_submit() -> None:
    async with new_cluster(MEMBERS, users=["ada"]) as fresh:
        assert (await fresh.perform("deploy")).status == "succeeded"
        joins(fresh, "ada", state="left")
        joins(fresh, "bob")
        ended = await fresh.act("users.sync")
        ignored = ("ada", "ignored: a user of the cluster has this login")
        assert rows(ended, "login", "change") == [ignored, ("bob", "added")]
        assert fresh.slurm.accounting.users["ada"].get("GrpSubmitJobs", "") == ""
        fresh.slurm.accounting.users["ada"]["GrpSubmitJobs"] = "0"
        restored = await fresh.act("users.add", names=["ada"])
        assert rows(restored, "login", "uid") == [("ada", 6000)]
        assert fresh.slurm.accounting.users["ada"]["GrpSubmitJobs"] == ""


async def test_a_person_with_a_number_of_the_app_is_no_user_of_the_app(fresh: NewCluster) -> None:
    joins(fresh, "zoe", uid=6005)
    fresh.slurm.accounting.unix["gpu-1"]["zoe"] = ("6005", False)
    listed = await fresh.act("users.list")
    assert [row for row in rows(listed, "login", "kind") if row[0] == "zoe"] == [("zoe", "person")]
    assert (await fresh.perform("add", [fresh.add_worker("gpu-5")])).status == "succeeded"
    assert (await fresh.act("users.sync")).status == "succeeded"
    assert (await fresh.act("users.add", names=["bob"])).status == "succeeded"
    assert (await fresh.perform("repair", [fresh.member("gpu-2")])).status == "succeeded"
    assert set(_is_expired(fresh, "zoe")) == {"gpu-1"}
    ran = [command for name in (*MACHINES, "gpu-5") for command in fresh.host(name).commands]
    noted = [command.argv for command in ran if receipts.INSPECT in command.input.decode()]
    assert not [argv for argv in noted if "zoe" in argv], "a removal deletes the accounts on the receipt"
    refused = await fresh.act("users.remove", names=["zoe"])
    assert "people leave the cluster with their role" in refused.error.message


def test_users_never_get_the_number_of_a_person() -> None:
    assert users.at_deploy(["ann", "bob"], [Person("zoe", 6001, 6001)]) == (User("ann", 6000), User("bob", 6002))
    added = users.with_added(users.at_deploy(["ann"], [ZOE]), ["bob"], {}, [ZOE, Person("yan", 6002, 6002)])
    assert added == (User("ann", 6001), User("bob", 6003))


def test_accounts_of_people_are_no_users_and_users_of_the_form_are() -> None:
    accounts = [User("zoe", 6000), User("ann", 6001), User("eve", 6002, is_removed=True)]
    assert users.known(["ann"], accounts, [ZOE]) == (User("ann", 6001), User("eve", 6002, is_removed=True))
    same = Person("ann", 6001, 6001)
    assert users.known(["ann"], accounts[1:], [same]) == (User("ann", 6001), User("eve", 6002, is_removed=True))


def test_logins_of_people_who_left_are_refused_too() -> None:
    with pytest.raises(Refused, match="zoe: people of the project are users already, also after they left"):
        users.refuse_people(["ann", "zoe"], [Person("zoe", 6000, 6000, has_left=True)], "use another name")
