"""What the watch of a cluster shows: slurmctld, accounting, every node, and the reports of the machines. Pure.

`watch_program` prints it on the machine of slurmctld. `DIRECT_LOOK` is what a machine is asked that seems unwell. Both
change nothing and need no rights."""

import json
from typing import Any, Literal

import msgspec
from gpuaas_sdk.checks import Check

from gpuaas_app_slurm.workload import footprint, state
from gpuaas_app_slurm.workload.watch_program import CLOCK_OFF_S

CLOCK = "date +%s"
MASKED = "masked"
"""The state of a unit that someone has forbidden to start."""
DIRECT_LOOK = rf"""
section() {{ printf '\n==%s==\n' "$1"; }}
section clock; {CLOCK}
section report; cat /run/gpuaas-slurm/health.json 2>/dev/null || true
section ping; timeout 3 scontrol ping 2>&1 || true
section units; systemctl show -p Id,ActiveState,LoadState slurmd {footprint.REPORTER_UNIT} 2>&1 || true
section end
"""


class Report(msgspec.Struct, frozen=True):
    """What the health reporter of a machine wrote, without its times."""

    units: dict[str, tuple[str, int]] = {}
    """Unit -> its state and how often systemd restarted it."""
    full: dict[str, int] = {}
    """Folder -> percent of free space, of file systems that are nearly full."""
    drift: tuple[str, ...] = ()
    """Files of the app that someone changed."""
    key: str = ""
    """A few digits of the digest of the machine's authentication key."""
    rotation: str = ""
    """`runs` while the key of the cluster is replaced, `left` if that did not end."""
    move: dict[str, str] = {}
    """`node_name` and `operation_id` of a move of the controller from this machine that has begun and not ended."""
    upgrade: dict[str, str] = {}
    """`operation_id` of the last upgrade from this controller machine, and the `package_version` before it."""
    package: str = ""
    """Version of the installed package."""
    programs: str = ""
    """A few digits of the digests of the app's programs on the machine, as the app wrote them; empty: not reported."""
    time_service: str = ""
    """Unit of the service that sets the machine's clock; empty: none is installed."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A report, and how old it is."""

    report: Report | None = None
    is_stale: bool = True
    clock_off_s: int = 0
    """How far the machine's clock is ahead of slurmctld's machine; small differences count as 0."""


class ObservedNode(Reported, frozen=True, kw_only=True):
    """A node as Slurm shows it."""

    name: str
    flags: frozenset[str]
    address: str = ""
    """The address from which its slurmd registered."""
    slurmd_port: Literal["open", "refused", "silent"] = "open"
    """What slurmd answered to a connection from the machine of slurmctld."""
    reason: str = ""
    reason_by: str = ""
    version: str = ""
    cpus: int = 0
    memory_mb: int = 0
    gres: str = ""

    @property
    def seems_unwell(self) -> bool:
        """Whether the machine itself must be asked what is wrong."""
        if "REBOOT_ISSUED" in self.flags:
            return False  # The restart explains it, and the machine cannot answer.
        return self.is_stale or self.slurmd_port != "open" or bool(self.flags & {"DOWN", "NOT_RESPONDING"})

    def as_node(self) -> state.Node:
        return state.Node(
            self.name,
            self.flags,
            self.reason,
            self.reason_by,
            self.cpus,
            self.memory_mb,
            state.gpu_count(self.gres),
            self.version,
        )


class BlockedJobs(msgspec.Struct, frozen=True):
    """Jobs that run or wait of a user who may not submit any more."""

    count: int
    first: tuple[str, ...]
    """Ids of the first few."""

    @property
    def text(self) -> str:
        more = self.count - len(self.first)
        return ", ".join(self.first) + (f" and {more} more" if more > 0 else "")


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """A setting of a partition that someone changed in the running slurmctld."""

    partition: str
    setting: str
    now: str
    written: str
    """The value in slurm.conf."""

    @property
    def text(self) -> str:
        return f"{self.setting} of {self.partition} is {self.now}, not {self.written}"


class Observed(msgspec.Struct, frozen=True):
    """A cluster, seen from the machine of its slurmctld."""

    scheduler: Check
    accounting: Check
    nodes: dict[str, ObservedNode] | None
    """None if slurmctld did not answer: then nothing is known about nodes."""
    own: Reported
    """Report of the machine of slurmctld; without its content if it is old, so that nothing is judged from it."""
    version: str = ""
    """Version of the slurmctld that runs."""
    associations: dict[str, bool] = {}
    """User of Slurm -> whether the user can submit jobs."""
    unplaced: frozenset[str] = frozenset()
    """Unix accounts of people that are no users of Slurm yet."""
    users_read: bool = True
    """False: accounting answered, but did not list its users."""
    blocked_jobs: dict[str, BlockedJobs] | None = {}
    """User who can not submit jobs -> their jobs that are left. None: squeue did not answer."""
    partitions: tuple[Changed, ...] = ()
    """What the running slurmctld has otherwise than slurm.conf."""
    move: dict[str, str] | None = None
    """The unfinished move of the newest report of the machine of slurmctld, also if it is old; None: it has none."""

    @property
    def clocks_differ(self) -> bool:
        """Whether the clock of a node differs from the clock of slurmctld's machine."""
        return any(node.clock_off_s for node in (self.nodes or {}).values())


