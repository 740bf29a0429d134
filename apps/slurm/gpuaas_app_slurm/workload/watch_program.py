"""Look at a Slurm cluster every few seconds and print what is seen, one line of JSON for each change.

The app's controller runs this on the machine of slurmctld, as a user without rights, and reads its output. A line is
also printed when nothing has changed for a while, as a sign of life. It needs the standard library only, changes
nothing, and ends with the connection: nothing of it stays on the machine.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

REPORT = "/run/gpuaas-slurm/health.json"
ACCOUNTS = "/etc/passwd"
PEOPLE = "/home/people"
SLURM_CONF = "/etc/slurm/slurm.conf"
EVERY_S = 3.0
SIGN_OF_LIFE_S = 6.0
STALE_S = 5.0
"""A machine whose report has not changed for this long, at two looks in a row, gets a direct look. A frozen machine
accepts connections, so only this shows it; with the direct look it must be seen within 15 seconds."""
OWN_STALE_S = 30.0
"""After so long without a new report, the reporter of this machine does not run or hangs. It is longer than the slowest
report takes, and than a restart of the reporter, during which there is no file."""
PROBE_S = 2.0
COMMAND_S = 4.0
VERSION_S = 30.0
PARTITIONS_S = 30.0
"""How often the partitions of the running slurmctld are compared with slurm.conf."""
COMPARED = {"State": "UP", "DefaultTime": "NONE", "MaxTime": "UNLIMITED"}
"""What is compared of a partition, and what Slurm uses if slurm.conf does not have it."""
ENDED_S = 6.0
ENDED_OVERLAP_S = 3600
"""Accounting can get the end of a job late, so jobs that ended in the last hour are compared each time."""
JOBS_SHOWN = 20
MEASURE = "measure"
"""The argument with which the program also counts nodes, jobs and GPUs."""
CLOCK_OFF_S = 10
"""Smaller differences between two clocks are not reported: reports are some seconds old when they are read."""
CLOCK_JITTER_S = 5


def main() -> None:
    cluster_name, measures = sys.argv[1], MEASURE in sys.argv[2:]
    seen: dict[str, Any] = {}
    printed, printed_at = "", 0.0
    threading.Thread(target=end_with_connection, daemon=True).start()
    while True:
        began = time.monotonic()
        line = json.dumps(look(cluster_name, seen, measures=measures), separators=(",", ":"), sort_keys=True)
        if line != printed or began - printed_at >= SIGN_OF_LIFE_S:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            printed, printed_at = line, began
        time.sleep(max(0.5, EVERY_S - (time.monotonic() - began)))


def end_with_connection() -> None:
    sys.stdin.read()
    os._exit(0)


def look(cluster_name: str, seen: dict[str, Any], *, measures: bool = False) -> dict[str, Any]:
    ping = run("scontrol", "ping")
    # Without slurmctld, its commands wait for their time limit. The answer must not be later than a sign of life.
    answers = " is UP" in ping
    listed = run("scontrol", "show", "nodes", "--json") if answers else ""
    accounting = run("sacctmgr", "-nP", "show", "cluster", cluster_name, "format=Cluster")
    associations = ""
    if cluster_name in accounting.splitlines():
        where = ("where", f"cluster={cluster_name}", "account=default", "format=User,GrpSubmitJobs")
        associations = whole_associations(run("sacctmgr", "-nP", "show", "association", *where))
    nodes = [node_facts(node, seen) for node in listed_nodes(listed)]
    ports = probe({node["name"]: (node["address"], node.pop("port")) for node in nodes})
    for node in nodes:
        node["slurmd_port"] = ports[node["name"]]
    own = own_report(seen)
    changed = changed_partitions(seen, listed_nodes(listed)) if answers else []
    return {
        "ping": ping,
        "accounting": accounting,
        "associations": associations,
        "unplaced": unplaced(associations) if associations else [],
        "blocked_jobs": blocked_jobs(associations) if answers else {},
        "nodes": nodes if listed.startswith("{") else None,
        "ended": ended_jobs(seen) if answers and cluster_name in accounting.splitlines() else "",
        "own": own,
        "version": running_version(seen, (own["report"] or {}).get("package", "")) if answers else "",
        **({"partitions": changed} if changed else {}),
        **({"measured": measured(listed_nodes(listed))} if measures and listed.startswith("{") else {}),
    }


def measured(nodes: list[Any]) -> dict[str, Any]:
    """Return how many nodes and jobs are in each state, and [used, all] of CPUs and GPUs. Login machines do not count.
    None for jobs: squeue did not answer."""
    workers = [node for node in nodes if "login" not in node.get("active_features", [])]
    listed = run("squeue", "-h", "-o", "%T").splitlines()
    is_answer = all(line.replace("_", "").isalpha() and line.isupper() for line in listed)
    return {
        "nodes": counted(node_state(set(node["state"])) for node in workers),
        "jobs": counted(line.lower() for line in listed) if is_answer else None,
        "cpus": [sum(node.get("alloc_cpus", 0) for node in workers), sum(node.get("cpus", 0) for node in workers)],
        "gpus": [sum(gpus(node.get(name, "")) for node in workers) for name in ("tres_used", "tres")],
    }


def counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def node_state(flags: set[str]) -> str:
    """Return the one state that people ask for first: whether the node can work, then what it does."""
    for flag in ("DOWN", "NOT_RESPONDING"):
        if flag in flags:
            return flag.lower()
    working = [flag for flag in ("ALLOCATED", "MIXED", "COMPLETING") if flag in flags]
    if "DRAIN" in flags:
        return "draining" if working else "drained"
    return working[0].lower() if working else "idle" if "IDLE" in flags else "other"


def gpus(tres: str) -> int:
    """Return the GPUs of a text such as `cpu=2,mem=8G,gres/gpu=2,gres/gpu:h100=2`."""
    return sum(int(item[9:]) for item in tres.split(",") if item.startswith("gres/gpu=") and item[9:].isdigit())


def whole_associations(printed: str) -> str:
    """Return the users of Slurm as sacctmgr printed them, or nothing if a line is not `user|limit`. After an error some
    users may be missing, and the app would repair the cluster because of them."""
    return printed if all(line.count("|") == 1 for line in printed.splitlines()) else ""


def unplaced(associations: str) -> list[str]:
    """Return the Unix accounts of people that have no association yet: usually none."""
    placed = {line.split("|")[0] for line in associations.splitlines()}
    with open(ACCOUNTS) as file:
        rows = [line.split(":") for line in file]
    return sorted(row[0] for row in rows if row[5:6] == [f"{PEOPLE}/{row[0]}"] and row[0] not in placed)


def blocked_jobs(associations: str) -> dict[str, Any] | None:
    """Return the jobs of users who may not submit any more: people who left. It costs nothing if there are none. None
    if squeue did not answer."""
    blocked = [line.split("|")[0] for line in associations.splitlines() if line.endswith("|0") and line[0] != "|"]
    if not blocked:
        return {}
    lines = run("squeue", "-h", "-o", "%u|%i", "-u", ",".join(blocked)).splitlines()
    # A user without a Unix account has no jobs. Every other error means that jobs may be missing.
    if any("|" not in line and "Invalid user" not in line for line in lines):
        return None
    jobs: dict[str, list[str]] = {}
    for line in lines:
        user, _, job = line.partition("|")
        if user in blocked and job:
            jobs.setdefault(user, []).append(job)
    return {user: {"count": len(ids), "first": ids[:JOBS_SHOWN]} for user, ids in jobs.items()}


def ended_jobs(seen: dict[str, Any]) -> str:
    """Return a text that is another one when accounting has more jobs that ended, or after this program started again.

    Until slurmctld has sent everything to slurmdbd, the period that is compared keeps its start."""
    now = int(time.time())
    known = seen.setdefault("ended ", {"began": now, "since": now, "at": 0.0, "jobs": set(), "count": 0})
    if not known["at"] or time.monotonic() - known["at"] >= ENDED_S:
        queue = [line.split()[-1] for line in run("sdiag").splitlines() if line.startswith("DBD Agent queue size:")]
        since = f"uts{min(known['since'], now) - ENDED_OVERLAP_S}"
        listed = run("env", "SLURM_TIME_FORMAT=%s", "sacct", "-aXDnP", "-S", since, "-o", "JobIDRaw,Submit,End")
        rows = [line.split("|") for line in listed.splitlines()]
        if all(len(row) == 3 for row in rows):
            jobs = {(row[0], row[1]) for row in rows if row[2].isdigit()}
            known["count"] += len(jobs - known["jobs"])
            known["jobs"] = jobs
            known["since"] = now if queue == ["0"] else known["since"]
        known["at"] = time.monotonic()
    return f"{known['began']}:{known['count']}"


def node_facts(node: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    name = node["name"]
    report = parsed_report(node.get("extra", ""))
    return {
        "name": name,
        "address": node.get("address") or name,
        "port": node.get("port") or 6818,
        "flags": sorted(node["state"]),
        "reason": node.get("reason", ""),
        "reason_by": node.get("reason_set_by_user", ""),
        "version": node.get("version", ""),
        "cpus": node.get("cpus", 0),
        "memory_mb": node.get("real_memory", 0),
        "gres": node.get("gres", ""),
        "report": without_times(report),
        **freshness(name, report, seen),
    }


def own_report(seen: dict[str, Any]) -> dict[str, Any]:
    try:
        with open(REPORT) as file:
            report = parsed_report(file.read())
    except OSError:
        report = None
    # Its report and this program have the same clock: only the others show whether that clock is wrong.
    return {"report": without_times(report), "clock_off_s": 0, "is_stale": own_is_stale(report, seen)}


def own_is_stale(report: dict[str, Any] | None, seen: dict[str, Any]) -> bool:
    """Return whether this machine has written no report for a while. One that was missing from the start counts too."""
    now, known = time.monotonic(), seen.get("own ")
    if known is None or (report is not None and report["up"] != known["up"]):
        known = seen["own "] = {"at": now, "up": None if report is None else report["up"]}
    return bool(now - known["at"] > OWN_STALE_S)


def freshness(name: str, report: dict[str, Any] | None, seen: dict[str, Any]) -> dict[str, Any]:
    """Return whether the report is old, and how far the machine's clock is off. `up` grows while the machine lives."""
    now = time.monotonic()
    before = seen.get(name)
    if report is None:
        return {"is_stale": True, "clock_off_s": 0}
    if before is None or before["up"] != report["up"]:
        shown = 0 if before is None else before["shown"]
        before = seen[name] = {
            "up": report["up"],
            "at": now,
            "t": report["t"],
            "shown": shown,
            "is_first": before is None,
        }
    # Compared at every look: the clock of this machine may have been set since the report came.
    off = round(before["t"] + now - before["at"] - time.time())
    # The first report may be an old one, so its time is not compared with the clock; its age counts from now on.
    if before["is_first"] or abs(off) < CLOCK_OFF_S:
        before["shown"] = 0
    elif abs(off - before["shown"]) > CLOCK_JITTER_S:  # Otherwise it is the same difference, read at another moment.
        before["shown"] = off
    return {"is_stale": now - before["at"] > STALE_S, "clock_off_s": before["shown"]}


