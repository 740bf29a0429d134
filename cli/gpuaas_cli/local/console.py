"""The web console of the local cloud: start it in the background and print a sign-in link that works once. The cloud
works without it, so a console that cannot start is reported and is no failure of `gpuaas up`."""

import asyncio
import subprocess

from gpuaas_cli import programs
from gpuaas_cli.client import home
from gpuaas_cli.local import plan, report, server
from gpuaas_cli.local.processes import Process
from gpuaas_cli.work import waits

PROGRAM = "gpuaas-console"
READY_S = 20.0
POLL_S = 0.1


async def ensure(request: plan.CloudRequest) -> None:
    """Start the console if it is installed and not running yet, and print how to open it."""
    program = programs.find(PROGRAM)
    if program is None:
        return
    process, command = Process(request.folder, "console"), plan.console_command(program, request)
    record = process.running()
    if record is None or record.command != command:
        process.stop()
        if why_not := server.why_taken(request.port + 1):
            report.note(f"The console was not started: port {request.port + 1} is taken ({why_not}).")
            return
        process.start(command)
    if await _becomes_ready(process, request):
        report.note(f"Console: {request.console}. This link signs you in, once:")
        report.note(f"  {_link(program, request)}")
    else:
        report.note(f"The console does not run at {request.console}. Look: tail {process.log}")


def _link(program: str, request: plan.CloudRequest) -> str:
    """Return a one-time sign-in link. The token is given on stdin, so that no other user of this host sees it."""
    words = [program, "link", "--links", str(request.console_links), "--url", request.console]
    token = home.load(request.home).contexts[request.lab].token
    return subprocess.run(words, input=token, capture_output=True, text=True, check=True).stdout.strip()


async def _becomes_ready(process: Process, request: plan.CloudRequest) -> bool:
    async for _ in waits.attempts(READY_S, POLL_S):
        if process.running() is None:
            process.stop()
            return False
        if await asyncio.to_thread(server.answers, f"{request.console}/healthz"):
            return True
    return False
