"""A server process whose clock the tests set by SIGUSR1.

`past`: over TLS; both clocks are 61 days behind, until the signal moves them to now.
`jump`: the wall clock alone jumps eight days ahead, and back at the next signal.
`jumps`: as `jump`, and then eight days behind and back."""

import asyncio
import datetime
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop
from gpuaas_platform import certificates, server
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock, logs
from gpuaas_platform.kit.settings import Settings

NOW, JUMP = datetime.timedelta(), datetime.timedelta(days=8)
OFFSETS = {
    "past": [datetime.timedelta(days=-61), NOW],
    "jump": [NOW, JUMP],
    "jumps": [NOW, JUMP, NOW, -JUMP],
}


def main(mode: str, data: str, port: str, database_url: str = "") -> None:
    logs.configure("info")
    offsets = list(OFFSETS[mode])

    def now() -> datetime.datetime:
        return clock.utc_now() + offsets[0]

    async def prepare(site: Site) -> None:
        def move() -> None:
            offsets.append(offsets.pop(0))
            site.hub.notify(certificates.TOPIC)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, move)

    elapsed_s: Callable[[], float] = (lambda: now().timestamp()) if mode == "past" else clock.boot_s
    listen = server.Listen("127.0.0.1", int(port), encrypted=mode == "past")
    bound, settings = server.bind(listen), Settings(data_dir=Path(data), database_url=database_url)
    uvloop.run(server.serve(settings, [listen], [bound], prepare, now=now, elapsed_s=elapsed_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
