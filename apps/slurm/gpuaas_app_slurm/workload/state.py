"""Parse the nodes and jobs that Slurm prints, and check them. Pure; `nodes` runs the commands of Slurm."""

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from gpuaas_sdk.checks import Check
from gpuaas_sdk.failures import Refused

DRAIN_PREFIX = "gpuaas:"
"""The reason of every drain by this app starts with this text."""

CHECK_PREFIX = "gpuaas-check:"
"""The reason of every drain by Slurm's health check program, which this app wrote, starts with this text."""

SLURM_USER = "slurm"
"""slurmctld runs as this user, and is the author of each reason that it sets itself, such as `Not responding`."""

REBOOT_COMPLETE = "reboot complete"
"""slurmctld adds this to the reason of a node that a person rebooted in order to have it down afterwards."""

GIVEN_UP = "machine given up"
"""The end of the reason of a node whose machine did not answer when its member was removed or replaced by force."""

ROLE_FEATURES = frozenset({"worker", "login"})
"""Each node registers with the name of its role as a feature."""
WORKING = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
BACK = "If the machine is back already: scontrol update nodename={} state=resume"
HOSTS_MAX = 65_536
"""As many nodes as one cluster of Slurm can have. A longer list is no list of nodes and would fill the memory."""
LATEST_S = 253_370_764_800
"""The year 9999 begins. Slurm takes later times from people, for which Python has no date. The last year is left out,
because in the time zone of a reader its end can be in the next one."""
REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
"""Flags of a node from the request of `scontrol reboot` until its slurmd registers again. A node that is not back after
`ResumeTimeout` loses them and is DOWN."""
UNFIT = {
    "DOWN": "is down",
    "NOT_RESPONDING": "does not answer",
    "INVALID_REG": "registered with other hardware than configured",
    "DRAIN": "is drained",
    "FAIL": "is marked failed",
    "UNKNOWN": "has not registered yet",
}


class Node(msgspec.Struct, frozen=True):
    name: str
    flags: frozenset[str]
    reason: str = ""
    reason_by: str = ""
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    version: str = ""
    features: tuple[str, ...] = ()

    @property
    def slurm_state(self) -> str:
        """The state as text, base state first, without the flag that marks dynamic nodes."""
        order = ("IDLE", "ALLOCATED", "MIXED", "DOWN", "UNKNOWN")
        base = [flag for flag in order if flag in self.flags]
        rest = sorted(self.flags - frozenset(order) - {"DYNAMIC_NORM"})
        return "+".join(base + rest)


class Job(msgspec.Struct, frozen=True):
    job_id: int
    user: str
    state: str
    started_at: datetime.datetime | None = None
    ends_at: datetime.datetime | None = None
    nodes: tuple[str, ...] = ()
    """The nodes that it runs on."""
    required_nodes: tuple[str, ...] = ()
    """The nodes that its user named: without them it never starts."""
    gpus: int = 0
    name: str = ""
    partitions: tuple[str, ...] = ()
    """The partition that it runs in; a queued job can name several."""
    limit_minutes: float | None = None
    """Its time limit; infinite without one, None if unknown."""
    is_batch: bool = True
    """Whether a script runs it. Others belong to a command of their user, srun or salloc, which waits for them."""
    submit_host: str = ""
    """The machine on which its user ran sbatch, srun or salloc."""

    def gpu_hours(self, now: datetime.datetime) -> float:
        """Return the GPU time that it has used, which is lost if it is cancelled."""
        ran_s = (now - self.started_at).total_seconds() if self.started_at else 0.0
        return self.gpus * max(0.0, ran_s) / 3600


def parse_nodes(text: str) -> tuple[Node, ...]:
    return tuple(_node(raw) for raw in _answer(text)["nodes"])


def parse_jobs(text: str) -> tuple[Job, ...]:
    return tuple(_job(raw) for raw in _answer(text)["jobs"])


def has_role(node: Node, role: str) -> bool:
    """Return whether the record of the node is not that of another role. A node that joins again keeps its old record,
    with the GPUs and the partitions of then. People may have given it other features."""
    return role in node.features or not ROLE_FEATURES & set(node.features)


