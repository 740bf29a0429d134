"""An app's controller as a systemd service: `unit` is its file as pure text; `install`, `uninstall` change the machine.

The service has no user of its own on the machine (DynamicUser) and gets the key from systemd (LoadCredential), so the
key file stays readable for root only."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

UNITS = Path("/etc/systemd/system")

_UNIT = """\
[Unit]
Description=GPUaaS app controller: {slug}
Wants=network-online.target
After=network-online.target gpuaas-platform.service
StartLimitIntervalSec=0

[Service]
Type=exec
DynamicUser=yes
{credentials}
ExecStart={command}
Restart=always
RestartSec=1
RestartSteps=6
RestartMaxDelaySec=60
# {final_exits}: the command line or the key is refused; starting again would not help.
RestartPreventExitStatus={final_exits}
TimeoutStopSec=30
UMask=0077

CapabilityBoundingSet=
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


class CannotInstall(Exception):
    """The service cannot be installed. The message is one line: what is wrong and the next command."""


@dataclass(frozen=True)
class Controller:
    """What the service runs: the command of the app with these options."""

    slug: str
    command: Sequence[str]
    server: str
    project: str
    """The only project to serve; empty: every project that the service account can see."""
    name: str
    credentials: Path
    ca_file: Path | None
    final_exits: Sequence[int]
    metrics: str = ""
    """The address of /metrics; empty: it is not served."""

    @property
    def service(self) -> str:
        return f"gpuaas-app-{self.slug}.service"


def unit(controller: Controller) -> str:
    files = {"key.json": controller.credentials, **({"ca.crt": controller.ca_file} if controller.ca_file else {})}
    project = {"project": controller.project} if controller.project else {}
    options = {"server": controller.server, **project, "name": controller.name}
    options |= {"metrics": controller.metrics} if controller.metrics else {}
    words = [*controller.command, "run", *(word for name, value in options.items() for word in (f"--{name}", value))]
    given = ["--credentials", "%d/key.json", *(["--ca-file", "%d/ca.crt"] if controller.ca_file else [])]
    return _UNIT.format(
        slug=controller.slug,
        credentials="\n".join(f"LoadCredential={name}:{path.absolute()}" for name, path in files.items()),
        command=" ".join([*map(_quoted, words), *given]),
        final_exits=" ".join(map(str, controller.final_exits)),
    )


def install(controller: Controller) -> str:
    """Write the unit and start the service, unless both are as they should be. Return what was done."""
    _require_machine()
    path, text = UNITS / controller.service, unit(controller)
    changed = not path.exists() or path.read_text() != text
    if changed:
        path.write_text(text)
        _systemctl("daemon-reload")
    _systemctl("enable", "--quiet", controller.service)
    _systemctl("restart" if changed else "start", controller.service)
    done = "written" if changed else "unchanged"
    return (
        f"{path} {done}, {controller.service} started. "
        f"`gpuaas get controllers` lists it as soon as it works; its log: journalctl -fu {controller.service}"
    )


def uninstall(service: str) -> str:
    _require_machine()
    if not (UNITS / service).exists():
        return f"there is no {service}"
    _systemctl("disable", "--quiet", "--now", service)
    (UNITS / service).unlink()
    _systemctl("daemon-reload")
    return f"removed {service}; the key file stays"


def own_command() -> list[str]:
    """Return the command that runs this app: its script, or the interpreter with the file of the app."""
    script = Path(sys.argv[0]).absolute()
    return [sys.executable, str(script)] if script.suffix == ".py" else [str(script)]


def _quoted(word: str) -> str:
    """Quote a word for ExecStart, where `%` and `$` would be expanded."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


def _require_machine() -> None:
    if os.geteuid() != 0:
        raise CannotInstall(f"This needs root. Run: sudo {' '.join(sys.argv)}")
    if not Path("/run/systemd/system").is_dir():
        raise CannotInstall("This machine is not run by systemd. Let your own supervisor run the command `run`.")


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"systemctl {' '.join(arguments)} failed: {done.stderr.strip()}")
