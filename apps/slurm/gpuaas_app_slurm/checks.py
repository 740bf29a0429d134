"""Named checks of a cluster: each finds one fault, with its reason and what to do about it. Pure.

`plan` turns the findings of a look into reports and repairs."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpuaas_app_slurm.workload import footprint, state, versions
from gpuaas_app_slurm.workload.observed import MASKED, DirectLook, Observed, ObservedNode, Report, Reported

CRASH_LOOP_RESTARTS = 3
"""So many automatic restarts of a daemon count as a crash loop while it does not run."""
CLOCK_REFUSED_S = 60
"""From this difference on, other faults of a machine count as consequences: Slurm refuses credentials that are too old.
On machines, 30 s were accepted and 120 s were not."""
LOGIN_AHEAD_S, LOGIN_BEHIND_S = 600, -3600
"""A machine whose clock is further ahead or behind refuses every certificate of the platform."""
HEALTH_CHECK = "/etc/slurm/gpuaas/health-check"
ACCOUNTING_FAULTS = {"mariadb": "DatabaseDown", "slurmdbd": "AccountingDown"}
"""Unit of the accounting -> the fault that it does not run."""
EXTERNALLY_DOWN, SLURMD_MASKED = "ExternallyDown", "SlurmdMasked"
CHANGED_SHOWN = 5
"""So many changed settings of partitions are named; a reason has a limited length."""
REFUSED = "Permission denied"
"""In the error of a login: the machine answers and refuses the certificate."""
_NODES = "its state: gpuaas action run {} node.read"
_FORCED = "--force --reason 'machine lost'"
"""The command line refuses --force without a reason."""


class Finding(msgspec.Struct, frozen=True):
    """A fault of a member."""

    code: str
    """Name of the fault; the runbook has an entry for each."""
    status: Literal["degraded", "failed"]
    """`failed`: the member does no work. `degraded`: it works, but not as it should."""
    reason: str
    fix: str
    """What a person does. It ends with a command that can be copied: alone, or after a colon."""
    repairs: bool = False
    """Whether the app requests the repair by itself."""

    @property
    def text(self) -> str:
        return f"{self.code}: {self.reason}."


class Machine(msgspec.Struct, frozen=True):
    """The words for a member in reasons and commands."""

    instance: str
    name: str
    address: str
    member: str = ""
    """The member's name in commands, if its machine has other members too: `gpu-1/controller`."""

    @property
    def repair(self) -> str:
        return f"gpuaas member repair {self.instance} {self.member or self.name}"

    def as_root(self, command: str) -> str:
        """Return the command that a person types. `gpuaas ssh --root` enters as a user that has sudo."""
        return f"gpuaas ssh {self.name} --root -- sudo {command}"


def of_controller(machine: Machine, seen: Observed, clock: Finding | None = None) -> list[Finding]:
    """Return the faults of the machine of slurmctld, the worst first. `clock`: its clock is wrong."""
    if left := _move_left(seen):
        return [left, *_of_machine(machine, seen.own)]
    findings = [
        *([clock] if clock else []),
        *_scheduler(machine, seen),
        *_accounting(machine, seen),
        *_rotation(machine, seen),
        *_rest(machine, seen),
        *_own_reporter(machine, seen),
        *_of_machine(machine, seen.own),
        *_own_version(machine, seen),
        *_partitions(machine, seen),
    ]
    return sorted(findings, key=lambda finding: finding.status != "failed")


