"""The faults of a cluster that tests cause, and who ends each: the app, a person who follows the printed fix, or hands
at the machine."""

from dataclasses import dataclass
from typing import Literal

from watched_cluster import Member

CONTROLLER, WORKER, OTHER_WORKER = ("gpu-1", "controller"), ("gpu-2", "worker"), ("gpu-3", "worker")
WORKERS = frozenset({WORKER, OTHER_WORKER})

# Not in a file of the app: a repair does not put it right, so slurmd crashes until the file is deleted.
BROKEN_SLURMD = r"""
printf '[Service]\nExecStart=\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=1\n' \
  > /etc/systemd/system/slurmd.service.d/zz-broken.conf
systemctl daemon-reload; systemctl restart --no-block slurmd
"""
MENDED_SLURMD = r"""
! rm /etc/systemd/system/slurmd.service.d/zz-broken.conf 2>/dev/null ||
  { systemctl daemon-reload; systemctl restart --no-block slurmd; }
"""
FULL_DISK = "mount -t tmpfs -o size=1M none /tmp; dd if=/dev/zero of=/tmp/forgotten bs=1k count=1010 || :"
# Machines of the lab have the clock of the host. A library gives the programs that start from now on another time:
# sshd, which compares it with certificates, services, sessions over SSH and what these start. The offset is in a file,
# and the machine has a time service that sets it right when it starts, as time services do. A real clock is wrong for
# all programs at the same moment, so no login is possible while services start one after the other.
WRONG_CLOCK = r"""
library=$(dpkg -L libfaketime | grep libfaketimeMT.so)
variables="LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=/run/offset FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1"
cat > /etc/systemd/system/systemd-timesyncd.service <<'END'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo +0s > /run/offset'
END
echo "SetEnv $variables" > /etc/ssh/sshd_config.d/clock.conf
systemctl daemon-reload
echo "@OFFSET@" > /run/offset
systemctl set-environment $variables
systemctl stop ssh; pkill sshd-session || :
systemctl try-restart slurmdbd slurmctld || :
systemctl restart --no-block slurmd gpuaas-slurm-health
systemctl start ssh
"""
# Services keep the library: without an offset it changes nothing.
RIGHT_CLOCK = r"""
echo +0s > /run/offset
systemctl unset-environment LD_PRELOAD FAKETIME_TIMESTAMP_FILE FAKETIME_DONT_FAKE_MONOTONIC FAKETIME_NO_CACHE
rm -f /etc/systemd/system/systemd-timesyncd.service /etc/ssh/sshd_config.d/clock.conf
systemctl daemon-reload; systemctl restart ssh
"""
WITHOUT_HOMES = "umount /home/people; /etc/slurm/gpuaas/health-check"


@dataclass(frozen=True)
class Fault:
    member: Member
    code: str
    """The first word of the reason."""
    by: Literal["app", "person", "hands"]
    """Who ends the fault. The app: by a repair that it requests itself. A person: by the printed command. Hands: by
    what the fix names and no command can do."""
    script: str = ""
    """What goes wrong, as root on a machine."""
    on: str = ""
    """The machine of the script, if it is not the member's."""
    lab: str = ""
    """What the lab does to the member's machine: `freeze`."""
    hands: str = ""
    """How the lab ends that: `thaw`. Or a script on the machine, if a script caused the fault."""
    clean: str = ""
    """Script that takes away what the test itself put on the machine."""
    later: str = ""
    """The code that the fault has later, while no repair of the app ends it. After that, `hands` end it."""
    may_suffer: frozenset[Member] = frozenset()
    """The other members that may be shown as unwell before the fault is seen. Each use states why; a member that is in
    no such set must stay ready."""


def _wrong_clock(member: Member, offset: str) -> Fault:
    # Daemons refuse messages of a machine whose clock differs by a minute. If that is the machine of slurmctld, every
    # worker has faults: it does not register. And while sshd restarts there, the app cannot compare its own clock, so
    # for one look the clocks of the workers may count as wrong. The lab gives only some daemons another time, so the
    # health check of slurmctld's own machine finds a difference too.
    may_suffer = WORKERS | {("gpu-1", "worker")} if member == CONTROLLER else frozenset[Member]()
    script = WRONG_CLOCK.replace("@OFFSET@", offset)
    return Fault(member, "ClockOff", "person", script, clean=RIGHT_CLOCK, may_suffer=may_suffer)


