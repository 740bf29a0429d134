"""People and other users of a cluster without machines: what a sync changes, and the actions `users.*`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from gpuaas_app_slurm import user_actions
from gpuaas_app_slurm.workload import associations, people, users
from gpuaas_app_slurm.workload.associations import Limits
from gpuaas_app_slurm.workload.people import Changes, Person
from gpuaas_app_slurm.workload.users import User
from gpuaas_app_slurm_conformance.fake_slurm import Cluster, FakeJob, deployed_cluster
from gpuaas_contract.posix import PersonState, PosixPerson
from gpuaas_sdk.failures import Refused

ADA, BOB = Person("ada", 20001, 20001), Person("bob", 20002, 20002, has_left=True)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster() as deployed:
        yield deployed


def joins(cluster: Cluster, *logins: str, state: PersonState = "active", uid: int = 0) -> None:
    """Have people join the project, with this number or one of the platform."""
    number = uid or 20000 + len(cluster.platform.records.people)
    cluster.platform.records.people += [
        PosixPerson(
            user_id=f"user_{login}",
            name=login,
            login=login,
            uid=number,
            gid=number,
            state=state,
            is_admin=False,
            public_keys=[],
        )
        for login in logins
    ]


def _changes_of_accounting(cluster: Cluster) -> list[tuple[str, ...]]:
    return [words for words in cluster.slurm.accounting.commands if words[0] != "show"]


def rows(ended: Any, *columns: str) -> list[Any]:
    assert ended.status == "succeeded", ended.error
    values = [tuple(row[column] for column in columns) for row in ended.result["rows"]]
    return [value[0] for value in values] if len(columns) == 1 else values


@pytest.mark.parametrize(
    ("can_submit", "waiting", "wanted"),
    [
        ({}, (), Changes(add=("ada",))),
        ({}, ("ada",), Changes()),
        ({"ada": True, "bob": False, "other": True}, (), Changes()),
        ({"ada": False, "bob": True, "other": False}, (), Changes(restore=("ada",), block=("bob",))),
    ],
)
def test_people_are_added_restored_and_blocked_and_other_users_left_alone(
    can_submit: dict[str, bool], waiting: tuple[str, ...], wanted: Changes
) -> None:
    assert people.changes((ADA, BOB), can_submit, waiting) == wanted


def test_associations_are_read_with_their_limits() -> None:
    read = associations.parse("||50||||1\nada|0|5|7|1-00:00:00|cpu=4,gres/gpu=2|10\nbob||50||||1\nError: x|y\n")
    assert set(read) == {"", "ada", "bob"}
    assert (read["ada"].can_submit, read["bob"].can_submit) == (False, True)
    assert read["ada"].limits == Limits(5, 7, "1-00:00:00", 4, 2, 10)
    assert read["bob"].limits == Limits(max_jobs=50, fairshare=1)


def test_only_the_given_limits_are_set() -> None:
    assert associations.settings(Limits()) == ()
    assert associations.settings(Limits(max_jobs=-1, gpus=2)) == ("MaxJobs=-1", "GrpTRES=gres/gpu=2")
    assert associations.settings(Limits(max_submit=3, max_wall="01:00:00", cpus=4, gpus=-1, fairshare=5)) == (
        "MaxSubmitJobs=3",
        "MaxWall=01:00:00",
        "GrpTRES=cpu=4,gres/gpu=-1",
        "Fairshare=5",
    )


def test_a_user_who_is_added_gets_a_number_that_no_user_had_and_keeps_it() -> None:
    present = users.with_removed(users.at_deploy(["ann", "bob"]), ["bob"])
    assert present == (User("ann", 6000), User("bob", 6001, is_removed=True))
    added = users.with_added(present, ["cyd", "bob"], {})
    assert added == (User("ann", 6000), User("bob", 6001), User("cyd", 6002))
    with pytest.raises(Refused, match="all user numbers up to 9999 are used"):
        users.with_added([User("last", users.LAST_ID)], ["next"], {})


def test_a_user_who_is_added_never_gets_the_number_of_a_home_of_another_cluster() -> None:
    owners = {"ann": 6000, "bob": 6001, "cyd": 6003}
    added = users.with_added(users.at_deploy(["ann"]), ["dan", "eve", "cyd"], owners)
    assert added == (User("ann", 6000), User("dan", 6002), User("eve", 6004), User("cyd", 6003))


async def test_fifty_people_cost_as_many_commands_as_one(cluster: Cluster) -> None:
    logins = [f"p{number:02}" for number in range(50)]
    joins(cluster, *logins)
    ended = await cluster.act("users.sync")
    assert rows(ended, "login", "change") == [(login, "added") for login in logins]
    adds = [words for words in _changes_of_accounting(cluster) if words[:2] == ("add", "user")]
    assert [len(words[2].split(",")) for words in adds] == [1, 50], "the user of the form, and all people at once"
    assert len(cluster.slurm.accounting.commands) < 15


async def test_a_sync_waits_for_unix_accounts_and_changes_nothing_twice(cluster: Cluster) -> None:
    joins(cluster, "ada", "bob")
    cluster.slurm.accounting.waits_for_account = {"bob"}
    assert rows(await cluster.act("users.sync"), "login") == ["ada", "bob"]
    before = _changes_of_accounting(cluster)
    assert rows(await cluster.act("users.sync"), "login") == []
    assert _changes_of_accounting(cluster) == before


async def test_a_person_whose_account_never_appears_keeps_no_one_else_from_submitting(cluster: Cluster) -> None:
    joins(cluster, "ada", "bob")
    cluster.slurm.accounting.without_account = {"ada"}
    ended = await cluster.act("users.sync")
    assert rows(ended, "login", "change") == [("ada", "has no Unix account yet"), ("bob", "added")]
    controller = cluster.member_of(cluster.instance, "gpu-1")
    assert (await cluster.perform("repair", [controller])).status == "succeeded"


async def test_a_sync_blocks_a_person_who_left_names_their_jobs_and_keeps_their_limits(cluster: Cluster) -> None:
    joins(cluster, "ada", state="left")
    cluster.slurm.accounting.users |= {"ada": {"MaxJobs": "5"}}
    cluster.slurm.jobs = [FakeJob(7, user="ada"), FakeJob(8, user="ada", node="")]
    assert rows(await cluster.act("users.sync"), "login", "change", "jobs") == [("ada", "blocked", "7, 8")]
    assert rows(await cluster.act("users.sync"), "login", "change", "jobs") == [("ada", "left before", "7, 8")]
    assert cluster.slurm.accounting.users["ada"] == {"MaxJobs": "5", "GrpJobs": "0", "GrpSubmitJobs": "0"}
    cluster.platform.records.people.clear()
    joins(cluster, "ada")
    assert rows(await cluster.act("users.sync"), "login", "change") == [("ada", "restored")]
    assert cluster.slurm.accounting.users["ada"]["MaxJobs"] == "5"


async def test_a_change_that_slurm_does_not_take_fails_the_sync(cluster: Cluster) -> None:
    await cluster.act("users.sync")
    joins(cluster, "ada")
    cluster.slurm.accounting.is_deaf = True
    ended = await cluster.act("users.sync")
    assert (ended.status, "did not take the change: ada cannot submit" in ended.error.message) == ("failed", True)


async def test_a_user_is_added_on_every_machine_and_removed_with_its_jobs_named(cluster: Cluster) -> None:
    added = await cluster.act("users.add", names=["eva"])
    assert rows(added, "login", "uid", "change", "machines") == [("eva", 6001, "added", 2)]
    assert rows(await cluster.act("users.add", names=["eva"]), "change") == ["was there"]
    cluster.slurm.jobs = [FakeJob(9, user="eva")]
    removed = await cluster.act("users.remove", names=["eva"])
    assert rows(removed, "login", "change") == [("eva", "removed")]
    assert removed.result["note"] == "Their jobs that run or wait: eva: 9."
    assert cluster.slurm.accounting.users["eva"]["GrpSubmitJobs"] == "0"
    assert cluster.slurm.accounting.listed("gpu-2") == ["eva 6001 removed"]
    assert rows(await cluster.act("users.add", names=["eva"]), "uid", "change") == [(6001, "restored")]
    assert cluster.slurm.accounting.users["eva"]["GrpSubmitJobs"] == ""


@pytest.mark.parametrize(
    ("action", "name", "why"),
    [
        ("users.add", "ada", "people of the project are users already"),
        ("users.add", "slurm", "it is an account of the system"),
        ("users.remove", "ada", "people leave the cluster with their role"),
        ("users.remove", "eve", "the cluster has no user eve"),
        ("users.remove", "researcher", "cannot be removed: it runs the first job on each new worker"),
    ],
)
async def test_users_that_cannot_be_added_or_removed_are_refused_before_a_change(
    cluster: Cluster, action: str, name: str, why: str
) -> None:
    joins(cluster, "ada")
    ended = await cluster.act(action, names=[name])
    assert (ended.status, why in ended.error.message) == ("failed", True)
    assert _changes_of_accounting(cluster) == []


async def test_limits_are_set_and_shown_as_slurm_has_them(cluster: Cluster) -> None:
    cluster.slurm.accounting.users |= {"ada": {}}
    ended = await cluster.act("users.limits", login="ada", max_jobs=5, gpus=2, max_wall="1-00:00:00")
    assert rows(ended, "login", "when", "max_jobs", "max_submit", "max_wall", "cpus", "gpus") == [
        ("ada", "before", None, None, None, None, None),
        ("ada", "after", 5, None, "1-00:00:00", None, 2),
    ]
    assert rows(await cluster.act("users.limits", login="ada", max_jobs=-1), "max_jobs", "gpus") == [(5, 2), (None, 2)]
    everyone = await cluster.act("users.limits", cpus=64)
    assert rows(everyone, "login", "cpus") == [(user_actions.EVERYONE, None), (user_actions.EVERYONE, 64)]
    assert rows(await cluster.act("users.limits"), "login", "when") == [(user_actions.EVERYONE, "now"), ("ada", "now")]


async def test_a_change_of_limits_names_the_command_that_takes_it_back(cluster: Cluster) -> None:
    cluster.slurm.accounting.users |= {"ada": {"MaxJobs": "10"}}
    ended = await cluster.act("users.limits", login="ada", max_jobs=5, gpus=2)
    command = f"gpuaas action run {cluster.instance.name} users.limits"
    assert ended.result["note"] == (f"To take it back: {command} --input login=ada --input max_jobs=10 --input gpus=-1")
    again = await cluster.act("users.limits", login="ada", max_jobs=5)
    assert "note" not in again.result


async def test_limits_that_slurm_does_not_take_or_of_an_unknown_user_fail(cluster: Cluster) -> None:
    unknown = await cluster.act("users.limits", login="ada", max_jobs=5)
    assert "Slurm has no user ada" in unknown.error.message
    cluster.slurm.accounting.users |= {"": {"MaxJobs": "7"}, "bob": {"MaxJobs": "9"}}
    cluster.slurm.accounting.is_deaf = True
    for inputs in ({"max_jobs": 5}, {"max_jobs": -1}, {"max_jobs": -1, "login": "bob"}):
        refused = await cluster.act("users.limits", **inputs)
        assert "Slurm did not take the limits max_jobs" in refused.error.message, inputs
    refused = await cluster.act("users.limits", max_wall="01:00:00")
    assert "Slurm did not take the limits max_wall" in refused.error.message


async def test_a_change_of_limits_that_sacctmgr_refuses_fails_with_what_it_printed(cluster: Cluster) -> None:
    cluster.slurm.accounting.users |= {"ada": {}}
    cluster.slurm.accounting.refuses = " Error with request: Access/permission denied"
    for inputs in ({"login": "ada"}, {}):
        refused = await cluster.act("users.limits", max_jobs=-1, **inputs)
        assert "Error with request: Access/permission denied" in refused.error.message, inputs


ACCOUNT = Limits(max_jobs=50)


@pytest.mark.parametrize(
    ("wanted", "before", "shown", "above", "wrong"),
    [
        (Limits(max_wall="24:00:00"), Limits(), Limits(max_wall="1-00:00:00"), None, []),
        (Limits(max_wall="00:00:30"), Limits(), Limits(max_wall="00:01:00"), None, []),
        (Limits(max_wall="24:00:00"), Limits(), Limits(max_wall="2-00:00:00"), None, ["max_wall"]),
        (Limits(max_wall="-1"), Limits(max_wall="01:00:00"), Limits(max_wall="01:00:00"), None, ["max_wall"]),
        (Limits(max_jobs=-1), Limits(max_jobs=5), Limits(max_jobs=50), ACCOUNT, []),
        (Limits(max_jobs=-1), Limits(max_jobs=50), Limits(max_jobs=50), ACCOUNT, []),
        (Limits(max_jobs=-1), Limits(max_jobs=5), Limits(max_jobs=5), ACCOUNT, ["max_jobs"]),
        (Limits(max_jobs=-1, gpus=2), Limits(max_jobs=5), Limits(), None, ["gpus"]),
        (Limits(fairshare=-1), Limits(fairshare=1), Limits(fairshare=1), None, []),
        (Limits(fairshare=-1), Limits(fairshare=7), Limits(fairshare=7), None, ["fairshare"]),
    ],
)
def test_a_limit_is_set_if_slurm_shows_it_and_removed_if_it_shows_none_or_that_of_the_account(
    wanted: Limits, before: Limits, shown: Limits, above: Limits | None, wrong: list[str]
) -> None:
    assert user_actions.unset(wanted, before, shown, above) == wrong


async def test_the_list_has_people_users_and_others_with_their_state(cluster: Cluster) -> None:
    joins(cluster, "ada")
    joins(cluster, "bob", state="left")
    cluster.slurm.accounting.users |= {"ada": {}, "bob": {"GrpSubmitJobs": "0"}, "root": {}}
    listed = await cluster.act("users.list")
    assert rows(listed, "login", "kind", "state", "can_submit") == [
        ("ada", "person", "active", True),
        ("bob", "person", "left", False),
        ("researcher", "user", "active", False),
        ("root", "other", "active", True),
    ]
