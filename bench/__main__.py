"""`make bench` runs every benchmark; `make bench ARGS=api` runs one.

`make bench ARGS=badday` measures nothing: it hurts a server under load and counts what is lost. It runs only by name,
and ARGS="badday --help" lists its options."""

import sys

from bench import api, badday, deploy, fleet, history, lab, operations, processes, scale, stewards, watchers

PARTS = {
    "api": api.run,
    "history": history.run,
    "operations": operations.run,
    "watchers": watchers.run,
    "stewards": stewards.run,
    "fleet": fleet.run,
    "scale": scale.run,
    "processes": processes.run,
    "lab": lab.run,
    "deploy": deploy.run,
}


WITH_OPTIONS = {"scale": scale.run, "processes": processes.run, "watchers": watchers.run}
"""Benchmarks whose size can be chosen; --help lists the options."""


def main() -> None:
    first, options = sys.argv[1:2], sys.argv[2:]
    if first == ["badday"]:
        raise SystemExit(badday.run(options))
    if options and options[0].startswith("-") and first[0] in WITH_OPTIONS:
        WITH_OPTIONS[first[0]](options)
        return
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: unknown benchmark {unknown[0]}; choose from: {', '.join([*PARTS, 'badday'])}")
    for name in wanted:
        print(f"\n== {name}")
        PARTS[name]()


main()
