"""The watch program of a cluster, with Slurm's commands from recorded output, and the number of commands of a look."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuaas_app_slurm import plan
from gpuaas_app_slurm.workload import choices, observed, watch_program
from test_slurm_checks import CONTROLLER, PEOPLE

SAMPLES = Path(__file__).parent / "samples"
CLUSTER = "research"
PARTITION = "PartitionName=main Nodes=workers Default=YES DefaultTime=1-00:00:00 MaxTime=168:00:00 State=UP"
PING_DOWN = "Slurmctld(primary) at gpu-1 is DOWN"
SCONTROL = """#!/bin/sh
echo "scontrol $*" >> "{folder}/calls"
case "$*" in
  ping) cat "{folder}/ping" ;;
  "show nodes --json") cat "{folder}/nodes.json" ;;
  "show partition -o") cat "{folder}/partitions" ;;
  "show config") echo "SLURM_VERSION           = $(cat "{folder}/version")" ;;
esac
"""
SACCTMGR = """#!/bin/sh
echo "sacctmgr $*" >> "{folder}/calls"
case "$*" in
  *"show cluster"*) echo {cluster} ;;
  *"show association"*) cat "{folder}/associations" ;;
esac
"""

SACCT = """#!/bin/sh
echo "sacct" >> "{folder}/calls"
cat "{folder}/ended"
"""
SQUEUE = """#!/bin/sh
case "$*" in
  "-h -o %T") echo "squeue" >> "{folder}/calls"; cat "{folder}/jobs" ;;
esac
"""
SDIAG = """#!/bin/sh
echo "sdiag" >> "{folder}/calls"
cat "{folder}/unsent"
"""


class Slurm:
    """Recorded answers of Slurm's commands; `calls` lists the commands that were run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (
            ("scontrol", SCONTROL),
            ("sacctmgr", SACCTMGR),
            ("sacct", SACCT),
            ("sdiag", SDIAG),
            ("squeue", SQUEUE),
        ):
            (folder / name).write_text(text.format(folder=folder, cluster=CLUSTER))
            (folder / name).chmod(0o755)
        self.ping("Slurmctld(primary) at gpu-1 is UP")
        self.associations("|\nada|\nbob|0\n")
        self.ended("")
        self.jobs("")
        self.version("24.11.5")
        self.partitions(PARTITION)
        (folder / "slurm.conf").write_text(f"ClusterName=lab\n{PARTITION}\n")
        self.own_report({"t": int(time.time()), "up": 5, "units": {"slurmctld": ["active", 0]}, "key": "eb8d92ea"})

    def ping(self, text: str) -> None:
        (self.folder / "ping").write_text(f"{text}\n")

    def associations(self, text: str) -> None:
        """Have sacctmgr print these users of Slurm, with the limits of their jobs."""
        (self.folder / "associations").write_text(text)

    def ended(self, rows: str, unsent: int = 0) -> None:
        """Have accounting show these jobs, while slurmctld has so many messages that it did not send yet."""
        (self.folder / "ended").write_text(rows)
        (self.folder / "unsent").write_text(f"Agent queue size:     7\nDBD Agent queue size: {unsent}\n")

    def jobs(self, text: str) -> None:
        """Have squeue print these states."""
        (self.folder / "jobs").write_text(text)

    def version(self, text: str) -> None:
        """Have slurmctld run this version."""
        (self.folder / "version").write_text(f"{text}\n")

    def partitions(self, text: str) -> None:
        """Have slurmctld show these partitions."""
        (self.folder / "partitions").write_text(f"{text}\n")

    def own_report(self, report: dict[str, Any]) -> None:
        (self.folder / "health.json").write_text(json.dumps(report))

    def nodes(self, count: int, port: int, **changes: Any) -> None:
        """Have Slurm show so many nodes like the recorded one, whose slurmd listens on this port here."""
        recorded = json.loads((SAMPLES / "nodes_reporting.json").read_text())["nodes"][-1]
        here = recorded | {"address": "127.0.0.1", "port": port} | changes
        nodes = [here | {"name": f"gpu-{number}"} for number in range(2, 2 + count)]
        (self.folder / "nodes.json").write_text(json.dumps({"nodes": nodes}))

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(watch_program, "REPORT", str(tmp_path / "health.json"))
    monkeypatch.setattr(watch_program, "SLURM_CONF", str(tmp_path / "slurm.conf"))
    return Slurm(tmp_path)