def of_worker(
    machine: Machine,
    node: ObservedNode | None,
    direct: DirectLook | None,
    head: Reported,
    version: str,
    clock: Finding | None = None,
) -> list[Finding]:
    """Return the faults of a worker, the worst first. `direct` is the look at its machine, if there was one. `clock`:
    its clock is right, but differs from the clock of slurmctld's machine, which is wrong."""
    if direct is not None and direct.unreachable and (node is None or node.slurmd_port != "open" or node.is_stale):
        return [unreachable_worker(machine, direct.unreachable)]
    findings = [
        *_key(machine, node, direct, head),
        *_slurmd(machine, node, direct),
        *_registered(machine, node, direct),
        *_reporter(machine, node, direct),
        *_drained(machine, node),
        *_of_machine(machine, Reported(report=_newest(node, direct), clock_off_s=clock_off_s(node, direct))),
        *_version(machine, node, head, version),
    ]
    # While slurmd restarts, no program on its machine reaches the cluster. It counts when reports stay away too.
    if not findings and direct is not None and not direct.scheduler.ok and node is not None and node.is_stale:
        findings = [_cluster_unreachable(machine, direct)]
    findings = sorted(findings, key=lambda finding: finding.status != "failed")
    if _is_down_by_others(node) or any(finding.code == SLURMD_MASKED for finding in findings):
        findings = _left_alone(findings)
    off_s = clock_off_s(node, direct)
    return _wrong_elsewhere(findings, clock, off_s) if clock else _clock_first(findings, off_s)


def clock_of_slurmctld(machine: Machine, head: Reported, off_s: int) -> Finding:
    """Return the fault that the clock of slurmctld's machine is wrong."""
    side = "ahead of" if off_s > 0 else "behind"
    reason = f"the clock of {machine.name} is {abs(off_s)} s {side} the clocks of other machines of the cluster"
    time_service = head.report.time_service if head.report else None
    return Finding("ClockOff", "degraded", reason, _set_clock(machine, time_service, off_s))


def clock_off_s(node: ObservedNode | None, direct: DirectLook | None) -> int:
    """Return how far a worker's clock is ahead of slurmctld's machine. A direct look counts more: Slurm refuses the
    reports of a machine whose clock is far off."""
    if direct is not None and direct.clock_off_s is not None:
        return direct.clock_off_s
    return node.clock_off_s if node is not None else 0


def never_joined(machine: Machine) -> Finding:
    """Return the fault of a member whose join was declared done too early. A repair installs nothing."""
    reason = f"Slurm has no node {machine.name}: its join was declared done before its end"
    fix = f"remove it, then add it again: gpuaas member remove {machine.instance} {machine.member or machine.name}"
    return Finding("NeverJoined", "degraded", reason, fix)


def unreachable_worker(machine: Machine, error: str) -> Finding:
    """Return the fault of a machine that runs jobs, or where people log in."""
    if_lost = f"gpuaas member remove {machine.instance} {machine.member or machine.name} {_FORCED}"
    return _machine_silent(machine, error, if_lost)


def unreachable_controller(machine: Machine, error: str) -> Finding:
    """Return the fault of the machine of slurmctld. It cannot be removed alone: the cluster ends with it."""
    return _machine_silent(machine, error, f"gpuaas decommission {machine.instance} {_FORCED}")


def unwatched(machine: Machine, error: str) -> Finding:
    """Return the fault of a machine of slurmctld that answers, but on which the app's program for looking fails."""
    return Finding(
        "WatchFailed",
        "degraded",
        f"the program that looks at the cluster fails on {machine.name}, so nothing is known about its nodes: {error}",
        f"python3 and the commands of Slurm must work there: gpuaas ssh {machine.name} -- "
        "'python3 --version; scontrol ping; df -h /tmp; free -m'",
    )


def _machine_silent(machine: Machine, error: str, if_lost: str) -> Finding:
    if REFUSED in error:
        return _login_refused(machine, error)
    return Finding(
        "MachineSilent",
        "failed",
        f"machine {machine.name} ({machine.address}) does not answer: {error}",
        "start the machine or restore its network, and it returns by itself; if it is lost, give it up "
        f"({if_lost}). To see whether it answers: gpuaas ssh {machine.name} -- uptime",
    )


def _login_refused(machine: Machine, error: str) -> Finding:
    """Return the fault of a machine that refuses logins. It may run jobs, so it is not lost."""
    return Finding(
        "LoginRefused",
        "failed",
        f"machine {machine.name} ({machine.address}) answers and refuses the app's certificate: {error}",
        "log in at its console and set its clock if it is wrong: a machine refuses every certificate if its clock is "
        f"ten minutes ahead or an hour behind. Otherwise read the log of its ssh service there. {_try_login(machine)}",
    )


