"""The control plane of the local cloud: start it in the background, wait for it, sign in to it."""

import asyncio
import contextlib
import datetime
import os
import socket
import urllib.request

import msgspec
from gpuaas_contract.errors import TokenExpired, TokenInvalid, TokenMissing
from gpuaas_contract.identity import ME

from gpuaas_cli import failures
from gpuaas_cli.client import home, session, sign_in
from gpuaas_cli.local import plan
from gpuaas_cli.local.processes import Process
from gpuaas_cli.local.report import captured, require_program
from gpuaas_cli.work import waits

READY_S = 60.0
POLL_S = 0.1
ADMIN = "admin"

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs without a proxy, because the server is on loopback."""


async def ensure(request: plan.CloudRequest, gateway: str) -> datetime.datetime:
    """Start the server if needed and store a valid token in the lab's context. Return the server's start time."""
    program = require_program("gpuaas-platform")
    process = Process(request.folder, "server")
    command = plan.server_command(program, request, gateway)
    record, password, known = process.running(), "", home.load(request.home).contexts.get(request.lab)
    if record is None or record.command != command or not await _becomes_ready(process, request):
        process.stop()
        _require_free_port(request.port)
        empty = not request.data.is_dir() or not any(request.data.iterdir())
        if plan.must_make_admin(has_token=bool(known and known.token), data_is_empty=empty):
            password = _new_password(program, request)
        record = process.start(command)
        if not await _becomes_ready(process, request):
            raise process.died()
    if password or not await _token_works(request, known):
        proof = sign_in.by_password(ADMIN, password or _new_password(program, request))
        signed_in = await session.sign_in(home.Target(request.lab, request.server), proof)
        home.set_context(request.home, request.lab, signed_in)
    return record.started_at


def _new_password(program: str, request: plan.CloudRequest) -> str:
    """Create a new admin password. It stays in this process and is never shown or logged."""
    return captured([program, "admin", "--data", str(request.data), "--name", ADMIN]).strip()


async def _token_works(request: plan.CloudRequest, known: home.Context | None) -> bool:
    if known is None or not known.token:
        return False
    async with session.make_client(home.Target(request.lab, request.server, known.token)) as client:
        try:
            await client.call(ME, timeout_s=session.READ_S)
        except (TokenInvalid, TokenExpired, TokenMissing):
            return False
    # Store the server's address again: the port may have changed, but the token is still valid.
    home.set_context(request.home, request.lab, msgspec.structs.replace(known, server=request.server))
    return True


async def _becomes_ready(process: Process, request: plan.CloudRequest) -> bool:
    """Wait until the server is ready; return False if its process ends before. Raise on a timeout."""
    async for _ in waits.attempts(READY_S, POLL_S):
        if await asyncio.to_thread(answers, f"{request.server}/readyz"):
            return True
        if process.running() is None:
            return False
    raise failures.timeout(f"The server runs but is not ready after {READY_S:g} s", f"tail {process.log}")


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), _direct.open(url, timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _require_free_port(port: int) -> None:
    why_not = why_taken(port)
    if why_not:
        message = f"Port {port} is taken by another program ({why_not})"
        fix = f"gpuaas up --port {port + 1}"
        raise failures.Failure(message, fix=fix, code="port_taken", exit_code=failures.CONFLICT)


def why_taken(port: int) -> str:
    """Return why a program cannot listen on the port of 127.0.0.1; empty: the port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return os.strerror(error.errno or 0)
    return ""
