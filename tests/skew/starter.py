"""The `__main__.py` of an agent whose tasks leave a line in a folder and change nothing on the host of the tests.

The rest of the archive is the agent as released: its connection, its journal and its upgrade."""

import dataclasses
import pathlib
import sys
from typing import Any

from gpuaas_agent import AGENT_VERSION, handlers, main, rules

FOLDER = pathlib.Path("@FOLDER@")


def kept_off_the_host(kind: str, handler: rules.Handler) -> rules.Handler:
    def run(_: dict[str, Any]) -> dict[str, Any]:
        with (FOLDER / "ran").open("a") as ran:
            ran.write(f"{kind} {AGENT_VERSION}\n")
        return {}

    return dataclasses.replace(handler, function=run)


if __name__ == "__main__":
    for kind, handler in list(handlers.HANDLERS.items()):
        handlers.HANDLERS[kind] = kept_off_the_host(kind, handler)
    sys.exit(main.main())
