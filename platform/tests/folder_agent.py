"""The node agent with a folder in place of the host: `folder_agent.py FOLDER --config … --state …`.

A provision makes a file, a release removes it, and every such run leaves a line with its process id. Artifacts come
into the folder, for those who have such a file. Handlers of other kinds do nothing: the host stays as it is.
"""

import dataclasses
import functools
import os
import sys
from pathlib import Path
from typing import Any

from gpuaas_agent import handlers, main
from gpuaas_agent.handlers import artifact
from gpuaas_agent.host import claims


def run(folder: Path, kind: str, params: dict[str, Any]) -> dict[str, Any]:
    if not kind.startswith("allocation."):
        return {}
    user = folder / "users" / params["allocation_id"]
    with (folder / "runs").open("a") as runs:
        runs.write(f"{kind} {params['allocation_id']} {os.getpid()}\n")
    if kind == "allocation.provision":
        user.touch()
    if kind == "allocation.release":
        user.unlink(missing_ok=True)
        artifact.remove(params["allocation_id"])
    return {}


def start() -> int:
    folder = Path(sys.argv.pop(1))
    artifact.ARTIFACTS = folder / "lib" / "artifacts"
    claims.belongs_to = lambda user, allocation_id: (folder / "users" / allocation_id).exists()
    for kind, handler in handlers.HANDLERS.items():
        if kind.startswith("artifact."):
            continue
        function = functools.partial(run, folder, kind)
        handlers.HANDLERS[kind] = dataclasses.replace(handler, function=function)
    return main.main()


if __name__ == "__main__":
    sys.exit(start())
