"""`make bench` runs every benchmark; `make bench ARGS=api` runs one.

`make bench ARGS=badday` measures nothing: it hurts a server under load and counts what is lost. `ARGS=crashes` kills
the controller of an app and the platform during operations. `ARGS=campaign` and `ARGS=schedules` hurt a Slurm cluster
on machines. They run only by name, and ARGS="badday --help" lists the options."""

import signal
import sys

from bench import (
    aims,
    api,
    badday,
    campaign,
    clusters,
    console,
    crashes,
    deploy,
    fleet,
    history,
    lab,
    operations,
    processes,
    projects,
    replace,
    scale,
    stewards,
    watchers,
)

PARTS = {
    "api": api.run,
    "history": history.run,
    "operations": operations.run,
    "watchers": watchers.run,
    "stewards": stewards.run,
    "clusters": clusters.run,
    "projects": projects.run,
    "fleet": fleet.run,
    "scale": scale.run,
    "processes": processes.run,
    "console": console.run,
    "lab": lab.run,
    "deploy": deploy.run,
    "replace": replace.run,
}


WITH_OPTIONS = {
    "scale": scale.run,
    "processes": processes.run,
    "watchers": watchers.run,
    "clusters": clusters.run,
    "projects": projects.run,
    "deploy": deploy.run,
    "replace": replace.run,
}
"""Benchmarks whose size can be chosen; --help lists the options."""


BY_NAME = {"badday": badday.run, "crashes": crashes.run, "campaign": campaign.run, "schedules": campaign.run_schedules}
"""What measures nothing and runs only by name: it counts what is lost or violated, and its exit status reports it."""


def main() -> None:
    # Without this, a signal ends the program before it has deleted its machines.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended early by a signal"))
    first, options = sys.argv[1:2], sys.argv[2:]
    if first in (["-h"], ["--help"]):
        print(_help())
        return
    if first and first[0] in BY_NAME:
        raise SystemExit(BY_NAME[first[0]](options))
    if options and options[0].startswith("-") and first[0] in WITH_OPTIONS:
        WITH_OPTIONS[first[0]](options)
        return
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: unknown benchmark {unknown[0]}; choose from: {', '.join([*PARTS, *BY_NAME])}")
    missed = [name for name in wanted if not _ran(name)]
    if missed:
        raise SystemExit(f"bench: an aim was missed by: {', '.join(missed)}")


def _help() -> str:
    with_options = sorted({*WITH_OPTIONS, *BY_NAME})
    lines = (f"benchmarks: {' '.join(PARTS)}", f"only by name: {' '.join(BY_NAME)}", "options:")
    return "\n".join((__doc__ or "", *lines, *(f'  make bench ARGS="{name} --help"' for name in with_options)))


def _ran(name: str) -> bool:
    """Run a benchmark. Return whether it met its aims: the others run in both cases."""
    print(f"\n== {name}")
    try:
        PARTS[name]()
    except SystemExit as end:
        if end.code != aims.MISSED:
            raise
        return False
    return True


main()
