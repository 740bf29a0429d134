"""The control plane of the local cloud: start it in the background, wait for it, sign in to it."""

import asyncio
import datetime
import os
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
from gpuaas_contract.errors import TokenExpired, TokenInvalid, TokenMissing
from gpuaas_contract.identity import ME

from gpuaas_cli import failures
from gpuaas_cli.client import home, session, sign_in
from gpuaas_cli.local import plan
from gpuaas_cli.local.machines import require_program
from gpuaas_cli.local.processes import Process
from gpuaas_cli.local.report import captured

READY_S = 60.0
POLL_S = 0.1
ADMIN = "admin"

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never reached through a proxy."""


async def ensure(home_folder: Path, where: plan.Places, wanted: plan.Wish, gateway: str) -> datetime.datetime:
    """The server runs with this command line and the context of the lab holds a good token. Answers its start time."""
    program = require_program("gpuaas-platform")
    process = Process(where.folder, "server")
    command = plan.server_command(program, where, wanted, gateway)
    record, password = process.running(), ""
    if record is None or record.command != command or not await _becomes_ready(process, wanted):
        process.stop()
        _require_free_port(wanted.port)
        known = home.load(home_folder).contexts.get(wanted.lab)
        empty = not where.data.is_dir() or not any(where.data.iterdir())
        if plan.must_make_admin(has_token=bool(known and known.token), data_is_empty=empty):
            password = _new_password(program, where)
        record = process.start(command)
        if not await _becomes_ready(process, wanted):
            raise died(process)
    if password or not await _token_works(home_folder, wanted):
        proof = sign_in.by_password(ADMIN, password or _new_password(program, where))
        signed_in = await session.sign_in(home.Target(wanted.lab, wanted.server), proof)
        home.set_context(home_folder, wanted.lab, signed_in)
    return record.started_at


def _new_password(program: str, where: plan.Places) -> str:
    """Passes through this process only: never shown, never in a log."""
    return captured([program, "admin", "--data", str(where.data), "--name", ADMIN]).strip()


async def _token_works(home_folder: Path, wanted: plan.Wish) -> bool:
    known = home.load(home_folder).contexts.get(wanted.lab)
    if known is None or not known.token:
        return False
    async with session.make_client(home.Target(wanted.lab, wanted.server, known.token)) as client:
        try:
            await client.call(ME, timeout_s=session.READ_S)
        except (TokenInvalid, TokenExpired, TokenMissing):
            return False
    # The port may be another one than last time; the data, and so the token, are the same.
    home.set_context(home_folder, wanted.lab, msgspec.structs.replace(known, server=wanted.server))
    return True


async def _becomes_ready(process: Process, wanted: plan.Wish) -> bool:
    """False if it ends first: a process that still runs may be about to end."""
    ends_at = time.monotonic() + READY_S
    while not await asyncio.to_thread(_answers, f"{wanted.server}/readyz"):
        if process.running() is None:
            return False
        if time.monotonic() >= ends_at:
            message = f"The server runs but is not ready after {READY_S:g} s"
            raise failures.timeout(message, f"tail {process.log}")
        await asyncio.sleep(POLL_S)
    return True


def died(process: Process) -> failures.Failure:
    last = "\n".join(f"    {line}" for line in process.last_lines())
    return failures.Failure(
        f"The {process.name} ended unexpectedly; last log lines:\n{last}\n ", fix=f"less {process.log}", code="died"
    )


def _answers(url: str) -> bool:
    try:
        with _direct.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise failures.Failure(
                f"Port {port} is taken by another program ({os.strerror(error.errno or 0)})",
                fix=f"gpuaas up --port {port + 1}",
                code="port_taken",
                exit_code=failures.CONFLICT,
            ) from error
