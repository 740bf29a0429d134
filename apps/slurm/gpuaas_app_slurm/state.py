"""What Slurm says, turned into named checks that answer with a reason.  Pure; `nodes` asks."""

import datetime
import re
from typing import Any

import msgspec

OUR_DRAIN = "gpuaas:"

WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
UNFIT = {
    "DOWN": "is down",
    "NOT_RESPONDING": "does not answer",
    "INVALID_REG": "registered with other hardware than it announced",
    "DRAIN": "is drained",
    "FAIL": "is marked failed",
    "UNKNOWN": "has not registered yet",
}


class Check(msgspec.Struct, frozen=True):
    """A named question's answer; the reason is the sentence people read."""

    ok: bool
    reason: str = ""


class Node(msgspec.Struct, frozen=True):
    name: str
    flags: frozenset[str]
    reason: str = ""
    reason_by: str = ""
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    version: str = ""

    @property
    def slurm_state(self) -> str:
        """As sinfo would name it, base state first, without how the node came to be."""
        order = ("IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN")
        base = [flag for flag in order if flag in self.flags]
        rest = sorted(self.flags - frozenset(order) - {"DYNAMIC_NORM"})
        return "+".join(base + rest)


class Job(msgspec.Struct, frozen=True):
    job_id: int
    user: str
    state: str
    ends_at: datetime.datetime | None = None


def parse_nodes(text: str) -> tuple[Node, ...]:
    return tuple(_node(raw) for raw in _answer(text)["nodes"])


def parse_jobs(text: str) -> tuple[Job, ...]:
    return tuple(_job(raw) for raw in _answer(text)["jobs"])


def controller_answers(ping: str) -> Check:
    if re.search(r"^Slurmctld\(primary\) at .* is UP", ping, re.MULTILINE):
        return Check(True)
    return Check(False, f"slurmctld does not answer: {ping.strip() or 'scontrol ping said nothing'}")


def accounting_ready(clusters: str, cluster_name: str) -> Check:
    """`clusters` is `sacctmgr -nP show cluster format=Cluster`."""
    if cluster_name in clusters.split():
        return Check(True)
    return Check(False, f"slurmdbd does not know cluster {cluster_name}")


def node_idle(name: str, node: Node | None) -> Check:
    if node is None:
        return Check(False, f"Slurm does not know node {name}")
    faults = [text for flag, text in UNFIT.items() if flag in node.flags]
    if faults:
        return Check(False, f"node {name} {' and '.join(faults)}{_because(node)}")
    if "IDLE" not in node.flags:
        return Check(False, f"node {name} is {node.slurm_state}{_because(node)}")
    return Check(True)


def node_takes_work(name: str, node: Node | None) -> Check:
    """Idle or busy, but fit."""
    if node is not None and not node.flags & UNFIT.keys():
        return Check(True)
    return node_idle(name, node)


def node_drained(name: str, node: Node | None, jobs: tuple[Job, ...]) -> Check:
    """Drained means: takes no new work, runs none, and says so itself. A node that does not answer says nothing."""
    if node is None:
        return Check(False, f"Slurm does not know node {name}")
    if "DRAIN" not in node.flags or "UNDRAIN" in node.flags:
        return Check(False, f"node {name} is {node.slurm_state}, not drained")
    if jobs or node.flags & WORKING:
        return Check(False, _still_running(name, jobs))
    if node.flags & {"NOT_RESPONDING", "DOWN", "UNKNOWN"}:
        return Check(False, f"node {name} is {node.slurm_state}: whether work still runs there is unknown")
    return Check(True)


def last_job_over(names: tuple[str, ...], nodes: tuple[Node, ...]) -> Check:
    """Whether these nodes have let go of the job that ended last: Slurm tells who ran it a moment before."""
    busy = sorted(node.name for node in nodes if node.name in names and "COMPLETING" in node.flags)
    return Check(not busy, f"{', '.join(busy)}: finishing the last job" if busy else "")


def drained_by_us(node: Node) -> bool:
    return "DRAIN" in node.flags and node.reason.startswith(OUR_DRAIN)


def drained_by_others(node: Node) -> bool:
    return "DRAIN" in node.flags and not node.reason.startswith(OUR_DRAIN)


def cluster_quiet(jobs: tuple[Job, ...]) -> Check:
    if not jobs:
        return Check(True)
    listed = ", ".join(f"{job.job_id} ({job.user}, {job.state})" for job in jobs[:10])
    return Check(False, f"{len(jobs)} job{_s(jobs)} running or queued: {listed}")


def canary_ran(output: str, expected: tuple[str, ...]) -> Check:
    missing = sorted(frozenset(expected) - frozenset(output.split()))
    return Check(not missing, f"the first job gave no answer from {', '.join(missing)}" if missing else "")


def _still_running(name: str, jobs: tuple[Job, ...]) -> str:
    if not jobs:
        return f"node {name} is finishing its last job"
    listed = ", ".join(_with_end(job) for job in jobs[:10])
    return f"{len(jobs)} job{_s(jobs)} still on {name}: {listed}"


def _with_end(job: Job) -> str:
    if job.ends_at is None:
        return f"{job.job_id} ({job.user})"
    return f"{job.job_id} ({job.user}, ends by {job.ends_at:%Y-%m-%d %H:%M} UTC)"


def _s(jobs: tuple[Job, ...]) -> str:
    return "" if len(jobs) == 1 else "s"


def _because(node: Node) -> str:
    return f": {node.reason}" if node.reason else ""


def _answer(text: str) -> Any:
    return msgspec.json.decode(text)


def _node(raw: dict[str, Any]) -> Node:
    gpus = re.findall(r"(?:^|,)gpu(?::[A-Za-z][^:,(]*)?:(\d+)", raw.get("gres", ""))
    return Node(
        name=raw["name"],
        flags=frozenset(raw["state"]),
        reason=raw.get("reason", ""),
        reason_by=raw.get("reason_set_by_user", ""),
        cpus=raw.get("cpus", 0),
        memory_mb=raw.get("real_memory", 0),
        gpus=sum(int(count) for count in gpus),
        version=raw.get("version", ""),
    )


def _job(raw: dict[str, Any]) -> Job:
    end = raw.get("end_time", {})
    known = end.get("set") and not end.get("infinite") and end.get("number", 0) > 0
    limit = raw.get("time_limit", {})
    return Job(
        job_id=raw["job_id"],
        user=raw.get("user_name", ""),
        state="+".join(raw.get("job_state", [])),
        # A job without a time limit shows an end a year away, which tells nobody anything.
        ends_at=datetime.datetime.fromtimestamp(end["number"], datetime.UTC)
        if known and not limit.get("infinite")
        else None,
    )


def running_version(config_text: str) -> str:
    """From `scontrol show config`; empty when it does not say."""
    found = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config_text, re.MULTILINE)
    return found[1] if found else ""
