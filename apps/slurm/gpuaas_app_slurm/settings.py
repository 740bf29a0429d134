"""Time limits of the app. `controller` builds them once and hands them to the handlers; tests pass shorter ones."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    reach_s: float = 60.0
    """How long a machine may stay unreachable during deploy and add before its member fails."""
    reach_leaving_s: float = 20.0
    """How long a machine may stay unreachable during remove and decommission, where it may no longer exist."""
    reach_repair_s: float = 8.0
    """How long a machine may stay unreachable during a repair. It answered when the repair was requested; while the
    repair waits, the health check cannot report that the machine is silent."""
    accounting_start_s: float = 120.0
    """How long MariaDB, and then slurmdbd, may take to start."""
    conversion_s: float = 5400.0
    """How long the slurmdbd of a newer Slurm may convert the database after that. It must not be interrupted."""
    controller_start_s: float = 60.0
    """How long slurmctld may take to answer a ping after its start."""
    slurmd_start_s: float = 60.0
    """How long systemd may take to start slurmd."""
    join_s: float = 90.0
    """How long a node may take to become idle after it joined, or to take jobs after a resume."""
    first_job_s: float = 60.0
    """How long the first job on new nodes may take, and how long the nodes may then take to finish it."""
    busy_job_s: float = 10.0
    """How long the test job of an upgraded node may wait while jobs of people hold the node."""
    cancel_jobs_s: float = 120.0
    """How long cancelled jobs may take to end before a forced decommission fails."""
    drain_wait_s: float = 86400.0
    """How long a drain waits until the node's jobs have ended."""
    drain_poll_s: float = 2.0
    """How often a drain reads the node's jobs."""
    slurm_notices_s: float = 180.0
    """After which time Slurm shows a silent machine as such; SlurmdTimeout is a minute, except while an upgrade holds
    the queue. A node that it then still shows as responding has a slurmd that answers, also if no login is possible."""
    accounts_s: float = 15.0
    """How long a sync of people waits for the next of their Unix accounts, which the platform's agent makes. Who gets
    one later has their place in Slurm by another repair."""
    last_usage_s: float = 60.0
    """How long a decommission waits until accounting has all ended jobs, whose usage it reports before it begins."""
    watch_silent_s: float = 12.0
    """How long the watch of a cluster may print nothing before the machine of slurmctld counts as silent."""
    direct_look_s: float = 4.0
    """How long a machine that seems unwell may take to answer when it is asked directly."""
    health_every_s: float = 5.0
    """How often a cluster is looked at. A change that the watch prints wakes a look at once."""
    old_key_s: float = 90.0
    """How long the old authentication key is still accepted after no machine signs with it. Slurm's messages and
    credentials are valid for 60 s; the clocks of machines may differ a little."""
    clock: Callable[[], float] = time.monotonic
    """The clock that measures for how long a machine is silent, and when a refused request is repeated."""
    rollback_window_s: float = 7 * 86400.0
    """How long after an upgrade its rollback is possible. Later too much would be lost with the state of before."""