def controller_answers(ping: str) -> Check:
    if re.search(r"^Slurmctld\(primary\) at .* is UP", ping, re.MULTILINE):
        return Check(True)
    return Check(False, f"slurmctld does not answer: {ping.strip() or 'scontrol ping printed nothing'}")


def is_no_answer(error: str) -> bool:
    """Return whether a command failed because slurmctld did not answer it or ended, so it refused nothing."""
    words = ("contact", "zero bytes", "timed out", "connection refused", "connect failure")
    return any(word in error.lower() for word in words)


def accounting_answers(clusters: str, cluster_name: str) -> Check:
    """Pass if slurmdbd has the cluster. `clusters` is the output of `sacctmgr -nP show cluster format=Cluster`."""
    if cluster_name in clusters.splitlines():
        return Check(True)
    shown = clusters.strip()[-300:] or "it printed no cluster"
    return Check(False, f"slurmdbd does not answer for cluster {cluster_name}: {shown}")


def node_idle(name: str, node: Node | None) -> Check:
    if node is None:
        return Check(False, f"Slurm has no node {name}")
    faults = [text for flag, text in UNFIT.items() if flag in node.flags]
    if faults:
        return Check(False, f"node {name} {' and '.join(faults)}{_because(node)}")
    if "IDLE" not in node.flags:
        return Check(False, f"node {name} is {node.slurm_state}{_because(node)}")
    return Check(True)


def node_takes_work(name: str, node: Node | None) -> Check:
    """Pass if Slurm can start jobs on the node: it is idle or busy and has no fault."""
    if node is not None and not node.flags & UNFIT.keys():
        return Check(True)
    return node_idle(name, node)


def refuse_reboot(name: str, node: Node | None) -> None:
    """Refuse to change a node that Slurm is about to restart."""
    if node is not None and node.flags & REBOOTING:
        raise Refused(
            f"Slurm restarts the machine of node {name} when its jobs have ended, or restarts it now",
            fix=f"wait until it is back. To cancel a restart that has not begun: scontrol cancel_reboot {name}. "
            f"{BACK.format(name)}",
        )


def node_registered(name: str, node: Node | None) -> Check:
    """Pass if the node has registered. A drained node passes too."""
    if node is None:
        return Check(False, f"Slurm has no node {name}")
    unfit = [text for flag, text in UNFIT.items() if flag in node.flags and flag not in ("DRAIN", "FAIL")]
    if unfit:
        return Check(False, f"node {name} {' and '.join(unfit)}{_because(node)}")
    return Check(True)


def node_drained(name: str, node: Node | None, jobs: tuple[Job, ...]) -> Check:
    """Pass if the node is drained, runs no job and answers. A node that does not answer never passes."""
    if node is None:
        return Check(False, f"Slurm has no node {name}")
    if "DRAIN" not in node.flags or "UNDRAIN" in node.flags:
        return Check(False, f"node {name} is {node.slurm_state}, not drained")
    return no_work(name, node, jobs)


def no_work(name: str, node: Node | None, jobs: tuple[Job, ...]) -> Check:
    """Pass if no job can run on the node: Slurm does not have it, or it answers and runs none."""
    if node is None:
        return Check(True)
    if jobs or node.flags & WORKING:
        return Check(False, _still_running(name, jobs))
    if node.flags & {"NOT_RESPONDING", "DOWN", "UNKNOWN"}:
        return Check(False, f"node {name} is {node.slurm_state}: it is unknown whether jobs still run there")
    return Check(True)


