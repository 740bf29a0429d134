"""The processor time of everything that shares the machine during a benchmark: servers, database, load."""

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench import api


@dataclasses.dataclass(frozen=True)
class Shares:
    """Parts of one core."""

    servers: tuple[float, ...]
    database: float
    load: float

    @property
    def platform(self) -> float:
        """The servers and their database, without the load that uses them."""
        return sum(self.servers) + self.database

    def __str__(self) -> str:
        servers = " + ".join(f"{share:.0%}" for share in self.servers)
        return f"parts of a core: servers {servers}, database {self.database:.0%}, load generator {self.load:.0%}"


class Usage:
    def __init__(self, server_pids: Sequence[int], database_url: str) -> None:
        folder = parse_qs(urlsplit(database_url).query)["host"][0]
        self._servers = server_pids
        self._postmaster = int(Path(folder, "data", "postmaster.pid").read_text().split()[0])

    async def during(self, seconds: float) -> Shares:
        ended = self.started()
        await asyncio.sleep(seconds)
        return ended()

    def started(self) -> Callable[[], Shares]:
        """Start to measure. The returned function ends it."""
        before, started_s = self._cpu_s(), time.perf_counter()

        def ended() -> Shares:
            took_s = time.perf_counter() - started_s
            used = [(now - then) / took_s for now, then in zip(self._cpu_s(), before, strict=True)]
            return Shares(tuple(used[:-2]), used[-2], used[-1])

        return ended

    def _cpu_s(self) -> list[float]:
        return [*map(api.cpu_s, self._servers), self._database_cpu_s(), api.cpu_s(os.getpid())]

    def _database_cpu_s(self) -> float:
        """The processes of the database that run now; the time of those that ended is in that of their parent."""
        family = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        fields = Path(f"/proc/{self._postmaster}/stat").read_text().rpartition(")")[2].split()
        ended_s = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return ended_s + sum(api.cpu_s(int(pid)) for pid in [str(self._postmaster), *family])
