"""Log lines are JSON, one per line and complete, for every writer and every way a process can end."""

import asyncio
import io
import json
import subprocess
import sys
import threading

from gpuaas_platform.kit import logs

_PROCESS = """
import asyncio, datetime, sys, structlog
from gpuaas_platform.edge import telemetry
from gpuaas_platform.kit import logs

logs.configure(sys.argv[1])
moment = datetime.datetime(2026, 1, 1, 12, 0, 0, 5000, tzinfo=datetime.UTC)
line = telemetry.RequestLine(moment, "auth.me", "GET", 200, "", "cor_1", "ab", "", "", "user:u", 1.25)

async def main():
    logs.info(line)
    structlog.get_logger().warning("something", number=1)
    sys.exit(0)  # in the same turn: nothing was written yet

asyncio.run(main())
"""


def _written(level: str) -> list[dict[str, object]]:
    ended = subprocess.run([sys.executable, "-c", _PROCESS, level], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_nothing_is_lost_when_the_process_ends() -> None:
    request, warning = _written("info")
    assert request == {
        "event": "request", "level": "info", "timestamp": "2026-01-01T12:00:00.005000Z", "route": "auth.me",
        "method": "GET", "status": 200, "code": "", "correlation_id": "cor_1", "trace_id": "ab", "org_id": "",
        "project_id": "", "actor": "user:u", "ms": 1.25,
    }  # fmt: skip
    assert (warning["event"], warning["level"], warning["number"]) == ("something", "warning", 1)


def test_requests_are_left_out_where_only_warnings_are_wanted() -> None:
    assert [line["event"] for line in _written("warning")] == ["something"]


async def test_lines_of_one_turn_are_written_together() -> None:
    file = _CountedFile()
    lines = logs.Lines(file)
    for number in range(5):
        lines.msg(b"%d" % number)
    assert file.getvalue() == b""
    await asyncio.sleep(0)
    assert (file.getvalue(), file.writes) == (b"0\n1\n2\n3\n4\n", 1)


def test_a_thread_without_a_loop_writes_at_once() -> None:
    file = io.BytesIO()
    lines = logs.Lines(file)
    thread = threading.Thread(target=lines.msg, args=[b"from a thread"])
    thread.start()
    thread.join()
    assert file.getvalue() == b"from a thread\n"


class _CountedFile(io.BytesIO):
    writes = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.writes += 1
        return super().write(data)
