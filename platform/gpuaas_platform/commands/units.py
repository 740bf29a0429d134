"""The files of an installed server as pure text: its systemd unit, its user, its settings. `install` writes them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SERVICE = "gpuaas-platform.service"
USER = "gpuaas"
DATA = Path("/var/lib/gpuaas-platform")
UNIT_FILE = Path("/etc/systemd/system") / SERVICE
USER_FILE = Path("/etc/sysusers.d/gpuaas-platform.conf")
SETTINGS_FILE = Path("/etc/gpuaas/platform.env")
DEFAULT_LISTEN = "127.0.0.1:7070"
_LISTEN, _OPTIONS = "--listen", "GPUAAS_OPTIONS="
_PRIVILEGED_PORTS = 1024

_UNIT = """\
[Unit]
Description=GPUaaS control plane
Wants=network-online.target
After=network-online.target postgresql.service
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
Group={user}
EnvironmentFile={settings}
ExecStart={command} server --data {data} $GPUAAS_OPTIONS
Restart=always
RestartSec=1
RestartSteps=6
RestartMaxDelaySec=60
# 2: the server refuses its options or its data; starting again would not help. A database that does not answer is 75.
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=60
LimitNOFILE=65536
StateDirectory={state}
StateDirectoryMode=0700
UMask=0077

# The server is a user without rights. It writes only to its data folder, and its log goes to the journal.
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
_SETTINGS = f"""\
# Settings of the GPUaaS control plane. After a change: systemctl restart {SERVICE}
# Options of `gpuaas-platform server`; see gpuaas-platform server --help
{_OPTIONS}
# PostgreSQL instead of SQLite:
# GPUAAS_DATABASE=postgresql://gpuaas:PASSWORD@db.example.com/gpuaas
# GPUAAS_LOG_LEVEL=info
"""


@dataclass(frozen=True)
class File:
    text: str
    mode: int = 0o644
    group: str = "root"


def rendered(command: Path, settings: str, lowest_port: int) -> dict[Path, File]:
    """Return every file of the installation by its path. `settings` is the text of the settings file."""
    capabilities = "CAP_NET_BIND_SERVICE" if lowest_port < _PRIVILEGED_PORTS else ""
    unit = _UNIT.format(
        user=USER, settings=SETTINGS_FILE, command=command, data=DATA, state=DATA.name, capabilities=capabilities
    )
    return {
        USER_FILE: File(f'u {USER} - "GPUaaS control plane" {DATA}\n'),
        SETTINGS_FILE: File(settings, 0o640, USER),
        UNIT_FILE: File(unit),
    }


def settings_text(present: str, listens: Sequence[str]) -> str:
    """Return the settings file. Addresses replace those of the present file; everything else in it stays."""
    if not present:
        listens = listens or [DEFAULT_LISTEN]
    text = present or _SETTINGS
    if not listens:
        return text
    words = shlex.join(
        [*_without_listens(options(text)), *(word for address in listens for word in (_LISTEN, address))]
    )
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith(_OPTIONS)), len(lines))
    return "\n".join([*lines[:at], _OPTIONS + words, *lines[at + 1 :]]) + "\n"


def options(settings: str) -> list[str]:
    """Return the options of the server in a settings file, as systemd splits them."""
    return shlex.split(value(settings, _OPTIONS.removesuffix("=")))


def value(settings: str, name: str) -> str:
    """Return the value of a variable in a settings file, without quotation marks around it; "" if it is not set."""
    values = [line.partition("=")[2].strip() for line in settings.splitlines() if line.startswith(f"{name}=")]
    text = values[-1] if values else ""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _without_listens(words: Sequence[str]) -> list[str]:
    after = [False, *(word == _LISTEN for word in words)]
    return [
        word
        for word, is_address in zip(words, after, strict=False)
        if not (is_address or word == _LISTEN or word.startswith(f"{_LISTEN}="))
    ]