def _try_login(machine: Machine) -> str:
    return f"To see whether it accepts logins: gpuaas ssh {machine.name} -- uptime"


def _cluster_unreachable(machine: Machine, direct: DirectLook) -> Finding:
    reason = f"slurmctld answers, but not to {machine.name}: {direct.scheduler.reason}"
    return Finding("ClusterUnreachable", "degraded", reason, machine.repair, repairs=True)


def _scheduler(machine: Machine, seen: Observed) -> Iterator[Finding]:
    if not seen.scheduler.ok:
        yield Finding("SchedulerDown", "failed", seen.scheduler.reason, machine.repair, repairs=True)


def _move_left(seen: Observed) -> Finding | None:
    """Return the fault of the old machine of a move that did not end. A repair would start a second slurmctld there."""
    move = seen.move
    if seen.scheduler.ok or not move:
        return None
    to = move.get("node_name", "another machine")
    reason = (
        f"the move of the controller to {to} did not end; {to} may have the newest queue and accounting and run "
        "slurmctld, so do not release it"
    )
    return Finding("MoveLeft", "failed", reason, f"gpuaas op retry {move.get('operation_id', 'ID')} --reason TEXT")


def _partitions(machine: Machine, seen: Observed) -> Iterator[Finding]:
    """The app does not change it back: a person may have closed a partition on purpose. Slurm does not record who."""
    if seen.partitions and seen.scheduler.ok:
        listed = "; ".join(changed.text for changed in seen.partitions[:CHANGED_SHOWN])
        more = len(seen.partitions) - CHANGED_SHOWN
        also = f"; and {more} more" if more > 0 else ""
        reason = f"someone changed partitions in the running slurmctld, not in its file: {listed}{also}"
        fix = "if it was not on purpose, let slurmctld read its file again"
        yield Finding("ExternallyChanged", "degraded", reason, f"{fix}: {machine.as_root('scontrol reconfigure')}")


def _accounting(machine: Machine, seen: Observed) -> Iterator[Finding]:
    if seen.accounting.ok:
        return
    units = seen.own.report.units if seen.own.report else {}
    for unit, code in ACCOUNTING_FAULTS.items():
        if unit in units and units[unit][0] != "active":
            reason = f"{unit} on {machine.name} is {units[unit][0]}: jobs run, but their accounting is not stored"
            yield Finding(code, "degraded", reason, machine.repair, repairs=True)
            return
    # slurmdbd reports this before the next report of the machine shows that the database is down.
    code = "DatabaseDown" if "connect to database" in seen.accounting.reason else "AccountingDown"
    yield Finding(code, "degraded", seen.accounting.reason, machine.repair, repairs=True)


def _rest(machine: Machine, seen: Observed) -> Iterator[Finding]:
    report = seen.own.report
    unit, _ = report.units.get(footprint.REST_UNIT, ("active", 0)) if report else ("active", 0)
    if unit not in ("active", "reloading", "activating"):
        reason = f"slurmrestd on {machine.name} is {unit}: jobs run, but the REST API does not answer"
        yield Finding("RestDown", "degraded", reason, machine.repair, repairs=True)


def _slurmd(machine: Machine, node: ObservedNode | None, direct: DirectLook | None) -> Iterator[Finding]:
    report = _newest(node, direct)
    unit, restarts = report.units.get("slurmd", ("active", 0)) if report else ("active", 0)
    if direct is not None and "slurmd" in direct.units:
        unit = unit if unit in ("restarting", "stuck") else direct.units["slurmd"]
    if unit in ("active", "reloading", "activating"):
        return  # A unit that starts is not judged yet; the reporter calls it stuck after a while.
    if unit == MASKED:
        reason = f"someone masked slurmd on {machine.name}, so it cannot start, and the app leaves it so"
        yield Finding(SLURMD_MASKED, "failed", reason, machine.as_root("systemctl unmask slurmd"))
    elif restarts >= CRASH_LOOP_RESTARTS:
        reason = f"slurmd on {machine.name} does not stay up: systemd restarted it {restarts} times"
        log = machine.as_root("tail -n 20 /var/log/slurm/slurmd.log")
        yield Finding("SlurmdCrashLoop", "failed", f"{reason}. Its log: {log}", machine.repair, repairs=True)
    else:
        reason = f"slurmd on {machine.name} is {unit}, so no job runs there"
        yield Finding("SlurmdDown", "failed", reason, machine.repair, repairs=True)


