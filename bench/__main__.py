"""`make bench` runs every benchmark; `make bench ARGS=api` runs one.

`make bench ARGS=badday` measures nothing: it hurts a server under load and counts what is lost. It runs only by name,
and ARGS="badday --help" lists its options."""

import sys

from bench import api, badday, deploy, fleet, history, lab, operations, scale, stewards, watchers

PARTS = {
    "api": api.run,
    "history": history.run,
    "operations": operations.run,
    "watchers": watchers.run,
    "stewards": stewards.run,
    "fleet": fleet.run,
    "scale": scale.run,
    "lab": lab.run,
    "deploy": deploy.run,
}


def main() -> None:
    if sys.argv[1:2] == ["badday"]:
        raise SystemExit(badday.run(sys.argv[2:]))
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: unknown benchmark {unknown[0]}; choose from: {', '.join([*PARTS, 'badday'])}")
    for name in wanted:
        print(f"\n== {name}")
        PARTS[name]()


main()
