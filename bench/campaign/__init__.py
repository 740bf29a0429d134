"""Random faults on a real Slurm cluster of lab machines, with a seed that is printed.

`make bench ARGS="campaign --seed 1 --minutes 20"` ends with a table of what must hold. Its exit status is 1 if a rule
was violated; the log names the line after which it happened. It needs root."""

import argparse
import asyncio
import math
import os
import random
import signal
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from bench.campaign import schedules
from bench.campaign.campaign import MACHINES, WORKERS, Campaign
from bench.campaign.cluster import running
from bench.campaign.journal import Journal

RULES = {
    "stuck": "after healing, every operation ends",
    "rest": "after healing, every member is ready or drained, by itself or by what the platform offers",
    "healthy": "operations on the healed cluster succeed",
    "running": "after healing, the instance is shown as running",
    "members": "members of the platform are the nodes of Slurm",
    "clean": "nothing is left on machines of removed members, and after a decommission on any machine",
    "one end": "every operation ended once, or again after an exit",
    "events": "events have no gap",
    "audit": "the audit trail verifies",
    "jobs": "no job was ended by us without force",
    "fresh job": "a new job runs on all ready members",
    "drained": "no member was shown as drained while work ran",
    "evidence": "no removal began without fresh evidence that the member was idle",
}
SCHEDULE_RULES = ("jobs", "drained", "evidence", "stuck", "rest", "healthy", "running")


def run(arguments: Sequence[str]) -> int:
    """Run one campaign and print its result. Return the exit status."""
    parser = _parser("campaign", 7193)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long faults happen; default: 20")
    options = parser.parse_args(arguments)
    return asyncio.run(_ended_cleanly(_campaign(_seed(options), options.minutes * 60, options.lab, options.port)))


def run_schedules(arguments: Sequence[str]) -> int:
    """Run schedules on one cluster and print the result. Return the exit status."""
    parser = _parser("schedules", 7194)
    parser.add_argument("--schedules", type=int, default=60, help="how many schedules; default: 60")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no schedule after so many minutes")
    only = "only operations of this kind; repeatable; default: all"
    parser.add_argument("--kind", action="append", default=[], choices=list(schedules.KINDS), help=only)
    options = parser.parse_args(arguments)
    return asyncio.run(_ended_cleanly(_schedules(_seed(options), options)))


def _parser(name: str, port: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"make bench ARGS={name}", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the same seed draws the same acts; default: random")
    parser.add_argument("--lab", default=name, help=f"name of the lab; default: {name}")
    parser.add_argument("--port", type=int, default=port, help=f"port of the server; default: {port}")
    return parser


def _seed(options: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise SystemExit("bench: the campaigns start machines, which needs root: sudo make bench ARGS=campaign")
    return options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)


async def _ended_cleanly(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end. SIGTERM and SIGINT end it early, and its machines are deleted then too."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        print("ended early by a signal, without a result")
        return 1


async def _campaign(seed: int, seconds: float, lab: str, port: int) -> int:
    journal = Journal()
    journal.note("seed", str(seed))
    async with running(lab, port, MACHINES, WORKERS, journal) as cluster:
        await Campaign.of(cluster, seed).run(seconds)
    rules = [rule for rule in RULES if rule != "running"]
    return report(journal, f"campaign with seed {seed}, {seconds / 60:g} minutes", rules)


async def _schedules(seed: int, options: argparse.Namespace) -> int:
    journal = Journal()
    journal.note("seed", str(seed))
    async with running(options.lab, options.port, schedules.MACHINES, schedules.WORKERS, journal) as cluster:
        chosen = schedules.Schedules(cluster, seed, options.kind)
        count = await chosen.run(options.schedules, options.minutes)
    return report(journal, f"{count} schedules with seed {seed}", SCHEDULE_RULES)


def report(journal: Journal, title: str, rules: Iterable[str]) -> int:
    """Print what was done and the result of every rule. Return the exit status."""
    print(f"\n{title}")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(journal.counts.items())))
    for rule in rules:
        broken = [violation for violation in journal.violations if violation.rule == rule]
        result = f"violated {len(broken)} times, first after line {broken[0].line}" if broken else "holds"
        print(f"{rule:11}{RULES[rule]}: {result}")
        for violation in broken[:5]:
            print(f"    after line {violation.line}: {violation.text}")
    return 1 if journal.violations else 0
