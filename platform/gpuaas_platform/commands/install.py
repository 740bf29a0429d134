"""`gpuaas-platform install` and `uninstall`: the server as a systemd service of this machine. `main` calls it."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpuaas_platform import server
from gpuaas_platform.commands import service, units

_RELEASE = Path("/opt/gpuaas/venv")
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
_EXAMPLES = f"""examples:
  gpuaas-platform install --listen 10.0.0.5:7443
      the control plane as a service of its own user, over TLS; safe to repeat, also after an upgrade
  gpuaas-platform install --listen 10.0.0.5:7443 --print
      show the files without writing them
  gpuaas-platform uninstall
      remove the service; settings and data stay in {units.SETTINGS_FILE} and {units.DATA}
"""
Listens = Callable[[Sequence[str]], Sequence[server.Listen]]
"""Returns the addresses of a server with these options. Ends the process with a message if an option is wrong."""


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    style = argparse.RawDescriptionHelpFormatter
    text = "run the server as a service of this machine"
    install = commands.add_parser("install", help=text, epilog=_EXAMPLES, formatter_class=style)
    text = f"HOST:PORT, repeatable; default: what {units.SETTINGS_FILE} has, else {units.DEFAULT_LISTEN}"
    install.add_argument("--listen", action="append", help=text)
    install.add_argument("--print", action="store_true", help="show the files; change nothing")
    uninstall = commands.add_parser("uninstall", help="remove the service", epilog=_EXAMPLES, formatter_class=style)
    uninstall.add_argument("--purge", action="store_true", help="also delete settings, user and ALL DATA")


def run(options: argparse.Namespace, listens_of: Listens) -> int:
    try:
        if options.command == "uninstall":
            _require_machine()
            _uninstall(purge=options.purge)
        else:
            _install(options.listen or [], listens_of, show=options.print)
    except (service.CannotInstall, server.CannotStart) as error:
        sys.stderr.write(f"gpuaas-platform: {error}\n  {error.fix}\n")
        return 1
    return 0


def _install(addresses: Sequence[str], listens_of: Listens, *, show: bool) -> None:
    if not show:
        _require_machine()
        _require_readable(Path(sys.prefix))
    present = service.read(units.SETTINGS_FILE)
    settings = units.settings_text(present, addresses)
    listens = listens_of(units.options(settings))
    files = units.rendered(_command(), settings, min(listen.port for listen in listens))
    if show:
        _print(files, hidden=units.SETTINGS_FILE if present else None)
        return
    if service.state()["ActiveState"] in ("inactive", "failed"):
        for listen in listens:
            server.bind(listen).close()
    changed = service.write(files)
    service.start(changed=changed)
    service.wait_until_ready(listens[0], settings)
    service.say(_summary(listens[0]))


def _print(files: Mapping[Path, units.File], hidden: Path | None) -> None:
    """Show the files. The settings of an installed server may have a password, so they are not shown."""
    for path, file in files.items():
        text = "# (exists; only its --listen would change)\n" if path == hidden else file.text
        service.say(f"# {path} ({file.mode:04o})\n{text}")


def _summary(listen: server.Listen) -> str:
    password, authority = units.DATA / "first-admin-password", units.DATA / "keys" / "tls-authority.crt"
    url = service.local_url(listen)
    trust = f" --ca-file {authority.name}" if listen.encrypted else ""
    copy = f"  install -m 644 {authority} .    # what clients trust, for every machine of theirs\n" if trust else ""
    first = f"The first admin's password, until the first sign-in: {password}\n" if password.exists() else ""
    return (
        f"The control plane runs at {url}; data in {units.DATA}, settings in {units.SETTINGS_FILE}.\n"
        f"{first}Next:\n{copy}"
        f"  gpuaas login --server {url}{trust} --name admin\n"
        f"  journalctl -fu {units.SERVICE}\n"
    )


def _uninstall(*, purge: bool) -> None:
    if units.UNIT_FILE.exists():
        service.do("systemctl", "disable", "--quiet", "--now", units.SERVICE)
    removed = [units.UNIT_FILE, units.USER_FILE, *([units.SETTINGS_FILE] if purge else [])]
    for path in filter(Path.exists, removed):
        path.unlink()
        service.say(f"removed    {path}")
    service.do("systemctl", "daemon-reload")
    if not purge:
        _say_kept([str(path) for path in (units.SETTINGS_FILE, units.DATA) if path.exists()])
        return
    if units.DATA.exists():
        shutil.rmtree(units.DATA)
    if subprocess.run(["getent", "passwd", units.USER], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        service.do("userdel", units.USER)
    service.say(f"removed    {units.DATA} and the user {units.USER}")


def _say_kept(paths: Sequence[str]) -> None:
    if paths:
        service.say(f"kept       {', '.join(paths)}; to delete them too: gpuaas-platform uninstall --purge")
    else:
        service.say("nothing of the platform is installed")


def _require_machine() -> None:
    if os.geteuid() != 0:
        raise service.CannotInstall("this needs root", f"sudo {' '.join(sys.argv)}")
    if not Path("/run/systemd/system").is_dir():
        raise service.CannotInstall(
            "this machine is not run by systemd", "Let your own supervisor run: gpuaas-platform server --help"
        )


def _require_readable(folder: Path) -> None:
    if any(folder.is_relative_to(hidden) for hidden in _HIDDEN):
        raise service.CannotInstall(
            f"the service cannot read {folder}", "Install the bundle, which goes to /opt/gpuaas: make bundle"
        )


def _command() -> Path:
    """Return the path of this command as it stays after an upgrade."""
    folder = _RELEASE if _RELEASE.resolve() == Path(sys.prefix).resolve() else Path(sys.prefix)
    return folder / "bin" / "gpuaas-platform"
