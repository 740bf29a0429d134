"""What an installation changes on the machine: files, and the service under systemd. `install` decides and calls it."""

import contextlib
import grp
import os
import shutil
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from gpuaas_platform import server
from gpuaas_platform.commands import units

READY_S_MAX, _LOOK_EVERY_S, _SAY_EVERY_S = 120.0, 0.5, 5.0
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class CannotInstall(Exception):
    """The service cannot be installed on this machine. `fix` is what the operator can do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def write(files: Mapping[Path, units.File], root: Path = Path("/")) -> bool:
    """Write the files that differ, each as a whole, and say what was done. Return whether any did."""
    changed = False
    for path, file in files.items():
        target = root / path.relative_to("/")
        if _is_as_wanted(target, file):
            say(f"unchanged  {path}")
            continue
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(file.text)
        shutil.chown(draft, group=file.group)
        draft.chmod(file.mode)
        draft.replace(target)
        if path == units.USER_FILE:
            do("systemd-sysusers", str(target))
        say(f"written    {path}")
        changed = True
    return changed


def _is_as_wanted(target: Path, file: units.File) -> bool:
    if read(target) != file.text:
        return False
    present = target.stat()
    return (stat.S_IMODE(present.st_mode), present.st_gid) == (file.mode, grp.getgrnam(file.group).gr_gid)


def start(*, changed: bool) -> None:
    do("systemctl", "daemon-reload")
    do("systemctl", "enable", "--quiet", units.SERVICE)
    now = state()
    if now["ActiveState"] == "active" and not changed and _release_of(now["MainPID"]) == Path(sys.prefix):
        say(f"running    {units.SERVICE}, nothing changed")
        return
    do("systemctl", "restart", units.SERVICE)
    say(f"started    {units.SERVICE}")


def wait_until_ready(listen: server.Listen, settings: str) -> None:
    authority = Path(units.value(settings, "GPUAAS_TLS_AUTHORITY_FILE") or units.DATA / "keys" / "tls-authority.crt")
    url = local_url(listen)
    began, shown_s = time.monotonic(), 0.0
    while why := why_not_ready(url, authority if listen.encrypted else None):
        waited_s = time.monotonic() - began
        if _UNTRUSTED in why:
            fix = f"Check GPUAAS_TLS_CERTIFICATE_FILE and GPUAAS_TLS_AUTHORITY_FILE in {units.SETTINGS_FILE}"
            raise CannotInstall(f"the server runs at {url}, and clients refuse its certificate: {why}", fix)
        if state()["ActiveState"] in ("failed", "inactive") or waited_s > READY_S_MAX:
            text = f"the server does not answer on {url}: {why}\n{_last_log(8)}"
            raise CannotInstall(text, f"Look at: journalctl -u {units.SERVICE}")
        if waited_s - shown_s >= _SAY_EVERY_S:
            shown_s = waited_s
            say(f"waiting    {url}/readyz ({waited_s:.0f} s): {why}\n{_last_log(2)}")
        time.sleep(_LOOK_EVERY_S)
    say(f"ready      {url}/readyz")


def _last_log(lines: int) -> str:
    """Return the last lines that the server has written since its last start, without those of systemd."""
    match = f"_SYSTEMD_INVOCATION_ID={state()['InvocationID']}"
    text = output("journalctl", match, "-n", str(lines), "-o", "cat", "--no-pager", "--quiet")
    return "\n".join(f"    {line}" for line in text.splitlines())


def why_not_ready(url: str, authority: Path | None) -> str:
    """Ask the server of this machine; return "" if it is ready. Its certificate may name another address, so only its
    authority is checked."""
    try:
        context = False if authority is None else ssl.create_default_context(cafile=authority)
    except OSError as error:
        return f"{authority} cannot be read: {error.strerror or error}"
    if isinstance(context, ssl.SSLContext):
        context.check_hostname = False
    try:
        answer = httpx.get(f"{url}/readyz", verify=context, timeout=5, trust_env=False)
    except httpx.TransportError as error:
        return str(error) or type(error).__name__
    return "" if answer.status_code == httpx.codes.OK else f"it answers {answer.status_code}"


def local_url(listen: server.Listen) -> str:
    every = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return server.Listen(every.get(listen.host, listen.host), listen.port, listen.encrypted).url


def _release_of(pid: str) -> Path:
    """Return the environment that a process was started from: its interpreter is the first word of its command."""
    with contextlib.suppress(OSError):
        return Path(Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]).parent.parent
    return Path()


def state() -> dict[str, str]:
    shown = output("systemctl", "show", "-p", "ActiveState,MainPID,InvocationID", units.SERVICE)
    return dict(line.split("=", 1) for line in shown.splitlines())


def read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except PermissionError as error:
        raise CannotInstall(f"only root may read {path}", f"sudo {' '.join(sys.argv)}") from error


def do(*argv: str) -> None:
    output(*argv)


def output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"{' '.join(argv)} failed: {done.stderr.strip()}", f"Look at: journalctl -xe, {argv[0]}")
    return done.stdout


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