def without_times(report: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if report is None else {name: value for name, value in report.items() if name not in ("t", "up")}


def probe(addresses: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """Return node -> what its slurmd answered to a connection: open, refused or silent. All at the same time."""
    answers: dict[str, str] = {}

    def connect(name: str, address: str, port: int) -> None:
        try:
            socket.create_connection((address, port), timeout=PROBE_S).close()
            answers[name] = "open"
        except ConnectionRefusedError:
            answers[name] = "refused"
        except OSError:
            answers[name] = "silent"

    threads = [threading.Thread(target=connect, args=(name, *to), daemon=True) for name, to in addresses.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def running_version(seen: dict[str, Any], package: str) -> str:
    """Return the version of the running slurmctld, which changes rarely: it is read once in a while, and at each look
    while it is not that of the package. An upgrade changes both, and an old version would be reported as a fault."""
    known, of_package = seen.get("version "), package.split(":")[-1].split("-")[0]
    is_current = known is not None and (not package or known["text"] == of_package)
    if known is None or not is_current or time.monotonic() - known["at"] > VERSION_S:
        lines = [line for line in run("scontrol", "show", "config").splitlines() if line.startswith("SLURM_VERSION")]
        known = seen["version "] = {"at": time.monotonic(), "text": lines[0].split("=", 1)[1].strip() if lines else ""}
    return str(known["text"])


def changed_partitions(seen: dict[str, Any], nodes: list[Any]) -> list[Any]:
    """Return [partition, setting, value in slurmctld, value in slurm.conf] of what someone changed by a command.

    A difference counts if two readings in a row show it while slurm.conf stays the same: an operation writes the file
    first and slurmctld reads it a moment later."""
    try:
        with open(SLURM_CONF) as file:
            written = [line for line in file.read().splitlines() if line.startswith("PartitionName=")]
    except OSError:
        return []
    known = seen.get("partitions ")
    if known is None or known["written"] != written:
        known = seen["partitions "] = {"written": written, "at": 0.0, "before": [], "shown": []}
    if not known["at"] or time.monotonic() - known["at"] >= PARTITIONS_S:
        now = differences(written, run("scontrol", "show", "partition", "-o").splitlines(), nodes)
        shown = [row for row in now if row in known["before"]]
        known.update(at=time.monotonic(), before=now, shown=shown)
    return list(known["shown"])


def differences(written: list[str], shown: list[str], nodes: list[Any]) -> list[Any]:
    """Compare lines of slurm.conf with those of slurmctld. It shows no hidden partition to a user without rights."""
    present = {line["PartitionName"]: line for line in map(settings, shown) if "PartitionName" in line}
    rows: list[Any] = []
    for wanted in map(settings, written if present else []):
        name, now = wanted["PartitionName"], present.get(wanted["PartitionName"])
        if wanted.get("Hidden") == "YES":
            continue
        if now is None:
            rows.append([name, "partition", "deleted", "present"])
            continue
        pairs = [(key, now.get(key, ""), wanted.get(key, default)) for key, default in COMPARED.items()]
        rows += [[name, key, is_now, was] for key, is_now, was in pairs if minutes(is_now) != minutes(was)]
        without = [node["name"] for node in nodes if is_worker(node) and name not in node["partitions"]]
        if without:
            rows.append([name, "Nodes", f"without {', '.join(sorted(without)[:JOBS_SHOWN])}", "all workers"])
    return rows


def is_worker(node: dict[str, Any]) -> bool:
    return "worker" in node.get("active_features", []) and "partitions" in node


def settings(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def minutes(limit: str) -> str:
    """Return a time limit as Slurm keeps it, in minutes rounded up; another value as it is."""
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if len(parts) != 3 or not all(part.isdigit() for part in (*parts, days or "0")):
        return limit
    seconds = ((int(days or 0) * 24 + int(parts[0])) * 60 + int(parts[1])) * 60 + int(parts[2])
    return str(-(-seconds // 60))


def listed_nodes(text: str) -> list[Any]:
    answer = parsed(text)
    return [] if answer is None else answer.get("nodes", [])


def parsed_report(text: str) -> dict[str, Any] | None:
    """Return the report of a machine. None for something else: people can write what they like into `extra`."""
    report = parsed(text)
    if report is None or not all(type(report.get(name)) in (int, float) for name in ("t", "up")):
        return None
    return report


def parsed(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def run(*argv: str) -> str:
    """Return what a command printed, errors included; the caller reads from it whether Slurm answered."""
    try:
        ran = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{argv[0]}: {error}"
    return ran.stdout.strip()


if __name__ == "__main__":
    main()
