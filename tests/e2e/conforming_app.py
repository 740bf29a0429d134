"""A new app on the real platform, with simulated machines: python conforming_app.py CHECK …

The conformance kit runs as on machines of the lab. The exit status is 1 if a check failed."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import asyncssh
from gpuaas_sdk.conformance import cards, real
from gpuaas_sdk.conformance.verdicts import Verdict

from bench.badday.parts import ServerProcess
from bench.crashes import cloud, subjects
from bench.crashes.clusters import Cluster

MACHINES = 2


async def main(checks: list[str]) -> int:
    with subjects.from_scaffold() as subject, tempfile.TemporaryDirectory(prefix="gpuaas-conforming-") as folder:
        cluster = Cluster(1, MACHINES, subject, asyncssh.generate_private_key("ssh-ed25519"))
        with ServerProcess(Path(folder) / "data", options=cloud.OPTIONS) as server:
            made = cloud.Cloud(server, subject, Path(folder))
            try:
                await made.set_up([cluster])
                key = Path(folder) / "account.json"
                key.write_text(json.dumps(dict(zip(("key_id", "client_secret"), made.key, strict=True))))
                site = real.Site(server.url, made.project_id, made.token, key)
                card = await real.run(subject, site, only=checks, kinds=("add", "decommission"), show=show)
            finally:
                await made.close()
                await cluster.close()
    return 1 if card.count("failed") else 0


def show(verdict: Verdict) -> None:
    sys.stdout.write(f"{cards.line(verdict)}\n")


if __name__ == "__main__":
    os.environ.pop("GPUAAS_TOKEN", None)
    sys.exit(asyncio.run(main(sys.argv[1:])))