class DirectLook(msgspec.Struct, frozen=True):
    """A look at one machine, from the machine itself. A machine that does not answer has only `unreachable`."""

    unreachable: str = ""
    report: Report | None = None
    scheduler: Check = Check(True)
    """Whether slurmctld answers a question from this machine."""
    units: dict[str, str] = {}
    clock: int = 0
    """Time of the machine when it answered, in seconds; 0: it did not."""
    clock_off_s: int | None = None
    """How far its clock is ahead of slurmctld's machine, asked at the same time. None: that machine did not answer."""


class _Line(msgspec.Struct, frozen=True):
    ping: str
    accounting: str
    nodes: list[ObservedNode] | None
    own: Reported
    version: str
    associations: str = ""
    unplaced: frozenset[str] = frozenset()
    blocked_jobs: dict[str, BlockedJobs] | None = {}
    partitions: tuple[Changed, ...] = ()


class Measured(msgspec.Struct, frozen=True):
    """How many nodes and jobs are in each state, and (used, all) of CPUs and GPUs."""

    nodes: dict[str, int]
    jobs: dict[str, int] | None
    """None: squeue did not answer."""
    cpus: tuple[int, int]
    gpus: tuple[int, int]


class _WithMeasured(msgspec.Struct, frozen=True):
    measured: Measured | None = None


class _Ended(msgspec.Struct, frozen=True):
    ended: str = ""


def parse(line: str, cluster_name: str) -> Observed:
    """Return what a line of the watch shows. Raises ValueError for a line that is not whole."""
    try:
        read = _decoded(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"the watch of the cluster printed no observation: {error}") from error
    return Observed(
        scheduler=state.controller_answers(read.ping),
        accounting=state.accounting_answers(read.accounting, cluster_name),
        nodes=None if read.nodes is None else {node.name: node for node in read.nodes},
        own=Reported() if read.own.is_stale else read.own,
        version=read.version,
        associations=_associations(read.associations),
        users_read=bool(read.associations),
        unplaced=read.unplaced,
        blocked_jobs=read.blocked_jobs,
        partitions=read.partitions,
        move=read.own.report.move if read.own.report else None,
    )


def _decoded(line: str) -> _Line:
    """Decode a line. People can write what they like where machines report, so a report that is none is left out."""
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        for reported in (fields.get("own"), *(fields.get("nodes") or [])):
            if isinstance(reported, dict) and not _is_report(reported.get("report")):
                reported |= {"report": None, "is_stale": True}
        return msgspec.convert(fields, _Line)


def _is_report(fields: Any) -> bool:
    try:
        msgspec.convert(fields, Report | None)
    except msgspec.ValidationError:
        return False
    return True


def parse_ended(line: str) -> str | None:
    """Return a text that is another one when more jobs have ended; None while accounting does not answer."""
    try:
        return msgspec.json.decode(line, type=_Ended).ended or None
    except msgspec.DecodeError:
        return None


def parse_measured(line: str) -> Measured | None:
    """Return what the watch counted; None if it was not asked to, or if slurmctld did not answer."""
    try:
        return msgspec.json.decode(line, type=_WithMeasured).measured
    except msgspec.DecodeError:
        return None


def without_measured(line: str) -> str:
    """Return the line without what the watch counted, which changes with every job. A line that is not whole stays."""
    try:
        read = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return line
    read.pop("measured", None)
    return msgspec.json.encode(read).decode()


def parse_direct(text: str) -> DirectLook:
    """Return what a direct look shows. Raises ValueError if its end is missing: a cut answer is no observation."""
    sections = _sections(text)
    if "end" not in sections:
        raise ValueError("the answer of the machine was cut off")
    return DirectLook(
        report=_report(sections.get("report", "")),
        scheduler=state.controller_answers(sections.get("ping", "")),
        units=_units(sections.get("units", "")),
        clock=int(sections.get("clock") or 0),
    )


def compared(direct: DirectLook, clock_of_slurmctld: int | None) -> DirectLook:
    """Return the look with the difference between the two clocks, in tens of seconds. Small ones count as none."""
    if clock_of_slurmctld is None or not direct.clock:
        return direct
    return msgspec.structs.replace(direct, clock_off_s=clock_off_s(direct.clock, clock_of_slurmctld))


def clock_off_s(clock: float, other: float) -> int:
    """Return how far a clock is ahead of another one, in tens of seconds: the two were not read at the same moment."""
    off_s = clock - other
    return round(off_s / 10) * 10 if abs(off_s) >= CLOCK_OFF_S else 0


def _associations(text: str) -> dict[str, bool]:
    pairs = [line.split("|") for line in text.splitlines() if line.count("|") == 1]
    return {user: limit != "0" for user, limit in pairs if user}


def _sections(text: str) -> dict[str, str]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("==") and line.endswith("==") and len(line) > 4:
            lines = sections.setdefault(line.strip("="), [])
        else:
            lines.append(line)
    return {name: "\n".join(content).strip() for name, content in sections.items()}


def _report(text: str) -> Report | None:
    try:
        fields: Any = json.loads(text)
        return msgspec.convert(fields, Report)
    except (ValueError, msgspec.ValidationError):
        return None


def _units(text: str) -> dict[str, str]:
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n")]
    return {
        block["Id"].removesuffix(".service"): MASKED if block.get("LoadState") == MASKED else block["ActiveState"]
        for block in blocks
        if "Id" in block
    }