@pytest.fixture
def slurmd_port() -> Iterator[int]:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=200)) as server:
        yield server.getsockname()[1]


def look(seen: dict[str, Any]) -> observed.Observed:
    """Look as the program does, and read its line as the app does."""
    return observed.parse(json.dumps(watch_program.look(CLUSTER, seen)), CLUSTER)


@pytest.mark.parametrize("workers", [2, 64])
def test_a_look_at_a_cluster_of_any_size_runs_the_same_commands(slurm: Slurm, slurmd_port: int, workers: int) -> None:
    slurm.nodes(workers, slurmd_port)
    seen: dict[str, Any] = {}
    first = look(seen)
    assert len(first.nodes or {}) == workers
    associations = f"where cluster={CLUSTER} account=default format=User,GrpSubmitJobs"
    every_look = [
        "scontrol ping",
        "scontrol show nodes --json",
        f"sacctmgr -nP show cluster {CLUSTER} format=Cluster",
        f"sacctmgr -nP show association {associations}",
    ]
    assert slurm.calls() == [*every_look, "scontrol show partition -o", "sdiag", "sacct", "scontrol show config"]
    look(seen)
    assert slurm.calls()[8:] == every_look


SHOWN = "PartitionName=main AllowGroups=ALL DefaultTime=1-00:00:00 MaxTime=7-00:00:00 Nodes=gpu-2 State=UP TotalNodes=1"