def _rotation(machine: Machine, seen: Observed) -> Iterator[Finding]:
    if seen.own.report is not None and seen.own.report.rotation == "left":
        reason = "the replacement of the authentication key did not end: the cluster works, and accepts the old key too"
        yield Finding("KeyRotationLeft", "degraded", reason, f"gpuaas action run {machine.instance} auth.rotate")


def _key(machine: Machine, node: ObservedNode | None, direct: DirectLook | None, head: Reported) -> Iterator[Finding]:
    report = _newest(node, direct)
    if report is None or head.report is None or head.report.rotation:
        return  # While the key is replaced, machines get the new one one after the other.
    if head.report.key and report.key != head.report.key:
        reason = f"the authentication key on {machine.name} is not the key of the cluster"
        yield Finding("KeyMismatch", "failed", reason, machine.repair, repairs=True)
    elif report.rotation == "left":
        reason = f"{machine.name} was away when the authentication key was replaced, and still accepts the old one"
        yield Finding("KeyRotationLeft", "degraded", reason, machine.repair, repairs=True)


def _registered(machine: Machine, node: ObservedNode | None, direct: DirectLook | None) -> Iterator[Finding]:
    if node is None:
        reason = f"Slurm has no node {machine.name}: someone deleted it, or it never registered"
        yield Finding("NodeDeleted", "failed", reason, machine.repair, repairs=True)
        return
    faults = [text for flag, text in state.UNFIT.items() if flag in node.flags and flag != "DRAIN"]
    if not faults:
        return
    because = f": {node.reason}" if node.reason else ""
    reason = f"node {machine.name} {' and '.join(faults)}{because}"
    answers = direct is None or direct.scheduler.ok
    if not answers:
        reason += f"; from the machine itself, {direct.scheduler.reason if direct else ''}"
    if _is_down_by_others(node):
        yield _externally_down(machine, node)
    else:
        yield Finding("NodeDown", "failed", reason, machine.repair, repairs=True)


def with_reboot(machine: Machine, node: ObservedNode | None, findings: list[Finding]) -> list[Finding]:
    """Show a reboot that a person asked for, and not what it explains: the drain until the jobs have ended, then all
    faults of a machine that is silent. If the machine does not come back, Slurm removes the flag."""
    flags = node.flags if node is not None else frozenset()
    if "REBOOT_ISSUED" in flags:
        reason = f"Slurm restarts the machine of node {machine.name}"
        fix = f"wait until it is back; {_NODES.format(machine.instance)}. {state.BACK.format(machine.name)}"
        return [Finding("Rebooting", "degraded", reason, fix)]
    if "REBOOT_REQUESTED" in flags:
        reason = (
            f"Slurm restarts the machine of node {machine.name} when its jobs have ended; no other job starts there"
        )
        others = [finding for finding in findings if finding.code not in ("DrainLeft", "ExternallyDrained")]
        return [*others, Finding("Rebooting", "degraded", reason, f"wait; {_NODES.format(machine.instance)}")]
    return findings


def _is_down_by_others(node: ObservedNode | None) -> bool:
    return node is not None and state.down_by_others(node.as_node())


def _left_alone(findings: list[Finding]) -> list[Finding]:
    """Return the faults of a node that a person set down: that first, and no repair. Every repair of a node that is
    down restarts its slurmd. It would register, and Slurm would return the node to service."""
    unrepaired = [msgspec.structs.replace(finding, repairs=False) for finding in findings]
    return sorted(unrepaired, key=lambda finding: finding.code != EXTERNALLY_DOWN)


