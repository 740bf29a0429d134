"""Pure: judge the facts. Each check is a named question with an answer, its reason, and one next step."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpuaas_platform.commands.doctor.facts import Facts

State = Literal["ok", "warn", "fail", "skipped"]
RESERVE_BYTES = 1024**3
FILES_WARN, FILES_FAIL = 4096, 1024
CERTIFICATE_WARN = datetime.timedelta(days=180)
HEADS_LATE = datetime.timedelta(minutes=10)
_GIB = 1024**3


@dataclass(frozen=True)
class Check:
    name: str
    state: State
    reason: str
    fix: str = ""


Answer = tuple[State, str] | tuple[State, str, str]
FIRST_START: Answer = ("skipped", "the first start of the server creates it")


def judge(facts: Facts) -> list[Check]:
    return [Check(name, *question(facts)) for name, question in QUESTIONS.items()]


def data_folder(facts: Facts) -> Answer:
    if not facts.exists:
        return "warn", f"there is no {facts.data}", f"gpuaas-platform server --data {facts.data}"
    if not facts.is_writable:
        return "fail", f"{facts.data} is not writable for this user", "Run this as the user of the server"
    return "ok", f"{facts.data} is writable"


def file_modes(facts: Facts) -> Answer:
    if not facts.exists:
        return FIRST_START
    if facts.open_to_others:
        paths = [str(path) for path in facts.open_to_others]
        # No one else reaches a file in a folder that only its owner may enter.
        state: State = "fail" if facts.data in facts.open_to_others else "warn"
        return state, f"the mode lets other users in: {', '.join(paths)}", f"chmod go= {' '.join(paths)}"
    return "ok", "data and keys are readable only by their owner"


def free_disk(facts: Facts) -> Answer:
    if not facts.exists:
        return FIRST_START
    reserve = min(RESERVE_BYTES, facts.disk_total // 20)
    text = f"{facts.disk_free / _GIB:.1f} GiB free of {facts.disk_total / _GIB:.1f}"
    if facts.disk_free < reserve:
        return "fail", f"{text}; less than the reserve of {reserve / _GIB:.1f} GiB", f"Free space: du -xh {facts.data}"
    if facts.disk_free < 3 * reserve:
        return "warn", text, f"Free space before the reserve is used: du -xh {facts.data}"
    return "ok", text


def store(facts: Facts) -> Answer:
    if not facts.exists:
        return FIRST_START
    if facts.store.is_newer:
        return "fail", facts.store.error, "Run the newer release of gpuaas-platform"
    if facts.store.error:
        return "fail", f"the database cannot be opened: {facts.store.error}", "Check --data and --database"
    if facts.store.missing:
        numbers = ", ".join(map(str, facts.store.missing))
        return "warn", f"the next start applies migration {numbers}", "Make a backup, then start the server"
    return "ok", "the database opens, and every migration is applied"


def signing_keys(facts: Facts) -> Answer:
    broken = {name: why for name, why in facts.keys.items() if why}
    if not facts.exists or (broken and len(broken) == len(facts.keys) and set(broken.values()) == {"missing"}):
        return FIRST_START
    if broken:
        text = "; ".join(f"{name}: {why}" for name, why in broken.items())
        return "fail", text, f"Put the files back from a backup: {facts.data / 'keys'}"
    return "ok", f"{', '.join(facts.keys)} can be read"


def custody(facts: Facts) -> Answer:
    if not facts.exists or facts.custody == "missing":
        return FIRST_START
    match facts.custody:
        case "open":
            return "ok", "the key of secrets can be read"
        case "sealed":
            return "ok", "the key is sealed; after each start: gpuaas-platform unseal"
        case "vault":
            return "skipped", "secrets are in Vault; to check it: gpuaas-platform custody status"
    return "fail", facts.custody, f"gpuaas-platform custody status --data {facts.data}"


def certificate(facts: Facts) -> Answer:
    if facts.authority_ends_at is None:
        return FIRST_START
    day = facts.authority_ends_at.date()
    if facts.authority_ends_at - facts.now < CERTIFICATE_WARN:
        state: State = "fail" if facts.authority_ends_at <= facts.now else "warn"
        return state, f"the TLS authority ends on {day}", "Plan a new authority: agents and users must trust it before"
    return "ok", f"the TLS authority is valid until {day}"


def audit_heads(facts: Facts) -> Answer:
    if not facts.exists:
        return FIRST_START
    late = [item for item in facts.unsigned if facts.now - item.oldest_at > HEADS_LATE]
    if late:
        text = ", ".join(f"{item.chain}: {item.rows} rows since {item.oldest_at:%Y-%m-%dT%H:%M:%SZ}" for item in late)
        fix = f"gpuaas-platform audit verify --data {facts.data}; then audit head, or start the server"
        return "warn", f"not signed yet: {text}", fix
    return "ok", "the audit trail is signed to its end, or nearly"


def open_files(facts: Facts) -> Answer:
    text = f"{facts.files_max} open files are allowed in this session"
    fix = "LimitNOFILE=65536 in the unit of the server, or ulimit -n 65536 before its start"
    if facts.files_max < FILES_FAIL:
        return "fail", text, fix
    return ("warn", text, fix) if facts.files_max < FILES_WARN else ("ok", text)


def clock(facts: Facts) -> Answer:
    if not facts.is_synchronised:
        return "warn", "no time service sets the clock of this host", "timedatectl set-ntp true"
    return "ok", "the clock is synchronised"


def ports(facts: Facts) -> Answer:
    taken = [port for port in facts.ports if port.error and not port.is_ours]
    if taken:
        first, text = (
            taken[0].listen,
            "; ".join(f"{port.listen.host}:{port.listen.port}: {port.error}" for port in taken),
        )
        if not taken[0].is_local:
            return "fail", text, "ip -brief address shows the addresses of this machine; choose one of them: --listen"
        return "fail", text, f"ss -ltnp 'sport = :{first.port}' shows who uses it; or choose another --listen"
    used = [port.listen.url for port in facts.ports if port.is_ours]
    return "ok", f"a server of the platform answers at {', '.join(used)}" if used else "free"


QUESTIONS: dict[str, Callable[[Facts], Answer]] = {
    "data folder": data_folder,
    "file modes": file_modes,
    "free disk": free_disk,
    "store": store,
    "signing keys": signing_keys,
    "custody": custody,
    "certificate": certificate,
    "audit heads": audit_heads,
    "open files": open_files,
    "clock": clock,
    "ports": ports,
}
