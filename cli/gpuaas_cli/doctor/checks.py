"""Pure: judge the facts. Each check is a named question with an answer, its reason, and one next step."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import gpuaas_contract

from gpuaas_cli.doctor.facts import Facts

State = Literal["ok", "warn", "fail", "skipped"]
CLOCK_WARN_S, CLOCK_FAIL_S = 5.0, 300.0
TOKEN_WARN = datetime.timedelta(minutes=15)
CERTIFICATE_WARN = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Check:
    name: str
    state: State
    reason: str
    fix: str = ""


def judge(facts: Facts) -> list[Check]:
    return [Check(name, *question(facts)) for name, question in QUESTIONS.items()]


Answer = tuple[State, str] | tuple[State, str, str]
NEEDS_SERVER: Answer = ("skipped", "it needs an answer of the server")


def config_file(facts: Facts) -> Answer:
    config = facts.config
    if config.error:
        return "fail", config.error, f"mv {config.path} {config.path}.broken, then gpuaas login --server URL"
    if config.mode is None:
        return "warn", f"there is no {config.path} yet", "gpuaas login --server URL --name NAME"
    if config.mode & 0o077:
        return "fail", f"other users of this machine can read the token in {config.path}", f"chmod 600 {config.path}"
    return "ok", f"{config.path} is readable only by you"


def server_address(facts: Facts) -> Answer:
    if not facts.server:
        return "fail", "no server is named", "gpuaas login --server URL --name NAME"
    if not facts.is_address:
        return "fail", f"{facts.server} is not an address", "gpuaas login --server https://cloud.example:8443"
    return "ok", facts.server


def name_lookup(facts: Facts) -> Answer:
    if facts.reached is None:
        return "skipped", "it needs the address of a server"
    if not facts.reached.addresses:
        why = f"{facts.reached.host} has no address: {facts.reached.error}"
        return "fail", why, f"getent hosts {facts.reached.host}; check the name, or ask who runs your DNS"
    return "ok", f"{facts.reached.host} is {', '.join(facts.reached.addresses)}"


def connection(facts: Facts) -> Answer:
    if facts.reached is None or not facts.reached.addresses:
        return "skipped", "it needs the address of a server"
    place = f"{facts.reached.host}:{facts.reached.port}"
    if not facts.reached.connected:
        fix = "gpuaas up for a local cloud; else check the port, the firewall and that the server runs"
        return "fail", f"{place} does not accept a connection: {facts.reached.error}", fix
    return "ok", f"{place} accepts connections"


def certificate(facts: Facts) -> Answer:
    if facts.certificate is None:
        if facts.reached is None or not facts.reached.connected:
            return NEEDS_SERVER
        return "ok", "not needed: the connection is not encrypted" if facts.server.startswith("http:") else ""
    trusted = f"trusted by {facts.ca_file or 'the authorities of this system'}"
    if not facts.certificate.uses_tls:
        return "fail", facts.certificate.error, f"gpuaas login --server http:{facts.server.removeprefix('https:')}"
    if facts.certificate.error:
        fix = "gpuaas login --server URL --ca-file FILE, with the authority that your operator gives you"
        return "fail", f"the certificate is not {trusted}: {facts.certificate.error}", fix
    ends_at = facts.certificate.ends_at
    if ends_at is not None and ends_at - facts.now < CERTIFICATE_WARN:
        return "warn", f"the certificate ends at {_text(ends_at)}", "Ask the operator whether it will be renewed"
    return "ok", f"{trusted}, until {_text(ends_at)}"


def versions(facts: Facts) -> Answer:
    if facts.version is None:
        return NEEDS_SERVER
    own, theirs = gpuaas_contract.VERSION, facts.version.contract
    if facts.version.error:
        return "fail", f"no GPUaaS server answers there: {facts.version.error}", "gpuaas login --server URL"
    if _major(own) != _major(theirs):
        return "fail", f"this CLI is for API {own}, the server has {theirs}", f"Install the CLI of release {theirs}"
    if _number(own) > _number(theirs):
        return "warn", f"this CLI (API {own}) is newer than the server ({theirs})", "Some commands may be unknown there"
    return "ok", f"CLI and server have the API {own}" if own == theirs else f"API {own} here, {theirs} at the server"


def clock(facts: Facts) -> Answer:
    if facts.version is None or facts.version.ahead_s is None:
        return NEEDS_SERVER
    apart_s = abs(facts.version.ahead_s)
    text = f"the server's clock is {apart_s:.0f} s {'ahead of' if facts.version.ahead_s > 0 else 'behind'} this one"
    if apart_s <= CLOCK_WARN_S:
        return "ok", "the same time here and at the server"
    fix = "timedatectl set-ntp true, on the machine whose clock is wrong"
    return "fail" if apart_s > CLOCK_FAIL_S else "warn", text, fix


def token(facts: Facts) -> Answer:
    if not facts.has_token:
        return "fail", "you are not signed in", "gpuaas login"
    if facts.signed_in is None:
        return NEEDS_SERVER
    if facts.signed_in.error:
        return "fail", facts.signed_in.error, "gpuaas login"
    ends_at = facts.signed_in.ends_at
    if ends_at is not None and ends_at - facts.now < TOKEN_WARN:
        return "warn", f"your session ends at {_text(ends_at)}", "gpuaas login"
    return "ok", f"signed in as {facts.signed_in.name}, until {_text(ends_at)}"


def project(facts: Facts) -> Answer:
    if not facts.project:
        return "warn", "no project is chosen", "gpuaas get projects, then gpuaas project use NAME"
    if facts.project_error is None:
        return "skipped", "it needs a session"
    if facts.project_error:
        return "fail", f"{facts.project}: {facts.project_error}", "gpuaas get projects, then gpuaas project use NAME"
    return "ok", f"you can see {facts.project}"


def programs(facts: Facts) -> Answer:
    missing = [name for name, path in facts.programs.items() if path is None]
    if missing:
        return "fail", f"{' and '.join(missing)}: not found; gpuaas ssh needs them", "apt-get install openssh-client"
    return "ok", ", ".join(str(path) for path in facts.programs.values())


QUESTIONS: dict[str, Callable[[Facts], Answer]] = {
    "config file": config_file,
    "server address": server_address,
    "name lookup": name_lookup,
    "connection": connection,
    "certificate": certificate,
    "versions": versions,
    "clock": clock,
    "token": token,
    "project": project,
    "ssh programs": programs,
}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _major(version: str) -> tuple[int, ...]:
    """Return the part that changes with an incompatible release: before 1.0 the second number, then the first."""
    number = _number(version)
    return number[:2] if number[:1] == (0,) else number[:1]


def _text(moment: datetime.datetime | None) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else "no fixed time"