def _externally_down(machine: Machine, node: ObservedNode) -> Finding:
    by = "" if node.reason_by == state.SLURM_USER else node.reason_by
    reason = f"{by or 'someone'} set node {machine.name} down: {node.reason}"
    lasts = "Slurm returns it by itself soon; a drain lasts"
    return Finding(EXTERNALLY_DOWN, "degraded", reason, f"{lasts}. Ask {by or 'who set it'}, then: {_resume(machine)}")


def _reporter(machine: Machine, node: ObservedNode | None, direct: DirectLook | None) -> Iterator[Finding]:
    if node is None or not node.is_stale or direct is None or not direct.scheduler.ok:
        return
    if direct.units.get(footprint.REPORTER_UNIT, "inactive") != "active":
        yield _reporter_down(machine, "does not run, so its disks, clock and files are not checked")


def _own_reporter(machine: Machine, seen: Observed) -> Iterator[Finding]:
    """The watch reads the report on the machine itself, so one that stays away is the reporter's fault."""
    if seen.own.is_stale:
        yield _reporter_down(machine, "does not run or hangs, so its disks and files are not checked")


def _reporter_down(machine: Machine, fault: str) -> Finding:
    reason = f"the health reporter on {machine.name} {fault}"
    return Finding("ReporterDown", "degraded", reason, machine.repair, repairs=True)


def _drained(machine: Machine, node: ObservedNode | None) -> Iterator[Finding]:
    if node is None or "DRAIN" not in node.flags:
        return
    if node.reason.startswith(state.CHECK_PREFIX):
        reason = f"the health check of Slurm drained node {machine.name}: {node.reason}"
        fix = f"correct what it names; the next check resumes the node. To check now: {machine.as_root(HEALTH_CHECK)}"
        yield Finding("HealthCheckFailed", "degraded", reason, fix)
    elif state.drained_by_others(node.as_node()) and node.reason_by == state.SLURM_USER:
        reason = f"Slurm itself drained node {machine.name}: {node.reason or 'no reason given'}"
        yield Finding("ExternallyDrained", "degraded", reason, f"correct what it names, then: {_resume(machine)}")
    elif state.drained_by_others(node.as_node()):
        reason = f"{node.reason_by or 'someone'} drained node {machine.name}: {node.reason or 'no reason given'}"
        fix = f"ask {node.reason_by or 'who drained it'}, then: {_resume(machine)}"
        yield Finding("ExternallyDrained", "degraded", reason, fix)
    else:
        reason = f"node {machine.name} is still drained by an operation that has ended: {node.reason}"
        yield Finding("DrainLeft", "degraded", reason, _resume(machine))


def _resume(machine: Machine) -> str:
    return machine.as_root(f"scontrol update nodename={machine.name} state=resume")


def _of_machine(machine: Machine, reported: Reported) -> Iterator[Finding]:
    yield from _clock(machine, reported)
    report = reported.report
    if report is None:
        return
    for folder, percent in report.full.items():
        reason = f"the disk of {folder} on {machine.name} has {percent} % left"
        fix = f"delete what is not needed. The largest files: {_largest_files(machine, folder)}"
        yield Finding("DiskFull", "degraded", reason, fix)
    if report.drift:
        reason = f"files on {machine.name} were changed after the app wrote them: {', '.join(report.drift)}"
        yield Finding("FilesChanged", "degraded", reason, machine.repair)


def _clock(machine: Machine, reported: Reported) -> Iterator[Finding]:
    if not reported.clock_off_s:
        return
    side = "ahead of" if reported.clock_off_s > 0 else "behind"
    reason = f"the clock of {machine.name} is {abs(reported.clock_off_s)} s {side} the clock of slurmctld"
    time_service = reported.report.time_service if reported.report else None
    yield Finding("ClockOff", "degraded", reason, _set_clock(machine, time_service, reported.clock_off_s))


def _largest_files(machine: Machine, folder: str) -> str:
    return f"gpuaas ssh {machine.name} --root -- 'sudo du -xak {folder} | sort -n | tail'"