def waiting_for(name: str, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the queued jobs whose user named the node. Without the node they never start, or end as NODE_FAIL."""
    return tuple(job for job in jobs if "PENDING" in job.state and name in job.required_nodes)


def interrupted(before: tuple[Job, ...], now: tuple[Job, ...]) -> str:
    """Return what Slurm did with the jobs of a node that was deleted. `now` are the jobs of the cluster after that."""
    waiting = {job.job_id for job in now if "PENDING" in job.state}
    left = {job.job_id for job in now if job.job_id not in waiting}
    shown = {True: "requeued by Slurm", False: "ended by Slurm"}
    listed = [
        f"{job.job_id} ({job.user}): {'still running' if job.job_id in left else shown[job.job_id in waiting]}"
        for job in before[:20]
    ]
    return f"{len(before)} job{_s(before)} ran on its node: {', '.join(listed)}"


def jobs_in(partitions: Iterable[str], jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the jobs that run in one of the partitions, or may start there."""
    names = frozenset(partitions)
    return tuple(job for job in jobs if names & frozenset(job.partitions))


def hosts(expression: str) -> tuple[str, ...]:
    """Expand a list of hosts as Slurm prints it: `gpu-[1-3,07],login` has five. Of more than `HOSTS_MAX`, the first."""
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", expression)
    return tuple(itertools.islice((name for part in parts for name in _expanded(part)), HOSTS_MAX))


def last_job_over(names: tuple[str, ...], nodes: tuple[Node, ...]) -> Check:
    """Pass if these nodes have finished their last job. The output of a job arrives shortly before that."""
    busy = sorted(node.name for node in nodes if node.name in names and "COMPLETING" in node.flags)
    return Check(not busy, f"{', '.join(busy)}: still finishing the last job" if busy else "")


def drain_reason(operation_id: str, reason: str) -> str:
    return f"{DRAIN_PREFIX}{operation_id}: {reason or 'no reason given'}"


def drained_by_operation(node: Node, operation_id: str) -> bool:
    return "DRAIN" in node.flags and node.reason.startswith(f"{DRAIN_PREFIX}{operation_id}:")


def drained_by_app(node: Node) -> bool:
    return "DRAIN" in node.flags and node.reason.startswith(DRAIN_PREFIX)


def drained_by_others(node: Node) -> bool:
    return "DRAIN" in node.flags and not node.reason.startswith(DRAIN_PREFIX)


def foreign_drain(node: Node) -> str:
    """Return who drained the node and why, for a node that another user drained."""
    return f"node {node.name} was drained by {node.reason_by or 'an unknown user'}: {node.reason or 'no reason given'}"


def kept_text(node: Node) -> str:
    """Return what a drain does with the drain that another user has set before."""
    return f"{foreign_drain(node)}. That drain and its reason stay, and only that user should lift it"


def refuse_foreign_drain(node: Node) -> None:
    """Refuse to resume a node that another user drained."""
    if drained_by_others(node):
        raise Refused(
            f"{foreign_drain(node)}; only that user should resume it",
            fix=f"ask that user, then: gpuaas ssh {node.name} --root -- sudo scontrol update nodename={node.name} "
            "state=resume",
        )


def down_by_others(node: Node) -> bool:
    """Return whether a person took the node out of service as `down` or `fail`. Root is a person: slurmctld sets its
    own reasons as its own user, and slurmd, which runs as root, only drains. If slurmctld takes down a node that has a
    person's reason, it adds its own and becomes the author. A reason of unknown author counts as a person's."""
    if not node.flags & {"DOWN", "FAIL"} or not node.reason or node.reason.startswith((DRAIN_PREFIX, CHECK_PREFIX)):
        return False
    return node.reason_by != SLURM_USER or node.reason.endswith(REBOOT_COMPLETE)


def given_up_reason(operation_id: str) -> str:
    return drain_reason(operation_id, GIVEN_UP)


def is_given_up(node: Node) -> bool:
    """Return whether the app keeps jobs off the node because its machine was given up."""
    return drained_by_app(node) and node.reason.endswith(f": {GIVEN_UP}")


def cluster_quiet(jobs: tuple[Job, ...]) -> Check:
    if not jobs:
        return Check(True)
    listed = ", ".join(f"{job.job_id} ({job.user}, {job.state})" for job in jobs[:10])
    return Check(False, f"{len(jobs)} job{_s(jobs)} running or queued: {listed}")


def running(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the jobs that hold nodes. Queued jobs hold none."""
    return tuple(job for job in jobs if "PENDING" not in job.state)


def interactive(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the jobs for which a command of their user waits, running or queued."""
    return tuple(job for job in jobs if not job.is_batch)


def started_from(name: str, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the jobs for which a command on this machine waits: they are lost with it. Batch jobs are not."""
    return tuple(job for job in interactive(jobs) if job.submit_host == name)


def no_commands(name: str, jobs: tuple[Job, ...]) -> Check:
    """Pass if no command on this machine waits for one of these jobs."""
    started = started_from(name, jobs)
    if not started:
        return Check(True)
    return Check(False, f"commands on {name} wait for {len(started)} job{_s(started)}: {listed(started)}")


def listed(jobs: tuple[Job, ...]) -> str:
    return ", ".join(f"{job.job_id} ({job.user})" for job in jobs[:20])


def running_text(jobs: tuple[Job, ...]) -> str:
    return f"{len(jobs)} job{_s(jobs)} running: {', '.join(_with_end(job) for job in jobs[:10])}"


def canary_ran(output: str, expected: tuple[str, ...]) -> Check:
    missing = sorted(frozenset(expected) - frozenset(output.split()))
    return Check(
        not missing,
        f"the test job, which each machine must run before the cluster is used, did not run on {', '.join(missing)}"
        if missing
        else "",
    )


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


def _expanded(part: str) -> Iterator[str]:
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)$", part)
    if match is None:
        yield part
        return
    before, ranges, after = match.groups()
    numbers = (number for item in ranges.split(",") for number in _range(item))
    yield from (f"{before}{number}{rest}" for number in numbers for rest in _expanded(after))


def _range(item: str) -> Iterator[str]:
    first, _, last = item.partition("-")
    return (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))


def _answer(text: str) -> Any:
    return msgspec.json.decode(text)


def _node(raw: dict[str, Any]) -> Node:
    return Node(
        name=raw["name"],
        flags=frozenset(raw["state"]),
        reason=raw.get("reason", ""),
        reason_by=raw.get("reason_set_by_user", ""),
        cpus=raw.get("cpus", 0),
        memory_mb=raw.get("real_memory", 0),
        gpus=gpu_count(raw.get("gres", "")),
        version=raw.get("version", ""),
        features=tuple(raw.get("active_features", ())),
    )


def _job(raw: dict[str, Any]) -> Job:
    gpus = re.findall(r"(?:^|,)gres/gpu=(\d+)", raw.get("tres_alloc_str", "") or raw.get("tres_req_str", ""))
    return Job(
        job_id=raw["job_id"],
        user=raw.get("user_name", ""),
        state="+".join(raw.get("job_state", [])),
        started_at=moment(raw.get("start_time", {})),
        # For a job without a time limit, Slurm reports an end time that is a year away.
        ends_at=None if raw.get("time_limit", {}).get("infinite") else moment(raw.get("end_time", {})),
        nodes=hosts(raw.get("nodes", "")),
        required_nodes=hosts(raw.get("required_nodes", "")),
        gpus=sum(int(count) for count in gpus),
        name=raw.get("name", ""),
        partitions=tuple(name for name in raw.get("partition", "").split(",") if name),
        limit_minutes=_minutes(raw.get("time_limit", {})),
        is_batch=raw.get("batch_flag", True),
        submit_host=raw.get("allocating_node", ""),
    )


def moment(number: dict[str, Any]) -> datetime.datetime | None:
    """Return a time as Slurm prints it in JSON; None if it has none, or one that the calendar does not have."""
    known = number.get("set") and not number.get("infinite") and 0 < number.get("number", 0) < LATEST_S
    return datetime.datetime.fromtimestamp(number["number"], datetime.UTC) if known else None


def gpu_count(gres: str) -> int:
    """Return the number of GPUs in the text of a node's generic resources: `gpu:a100:4(S:0-1)`."""
    counts = re.findall(r"(?:^|,)gpu(?::[A-Za-z][^:,(]*)?:(\d+)", gres)
    return sum(int(count) for count in counts)


def _minutes(number: dict[str, Any]) -> float | None:
    if number.get("infinite"):
        return float("inf")
    return float(number["number"]) if number.get("set") else None


def running_version(config_text: str) -> str:
    """Return the version in the output of `scontrol show config`; empty if there is none."""
    match = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config_text, re.MULTILINE)
    return match[1] if match else ""
