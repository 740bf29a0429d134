"""`make bench` runs every benchmark; `make bench ARGS=api` runs one."""

import sys

from bench import api, deploy, fleet, history, lab, operations, scale, watchers

PARTS = {
    "api": api.run,
    "history": history.run,
    "operations": operations.run,
    "watchers": watchers.run,
    "fleet": fleet.run,
    "scale": scale.run,
    "lab": lab.run,
    "deploy": deploy.run,
}


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: unknown benchmark {unknown[0]}; choose from: {', '.join(PARTS)}")
    for name in wanted:
        print(f"\n== {name}")
        PARTS[name]()


main()