def _set_clock(machine: Machine, time_service: str | None, off_s: int) -> str:
    """A time service sets a clock that is far off when it starts. Later it corrects only small differences. None: it is
    not known whether the machine has one."""
    if not LOGIN_BEHIND_S < off_s < LOGIN_AHEAD_S:
        return f"set it at the machine's console, because it refuses every certificate. {_try_login(machine)}"
    if time_service is None:
        return f"restart its time service, for example: {machine.as_root('systemctl restart systemd-timesyncd')}"
    if time_service:
        return machine.as_root(f"systemctl restart {time_service}")
    return f"no time service is installed there, install one: {machine.as_root('apt-get install -y systemd-timesyncd')}"


def _clock_first(findings: list[Finding], off_s: int) -> list[Finding]:
    """Slurm refuses messages of a machine whose clock is far off. Then that is the cause, and no repair helps."""
    clock = next((finding for finding in findings if finding.code == "ClockOff"), None)
    if clock is None or abs(off_s) < CLOCK_REFUSED_S:
        return findings
    others = [msgspec.structs.replace(finding, repairs=False) for finding in findings if finding is not clock]
    return [msgspec.structs.replace(clock, status=findings[0].status), *others]


def _wrong_elsewhere(findings: list[Finding], clock: Finding, off_s: int) -> list[Finding]:
    """Return the faults of a worker if the clock of slurmctld's machine is wrong: that is the cause of the others."""
    own = [finding for finding in findings if finding.code != clock.code]
    return _clock_first([*own, clock], off_s) if own and abs(off_s) >= CLOCK_REFUSED_S else own


def _version(machine: Machine, node: ObservedNode | None, head: Reported, version: str) -> Iterator[Finding]:
    if node is None or not node.version:
        return
    package = node.report.package if node.report else ""
    restart, unfinished = machine.as_root("systemctl restart slurmd"), _unfinished_upgrade(node.version, head)
    if package and not versions.is_of_package(node.version, package):
        reason = f"package {package} is installed on {machine.name}, but slurmd still runs {node.version}"
        yield Finding("VersionDrift", "degraded", reason, unfinished or restart)
    elif version and node.version != version:
        reason = f"slurmd on {machine.name} runs {node.version}, slurmctld runs {version}"
        yield Finding("VersionDrift", "degraded", reason, unfinished or f"install the same version, then: {restart}")


def _own_version(machine: Machine, seen: Observed) -> Iterator[Finding]:
    """slurmctld is of its package, also after an upgrade: if it still runs the version of before, the upgrade did not
    end. While it does not answer, its version is not known."""
    package = seen.own.report.package if seen.own.report else ""
    if package and seen.version and not versions.is_of_package(seen.version, package):
        reason = f"package {package} is installed on {machine.name}, but slurmctld still runs {seen.version}"
        unfinished = _unfinished_upgrade(seen.version, seen.own) or _older_package(machine, seen.version, package)
        restart = machine.as_root("systemctl restart slurmctld")
        yield Finding("VersionDrift", "degraded", reason, unfinished or restart)


def _older_package(machine: Machine, version: str, package: str) -> str:
    """Return what to do if the package is of an older release, mostly because a rollback did not end. A restart would
    start an slurmctld that cannot read the state of the one that runs."""
    if versions.major_minor(package) >= versions.major_minor(version):
        return ""
    return (
        f"do not restart slurmctld, because the installed one cannot read its state. Install {version} again, or "
        f"finish the rollback: gpuaas rollback {machine.instance}"
    )


def _unfinished_upgrade(version: str, head: Reported) -> str:
    """Return how to finish the upgrade that did not reach this daemon: it still runs the version of before. To install
    or restart something by hand would leave the upgrade unfinished, and the queue may wait for its end."""
    upgrade = head.report.upgrade if head.report else {}
    if not upgrade or not versions.is_of_package(version, upgrade.get("package_version", "")):
        return ""
    retry = f"gpuaas op retry {upgrade['operation_id']} --reason TEXT"
    return f"the last upgrade did not end on this machine, finish it: {retry}"


def _newest(node: ObservedNode | None, direct: DirectLook | None) -> Report | None:
    if direct is not None and direct.report is not None:
        return direct.report
    return node.report if node is not None else None
