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
from typing import Any

REPORT = "/run/gpuaas-slurm/health.json"
EVERY_S = 3.0
SIGN_OF_LIFE_S = 6.0
STALE_S = 7.0
"""A machine whose report has not changed for this long gets a closer look."""
PROBE_S = 2.0
COMMAND_S = 4.0
VERSION_S = 30.0
CLOCK_OFF_S = 10
"""Smaller differences between two clocks are not reported: reports are some seconds old when they are read."""


def main() -> None:
    cluster_name = sys.argv[1]
    seen: dict[str, Any] = {}
    printed, printed_at = "", 0.0
    threading.Thread(target=end_with_connection, daemon=True).start()
    while True:
        began = time.monotonic()
        line = json.dumps(look(cluster_name, seen), separators=(",", ":"), sort_keys=True)
        if line != printed or began - printed_at >= SIGN_OF_LIFE_S:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            printed, printed_at = line, began
        time.sleep(max(0.5, EVERY_S - (time.monotonic() - began)))


def end_with_connection() -> None:
    sys.stdin.read()
    os._exit(0)


def look(cluster_name: str, seen: dict[str, Any]) -> dict[str, Any]:
    ping = run("scontrol", "ping")
    # Without slurmctld, its commands wait for their time limit. The answer must not be later than a sign of life.
    answers = " is UP" in ping
    listed = run("scontrol", "show", "nodes", "--json") if answers else ""
    accounting = run("sacctmgr", "-nP", "show", "cluster", cluster_name, "format=Cluster")
    associations = ""
    if cluster_name in accounting.splitlines():
        where = ("where", f"cluster={cluster_name}", "account=default", "format=User,MaxSubmitJobs")
        associations = run("sacctmgr", "-nP", "show", "association", *where)
    nodes = [node_facts(node, seen) for node in listed_nodes(listed)]
    ports = probe({node["name"]: (node.pop("address"), node.pop("port")) for node in nodes})
    for node in nodes:
        node["slurmd_port"] = ports[node["name"]]
    return {
        "ping": ping,
        "accounting": accounting,
        "associations": associations,
        "nodes": nodes if listed.startswith("{") else None,
        "own": own_report(seen),
        "version": running_version(seen) if answers else "",
    }


def node_facts(node: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    name = node["name"]
    report = parsed(node.get("extra", ""))
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
            report = parsed(file.read())
    except OSError:
        report = None
    return {"report": without_times(report), **freshness("", report, seen)}


def freshness(name: str, report: dict[str, Any] | None, seen: dict[str, Any]) -> dict[str, Any]:
    """Return whether the report is old, and how far the machine's clock is off. `up` grows while the machine lives."""
    now = time.monotonic()
    before = seen.get(name)
    if report is None:
        return {"is_stale": True, "clock_off_s": 0}
    if before is None or before["up"] != report["up"]:
        off = round(report["t"] - time.time())
        before = seen[name] = {"up": report["up"], "at": now, "off": off, "is_first": before is None}
    # The first report may be an old one, so its time is not compared with the clock; its age counts from now on.
    off = 0 if before["is_first"] or abs(before["off"]) < CLOCK_OFF_S else before["off"]
    return {"is_stale": now - before["at"] > STALE_S, "clock_off_s": off}


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


def running_version(seen: dict[str, Any]) -> str:
    """Return the version of the running slurmctld, which changes rarely: it is read once in a while."""
    known = seen.get("version ")
    if known is None or time.monotonic() - known["at"] > VERSION_S:
        lines = [line for line in run("scontrol", "show", "config").splitlines() if line.startswith("SLURM_VERSION")]
        known = seen["version "] = {"at": time.monotonic(), "text": lines[0].split("=", 1)[1].strip() if lines else ""}
    return str(known["text"])


def listed_nodes(text: str) -> list[Any]:
    answer = parsed(text)
    return [] if answer is None else answer.get("nodes", [])


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
