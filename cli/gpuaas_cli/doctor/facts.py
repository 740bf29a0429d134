"""What this machine and the server look like now. Reads only; `checks` judges."""

import datetime
import email.utils
import os
import shutil
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from gpuaas_contract.errors import ApiError
from gpuaas_contract.identity import ME, PROJECT_GET
from gpuaas_sdk.client import request
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures, output
from gpuaas_cli.client import home, network, session
from gpuaas_cli.flags import Flags

ANSWER_S = 5.0
PROGRAMS = ("ssh", "ssh-keygen")


@dataclass(frozen=True)
class Config:
    path: Path
    mode: int | None = None
    """Permission bits; None if there is no file."""
    error: str = ""


@dataclass(frozen=True)
class Version:
    """What the server answered to GET /version."""

    contract: str = ""
    ahead_s: float | None = None
    """How far its clock is ahead of ours; None if it did not send its time."""
    error: str = ""


@dataclass(frozen=True)
class SignedIn:
    name: str = ""
    ends_at: datetime.datetime | None = None
    error: str = ""


@dataclass(frozen=True)
class Facts:
    now: datetime.datetime
    config: Config
    server: str = ""
    is_address: bool = False
    ca_file: str = ""
    has_token: bool = False
    reached: network.Reached | None = None
    """Result of the connection to the server; None: not tried, because an earlier check failed. The same for the fields
    below."""
    certificate: network.Certificate | None = None
    """None for http://."""
    version: Version | None = None
    signed_in: SignedIn | None = None
    project: str = ""
    project_error: str | None = None
    """Why the project cannot be read; empty: it can be read; None: not tried."""
    programs: Mapping[str, str | None] = field(default_factory=dict)
    """Where each program is; None if it was not found."""


async def gather(flags: Flags, environ: Mapping[str, str] = os.environ) -> Facts:
    config, target = _settings(flags, environ)
    facts: dict[str, Any] = {
        "server": target.server,
        "is_address": request.is_address(target.server),
        "ca_file": target.ca_file,
        "has_token": bool(target.token),
        "project": target.project,
        "programs": {name: shutil.which(name) for name in PROGRAMS},
    }
    if facts["is_address"]:
        facts["reached"] = reached = network.reach(target.server)
        if reached.connected:
            facts |= await _of_server(target, reached)
    return Facts(output.now(), config, **facts)


def _settings(flags: Flags, environ: Mapping[str, str]) -> tuple[Config, home.Target]:
    folder = home.folder(environ)
    path, mode = folder / "config.json", None
    try:
        if path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        return Config(path, mode), home.resolve(flags, environ, home.load(folder))
    except (failures.Failure, OSError) as error:
        server = flags.server or environ.get("GPUAAS_SERVER", "")
        return Config(path, mode, str(error)), home.Target("", server, environ.get("GPUAAS_TOKEN", ""))


async def _of_server(target: home.Target, reached: network.Reached) -> dict[str, Any]:
    try:
        trust = ssl.create_default_context(cafile=target.ca_file or None)
    except OSError as error:
        return {"certificate": network.Certificate(error=f"{target.ca_file}: {error.strerror or error}")}
    facts: dict[str, Any] = {}
    if target.server.startswith("https:"):
        facts["certificate"] = certificate = network.certificate(reached.host, reached.port, trust)
        if certificate.error:
            return facts
    facts["version"] = version = _version(target.server, trust)
    if target.token and not version.error:
        facts |= await _of_caller(target)
    return facts


def _version(server: str, trust: ssl.SSLContext) -> Version:
    before = output.now()
    try:
        answer = httpx.get(f"{server}/version", verify=trust, timeout=ANSWER_S, trust_env=False)
        answer.raise_for_status()
        contract = str(msgspec.json.decode(answer.content)["contract_version"])
        date = answer.headers.get("Date")
        moment = email.utils.parsedate_to_datetime(date) if date else None
    except (httpx.HTTPError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        return Version(error=str(error) or type(error).__name__)
    # The header has whole seconds, cut off: half a second is added on the average.
    middle = before + (output.now() - before) / 2
    return Version(contract, (moment - middle).total_seconds() + 0.5 if moment else None)


async def _of_caller(target: home.Target) -> dict[str, Any]:
    async with session.make_client(target) as client:
        try:
            me = await client.call(ME, timeout_s=session.READ_S)
        except (ApiError, NoAnswer) as error:
            return {"signed_in": SignedIn(error=error.message)}
        facts: dict[str, Any] = {"signed_in": SignedIn(me.name, me.session_expires_at)}
        if target.project:
            try:
                project = await client.call(PROJECT_GET, project_id=target.project, timeout_s=session.READ_S)
                facts |= {"project": project.name, "project_error": ""}
            except (ApiError, NoAnswer) as error:
                facts["project_error"] = error.message
    return facts
