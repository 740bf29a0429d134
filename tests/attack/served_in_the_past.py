"""A server process, started by `test_certificate_end`, whose clocks are 61 days behind until it gets SIGUSR1."""

import asyncio
import datetime
import signal
import sys
from pathlib import Path

import uvloop
from gpuaas_platform import certificates, server
from gpuaas_platform.call import Site
from gpuaas_platform.kit import logs
from gpuaas_platform.kit.settings import Settings

BEHIND = [datetime.timedelta(days=61)]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - BEHIND[0]


async def prepare(site: Site) -> None:
    def move() -> None:
        BEHIND[0] = datetime.timedelta()
        site.hub.notify(certificates.TOPIC)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, move)


def main(data: str, port: str) -> None:
    logs.configure("info")
    listen, settings = server.Listen("127.0.0.1", int(port), encrypted=True), Settings(data_dir=Path(data))
    bound = server.bind(listen)
    uvloop.run(server.serve(settings, [listen], [bound], prepare, now=now, elapsed_s=lambda: now().timestamp()))


if __name__ == "__main__":
    main(*sys.argv[1:])
