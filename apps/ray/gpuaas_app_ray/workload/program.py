"""Runs on a machine, with the Python of Debian: look at Ray there, drain it, or call the API of its dashboard.

Ray names its processes after what they do. That is what runs now; the lists of its dashboard are seconds old."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

DATA, RAY = Path("/var/lib/gpuaas-work-ray"), "/opt/gpuaas-work-ray/env/bin/ray"
OWN = {"IDLE", "IDLE_SpillWorker", "IDLE_RestoreWorker", "DashboardAgent", "RuntimeEnvAgent"}
WHY = ("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "drained by the platform")


def processes() -> list[list[str]]:
    listed = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            listed.append(path.read_text(errors="replace").rstrip("\0").split("\0"))
    return listed


def call(method: str, url: str, body: bytes | None = None) -> str:
    """Call this machine itself: a proxy that root uses must not be asked."""
    headers = {"Content-Type": "application/json"}
    if os.access(DATA / "token", os.R_OK):
        headers["Authorization"] = f"Bearer {(DATA / 'token').read_text()}"
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
        return str(answer.read().decode(errors="replace"))


def look(urls: list[str]) -> dict[str, object]:
    try:
        health = next((text for text in (call("GET", url) for url in urls) if text != "success"), "success")
    except OSError as error:
        health = str(error)
    names = [words[0] for words in processes()]
    work = sorted(name for name in names if name.startswith("ray::") and name[5:].split(" ")[0] not in OWN)
    if urls[-1].endswith("gcs_healthz") and health == "success" and os.access(DATA / "token", os.R_OK):
        jobs = json.loads(call("GET", urls[-1].replace("gcs_healthz", "jobs/")))
        work = [name for name in work if "JobSupervisor" not in name]
        work += [f"job {job['submission_id'] or job['job_id']}" for job in jobs if not job["end_time"]]
    runs = any(name.endswith("/raylet") for name in names)
    closed = os.path.exists(DATA / "closed")  # for a health check, which may not look, false and no error
    return {"health": health, "runs": runs, "closed": closed, "work": work}


def drain() -> int:
    """Drain this node, without a deadline: Ray ends the node when its last task and actor have ended."""
    for words in [words for words in processes() if words[0].endswith("/raylet")]:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        node = ("--address", given["--gcs-address"], "--node-id", given["--node_id"])
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(DATA / "token")}
        return subprocess.run((RAY, "drain-node", *node, *WHY), env=os.environ | token, check=False).returncode
    return 0


if __name__ == "__main__":
    given = sys.stdin.buffer.read() if sys.argv[1] == "POST" else None
    if sys.argv[1] == "drain":
        sys.exit(drain())
    print(json.dumps(look(sys.argv[2:])) if sys.argv[1] == "look" else call(sys.argv[1], sys.argv[2], given))  # noqa: T201