def changes_at(slurm: Slurm, now: list[float], seen: dict[str, Any]) -> list[str]:
    """Look once, some time after the last look at partitions, and return what someone changed."""
    now[0] += watch_program.PARTITIONS_S + 1
    return [changed.text for changed in look(seen).partitions]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("State=UP", "State=DRAIN", "State of main is DRAIN, not UP"),
        ("MaxTime=7-00:00:00", "MaxTime=01:00:00", "MaxTime of main is 01:00:00, not 168:00:00"),
        ("DefaultTime=1-00:00:00", "DefaultTime=NONE", "DefaultTime of main is NONE, not 1-00:00:00"),
        ("PartitionName=main", "PartitionName=other", "partition of main is deleted, not present"),
    ],
)
def test_a_partition_that_someone_changed_in_slurmctld_is_shown_until_it_is_as_written(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch, old: str, new: str, text: str
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(1, slurmd_port)
    slurm.partitions(SHOWN)
    assert "partitions" not in watch_program.look(CLUSTER, seen)
    slurm.partitions(SHOWN.replace(old, new))
    assert [changes_at(slurm, now, seen), changes_at(slurm, now, seen)] == [[], [text]], "two readings must agree"
    assert [changed.text for changed in look(seen).partitions] == [text]
    assert slurm.calls().count("scontrol show partition -o") == 3, "at most one in 30 seconds"
    slurm.partitions(SHOWN)
    assert changes_at(slurm, now, seen) == []


def test_a_change_of_someone_is_not_shown_any_more_when_an_operation_writes_the_file(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(1, slurmd_port)
    slurm.partitions(SHOWN.replace("State=UP", "State=DOWN"))
    assert [len(changes_at(slurm, now, seen)) for _ in range(2)] == [0, 1]
    (slurm.folder / "slurm.conf").write_text(PARTITION.replace("State=UP", "State=DOWN"))
    assert look(seen).partitions == ()


def test_a_worker_that_someone_took_out_of_a_partition_is_named(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(2, slurmd_port, partitions=[])
    slurm.partitions(SHOWN)
    assert changes_at(slurm, now, seen) == []
    assert changes_at(slurm, now, seen) == ["Nodes of main is without gpu-2, gpu-3, not all workers"]


def test_partitions_that_an_upgrade_holds_and_opens_again_are_no_change_of_someone(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(1, slurmd_port)
    main = choices.Partition("main")
    for is_held, shown in ((True, "UP"), (True, "DOWN"), (True, "DOWN"), (False, "DOWN"), (False, "UP")):
        written = "\n".join(choices.partition_lines((main,), is_held=is_held))
        (slurm.folder / "slurm.conf").write_text(f"{written}\n")
        slurm.partitions(SHOWN.replace("State=UP", f"State={shown}"))
        assert changes_at(slurm, now, seen) == [], (is_held, shown)


def test_partitions_that_slurmctld_did_not_show_are_not_called_deleted(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(1, slurmd_port)
    slurm.partitions("slurm_load_partitions error: Unable to contact slurm controller")
    assert [changes_at(slurm, now, seen) for _ in range(3)] == [[], [], []]


def test_an_old_report_of_the_machine_of_slurmctld_keeps_its_unfinished_move(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = _clock(monkeypatch), dict[str, Any]()
    slurm.nodes(1, slurmd_port)
    move = {"node_name": "gpu-5", "operation_id": "op_1"}
    slurm.own_report({"up": 5, "t": time.time(), "move": move})
    assert look(seen).move == move
    now[0] += watch_program.OWN_STALE_S + 1
    old = look(seen)
    assert (old.own, old.move) == (observed.Reported(), move)
    (slurm.folder / "health.json").unlink()
    assert look(seen).move is None


def test_the_mark_of_ended_jobs_changes_when_accounting_has_more_of_them(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = _clock(monkeypatch)
    slurm.nodes(1, slurmd_port)
    seen: dict[str, Any] = {}
    marks = []
    for rows in ("1|90|100\n2|95|Unknown\n", "2|95|Unknown\n", "sacct: error: no answer\n", "2|95|110\n", "2|95|110\n"):
        slurm.ended(rows)
        marks.append(watch_program.look(CLUSTER, seen)["ended"])
        now[0] += watch_program.ENDED_S + 1
    assert [mark.split(":")[1] for mark in marks] == ["1", "1", "1", "2", "2"]
    assert len({mark.split(":")[0] for mark in marks}) == 1


def test_while_slurmctld_has_not_sent_everything_the_compared_period_keeps_its_start(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = _clock(monkeypatch)
    slurm.nodes(1, slurmd_port)
    seen: dict[str, Any] = {}
    look(seen)
    seen["ended "]["since"] = start = seen["ended "]["since"] - 5000
    moved = []
    for unsent in (5, 5, 0):
        now[0] += watch_program.ENDED_S + 1
        slurm.ended("", unsent)
        look(seen)
        moved.append(seen["ended "]["since"] > start)
    assert moved == [False, False, True]


def test_a_sound_cluster_is_shown_with_the_reports_of_its_machines(slurm: Slurm, slurmd_port: int) -> None:
    slurm.nodes(1, slurmd_port)
    shown = look({})
    assert (shown.scheduler.ok, shown.accounting.ok, shown.version) == (True, True, "24.11.5")
    assert shown.associations == {"ada": True, "bob": False}
    node = (shown.nodes or {})["gpu-2"]
    assert (node.slurmd_port, node.is_stale, node.flags) == ("open", False, frozenset({"IDLE", "DYNAMIC_NORM"}))
    assert node.report is not None
    assert (node.report.units, node.report.key) == ({"slurmd": ("active", 0)}, "eb8d92ea")
    assert shown.own.report is not None
    assert shown.own.report.units == {"slurmctld": ("active", 0)}


@pytest.mark.parametrize(
    "extra", [{"rack": 1}, {"t": "now", "up": 1}, {"t": 1.0, "up": 1.0, "units": 5}, {"t": 1.0, "up": 1.0, "drift": 5}]
)
def test_what_a_person_wrote_into_the_extra_field_of_a_node_is_no_report_and_ends_no_watch(
    slurm: Slurm, slurmd_port: int, extra: dict[str, Any]
) -> None:
    slurm.nodes(2, slurmd_port)
    listed = json.loads((slurm.folder / "nodes.json").read_text())
    listed["nodes"][0]["extra"] = json.dumps(extra)
    (slurm.folder / "nodes.json").write_text(json.dumps(listed))
    shown = look({})
    first, second = (shown.nodes or {}).values()
    assert (first.report, first.is_stale) == (None, True)
    assert second.report is not None


@pytest.mark.parametrize(
    "printed",
    [
        "|\nsacctmgr: error: slurm_persist_conn_open: Connection refused\n",
        "sacctmgr: error: a|b\n Problem with query\n",
        "|\nada||\n",
        "|\n\nada|\n",
    ],
)
def test_users_of_slurm_that_were_not_read_whole_count_as_not_read(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    (slurm.folder / "passwd").write_text("ada:x:20001:20001::/home/people/ada:/bin/bash\n")
    monkeypatch.setattr(watch_program, "ACCOUNTS", str(slurm.folder / "passwd"))
    slurm.nodes(1, slurmd_port)
    slurm.associations(printed)
    shown = look({})
    assert (shown.associations, shown.unplaced, shown.blocked_jobs) == ({}, frozenset(), {})
    decided = plan.decide("slurm", [CONTROLLER], shown, {}, PEOPLE)
    assert [verdict.repair for verdict in decided.verdicts if "PeopleChanged" in verdict.repair] == []


def test_without_slurmctld_nothing_is_claimed_about_nodes_and_its_other_commands_are_not_run(slurm: Slurm) -> None:
    slurm.ping(PING_DOWN)
    shown = look({})
    assert (shown.scheduler.ok, PING_DOWN in shown.scheduler.reason, shown.nodes) == (False, True, None)
    assert [call for call in slurm.calls() if call.startswith("scontrol")] == ["scontrol ping"]


def test_a_command_that_is_missing_is_shown_as_what_slurm_answered(slurm: Slurm) -> None:
    (slurm.folder / "scontrol").unlink()
    (slurm.folder / "scontrol").symlink_to(slurm.folder / "nothing")
    shown = look({})
    assert (shown.scheduler.ok, "scontrol" in shown.scheduler.reason) == (False, True)


def test_a_node_whose_slurmd_refuses_connections_is_shown_so(slurm: Slurm) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        free_port = server.getsockname()[1]
    slurm.nodes(1, free_port)
    assert (look({}).nodes or {})["gpu-2"].slurmd_port == "refused"


def test_a_node_without_an_answer_to_a_connection_is_shown_as_silent(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    slurm.nodes(1, 6818)
    assert (look({}).nodes or {})["gpu-2"].slurmd_port == "silent"


@pytest.mark.parametrize("extra", ["", "not json", "[]"])
def test_a_node_without_a_report_is_stale(slurm: Slurm, slurmd_port: int, extra: str) -> None:
    slurm.nodes(1, slurmd_port, extra=extra)
    node = (look({}).nodes or {})["gpu-2"]
    assert (node.report, node.is_stale) == (None, True)


def test_a_report_that_does_not_change_becomes_stale_and_a_new_one_is_fresh_again(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = _clock(monkeypatch)
    seen: dict[str, Any] = {}
    slurm.nodes(1, slurmd_port, extra=_report(up=10))
    assert not (look(seen).nodes or {})["gpu-2"].is_stale
    now[0] += watch_program.STALE_S + 1
    assert (look(seen).nodes or {})["gpu-2"].is_stale
    slurm.nodes(1, slurmd_port, extra=_report(up=13))
    assert not (look(seen).nodes or {})["gpu-2"].is_stale


def test_the_clock_of_the_machine_of_slurmctld_is_not_compared_with_itself(slurm: Slurm) -> None:
    """If it was set back, the newest report of this machine comes from the future: workers show what is wrong."""
    seen: dict[str, Any] = {}
    for up in (1, 2):
        slurm.own_report({"t": int(time.time()) + 120, "up": up})
        own = look(seen).own
    assert (own.is_stale, own.clock_off_s) == (False, 0)


@pytest.mark.parametrize(("ahead_s", "shown_s"), [(60, 60), (-45, -45), (4, 0)])
def test_a_clock_that_is_far_off_is_shown_after_the_second_report(
    slurm: Slurm, slurmd_port: int, ahead_s: int, shown_s: int
) -> None:
    seen: dict[str, Any] = {}
    slurm.nodes(1, slurmd_port, extra=_report(up=10, ahead_s=ahead_s))
    assert (look(seen).nodes or {})["gpu-2"].clock_off_s == 0
    slurm.nodes(1, slurmd_port, extra=_report(up=13, ahead_s=ahead_s))
    assert (look(seen).nodes or {})["gpu-2"].clock_off_s == pytest.approx(shown_s, abs=2 if shown_s else 0)


def test_a_machine_of_slurmctld_without_a_reporter_has_no_report(slurm: Slurm, slurmd_port: int) -> None:
    slurm.nodes(1, slurmd_port)
    (slurm.folder / "health.json").unlink()
    assert look({}).own.report is None


@pytest.mark.parametrize("is_deleted", [False, True], ids=["it hangs", "it stopped"])
def test_a_reporter_of_slurmctld_s_machine_that_is_dead_is_seen_and_its_last_report_is_not_judged(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    now = _clock(monkeypatch)
    seen: dict[str, Any] = {}
    slurm.nodes(1, slurmd_port)
    slurm.own_report({"full": {"/": 1}, "up": 10, "t": time.time()})
    assert look(seen).own.report == observed.Report(full={"/": 1})
    if is_deleted:
        (slurm.folder / "health.json").unlink()
    now[0] += watch_program.OWN_STALE_S
    assert not look(seen).own.is_stale, "a restart of the reporter takes some seconds"
    now[0] += 1
    assert look(seen).own == observed.Reported()
    slurm.own_report({"full": {}, "up": 50, "t": time.time()})
    assert look(seen).own == observed.Reported(report=observed.Report(), is_stale=False)


def test_a_reporter_that_slurmctld_s_machine_never_had_is_missed_after_a_while(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = _clock(monkeypatch)
    seen: dict[str, Any] = {}
    slurm.nodes(1, slurmd_port)
    (slurm.folder / "health.json").unlink()
    assert not look(seen).own.is_stale
    now[0] += watch_program.OWN_STALE_S + 1
    assert look(seen).own.is_stale


def test_the_version_of_slurmctld_is_read_at_each_look_only_while_it_is_not_that_of_its_package(
    slurm: Slurm, slurmd_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _clock(monkeypatch)
    seen: dict[str, Any] = {}
    slurm.nodes(1, slurmd_port)

    def reads(package: str, version: str) -> tuple[str, int]:
        slurm.own_report({"up": 5, "t": time.time(), "package": package})
        slurm.version(version)
        return look(seen).version, slurm.calls().count("scontrol show config")

    assert reads("1:24.11.1-4", "24.11.1") == ("24.11.1", 1)
    assert reads("1:24.11.1-4", "24.11.1") == ("24.11.1", 1)
    assert reads("1:24.11.10-2", "24.11.1") == ("24.11.1", 2), "an upgrade has installed the packages"
    assert reads("1:24.11.10-2", "24.11.10") == ("24.11.10", 3), "it has restarted slurmctld"
    assert reads("1:24.11.10-2", "24.11.10") == ("24.11.10", 3)


def test_the_program_prints_changes_and_signs_of_life_and_ends_with_its_connection(
    slurm: Slurm, slurmd_port: int
) -> None:
    slurm.nodes(1, slurmd_port)
    program = Path(watch_program.__file__).read_text().replace("EVERY_S = 3.0", "EVERY_S = 0.1")
    command = [sys.executable, "-u", "-c", program, CLUSTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        first = observed.parse(running.stdout.readline(), CLUSTER)
        slurm.ping(PING_DOWN)
        second = observed.parse(running.stdout.readline(), CLUSTER)
        running.stdin.close()
        assert running.wait(60) == 0
    assert (first.scheduler.ok, second.scheduler.ok) == (True, False)


def test_every_change_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_printed_in(monkeypatch, looks=7, changing=True)) == 7


def test_a_line_that_does_not_change_is_printed_at_every_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_printed_in(monkeypatch, looks=7, changing=False)) == 4


def measured(slurm: Slurm) -> observed.Measured | None:
    line = json.dumps(watch_program.look(CLUSTER, {}, measures=True))
    assert observed.parse(line, CLUSTER).version == (
        "24.11.5" if "is UP" in (slurm.folder / "ping").read_text() else ""
    )
    return observed.parse_measured(line)


def test_a_look_counts_nodes_jobs_cpus_and_gpus_only_if_it_is_asked_to(slurm: Slurm, slurmd_port: int) -> None:
    used = {"state": ["MIXED", "DYNAMIC_NORM"], "alloc_cpus": 1, "cpus": 4, "active_features": ["worker"]}
    slurm.nodes(3, slurmd_port, **used, tres="cpu=4,gres/gpu=2,gres/gpu:h100=2", tres_used="cpu=1,gres/gpu=1")
    slurm.jobs("RUNNING\nPENDING\nRUNNING\nCOMPLETING\n")
    assert measured(slurm) == observed.Measured(
        {"mixed": 3}, {"running": 2, "pending": 1, "completing": 1}, cpus=(3, 12), gpus=(3, 6)
    )
    line = json.dumps(watch_program.look(CLUSTER, {}))
    assert observed.parse_measured(line) is None
    assert slurm.calls().count("squeue") == 1


def test_login_machines_are_not_counted_as_workers(slurm: Slurm, slurmd_port: int) -> None:
    slurm.nodes(2, slurmd_port, active_features=["login"])
    counts = measured(slurm)
    assert counts is not None
    assert (counts.nodes, counts.cpus, counts.gpus) == ({}, (0, 0), (0, 0))


def test_jobs_that_could_not_be_read_are_not_counted_as_none(slurm: Slurm, slurmd_port: int) -> None:
    slurm.nodes(1, slurmd_port)
    slurm.jobs("slurm_load_jobs error: Unable to contact slurm controller\n")
    counts = measured(slurm)
    assert counts is not None
    assert counts.jobs is None


def test_without_slurmctld_nothing_is_counted(slurm: Slurm) -> None:
    slurm.ping(PING_DOWN)
    assert measured(slurm) is None


@pytest.mark.parametrize(
    ("flags", "state"),
    [
        ({"IDLE"}, "idle"),
        ({"ALLOCATED", "COMPLETING"}, "allocated"),
        ({"IDLE", "DRAIN"}, "drained"),
        ({"MIXED", "DRAIN"}, "draining"),
        ({"DOWN", "DRAIN", "NOT_RESPONDING"}, "down"),
        ({"IDLE", "NOT_RESPONDING"}, "not_responding"),
        ({"FUTURE"}, "other"),
    ],
)
def test_a_node_has_one_state_and_the_worst_one_counts(flags: set[str], state: str) -> None:
    assert watch_program.node_state(flags) == state


def _printed_in(monkeypatch: pytest.MonkeyPatch, *, looks: int, changing: bool) -> list[str]:
    """Run the loop of the program for so many looks, three seconds apart, and return what it printed."""
    now, done = _clock(monkeypatch, lambda seconds: sleep(seconds)), [0]

    class Enough(Exception):
        pass

    def next_look(_: str, __: dict[str, Any], *, measures: bool) -> dict[str, Any]:
        assert not measures
        done[0] += 1
        return {"ping": f"{done[0] if changing else 0}"}

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if done[0] == looks:
            raise Enough

    written: list[str] = []
    monkeypatch.setattr(sys, "argv", ["watch", CLUSTER])
    monkeypatch.setattr(watch_program, "look", next_look)
    monkeypatch.setattr(watch_program, "end_with_connection", lambda: None)
    monkeypatch.setattr(sys.stdout, "write", written.append)
    with pytest.raises(Enough):
        watch_program.main()
    return written


def _clock(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None] = time.sleep) -> list[float]:
    """Give the program a clock of its own; the rest of the process keeps the real one."""
    now = [1000.0]
    own = vars(time) | {"monotonic": lambda: now[0], "sleep": sleep}
    monkeypatch.setattr(watch_program, "time", SimpleNamespace(**own))
    return now


def _report(*, up: int, ahead_s: int = 0) -> str:
    return json.dumps({"t": int(time.time()) + ahead_s, "up": up, "units": {}, "key": "aa"})