def _closed_by_clock(code: str, offset: str) -> Fault:
    script, hands = WRONG_CLOCK.replace("@OFFSET@", offset), "systemctl restart systemd-timesyncd"
    return Fault(WORKER, code, "hands", script, hands=hands, clean=RIGHT_CLOCK)


def _silent_controller(lab: str, hands: str) -> Fault:
    # The app does not judge workers while it cannot read the cluster. But what slurmctld's machine has printed at its
    # last moment may show that it reaches no worker, and the homes of the workers may be on its disk.
    return Fault(CONTROLLER, "MachineSilent", "hands", lab=lab, hands=hands, may_suffer=WORKERS)


SHORT = {
    "slurmd is stopped": Fault(WORKER, "SlurmdDown", "app", "systemctl stop slurmd"),
    "a person drains a node": Fault(
        WORKER, "ExternallyDrained", "person", "scontrol update nodename=gpu-2 state=drain reason='bad fan'", on="gpu-1"
    ),
    "a node is deleted": Fault(WORKER, "NodeDeleted", "app", "scontrol delete nodename=gpu-2", on="gpu-1"),
    "the database is stopped": Fault(CONTROLLER, "DatabaseDown", "app", "systemctl stop mariadb"),
    "a file is edited": Fault(CONTROLLER, "FilesChanged", "person", "echo '# mine' >> /etc/slurm/slurm.conf"),
}
LONG = {
    "slurmctld is killed": Fault(CONTROLLER, "SchedulerDown", "app", "systemctl stop slurmctld"),
    "another key": Fault(
        WORKER,
        "KeyMismatch",
        "app",
        "head -c 1024 /dev/urandom > /etc/slurm/slurm.key; systemctl restart --no-block slurmd",
    ),
    "slurmd crashes again and again": Fault(
        WORKER, "Slurmd", "app", BROKEN_SLURMD, hands=MENDED_SLURMD, clean=MENDED_SLURMD, later="SlurmdCrashLoop"
    ),
    "a disk is full": Fault(WORKER, "DiskFull", "person", FULL_DISK, clean="umount -l /tmp"),
    "a clock is ahead": _wrong_clock(WORKER, "+120s"),
    "a clock is behind": _wrong_clock(WORKER, "-120s"),
    "the clock of slurmctld is ahead": _wrong_clock(CONTROLLER, "+120s"),
    "the clock of slurmctld is behind": _wrong_clock(CONTROLLER, "-120s"),
    "the clock of slurmctld is a little ahead": _wrong_clock(CONTROLLER, "+20s"),
    "a clock is so far ahead that no login is possible": _closed_by_clock("ClockOff", "+2h"),
    "a clock is so far behind that no login is possible": _closed_by_clock("LoginRefused", "-2h"),
    "a machine is frozen": Fault(WORKER, "MachineSilent", "hands", lab="freeze", hands="thaw"),
    "a machine is cut off": Fault(WORKER, "MachineSilent", "hands", lab="cut", hands="heal"),
    "a machine has no power": Fault(WORKER, "MachineSilent", "hands", lab="kill", hands="start"),
    "the machine of slurmctld is frozen": _silent_controller("freeze", "thaw"),
    "the machine of slurmctld is cut off": _silent_controller("cut", "heal"),
    "the machine of slurmctld has no power": _silent_controller("kill", "start"),
    "a node has no homes": Fault(
        WORKER, "HealthCheckFailed", "hands", WITHOUT_HOMES, hands="systemctl restart home-people.mount"
    ),
    "the reporter is stopped": Fault(WORKER, "ReporterDown", "app", "systemctl stop gpuaas-slurm-health"),
    "a drain of an operation is left": Fault(
        WORKER, "DrainLeft", "person", "scontrol update nodename=gpu-2 state=drain reason='gpuaas:op_1: x'", on="gpu-1"
    ),
}
