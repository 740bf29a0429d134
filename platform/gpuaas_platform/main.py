"""The command `gpuaas-platform`: run the server, make or recover the admin."""

import argparse
import asyncio
import ipaddress
import logging
import os
import sys
from pathlib import Path

import structlog

from gpuaas_platform import server
from gpuaas_platform.call import system_origin
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import clock, ids
from gpuaas_platform.kit.settings import Settings

_EXAMPLES = """examples:
  gpuaas-platform server --data ./cloud
      the control plane on http://127.0.0.1:7070, data in ./cloud (SQLite)
  gpuaas-platform server --data ./cloud --database postgresql://user@host/gpuaas --listen 10.0.0.5:7443
      the same on PostgreSQL; addresses other than loopback are served over TLS
  gpuaas-platform admin --data ./cloud
      a new password for the first admin, shown once
"""


def main() -> None:
    options = _parser().parse_args()
    settings = Settings(data_dir=Path(options.data).absolute(), database_url=options.database)
    if options.command == "server":
        _log_as_json()
        listens = tuple(_listen(address) for address in options.listen or ["127.0.0.1:7070"])
        asyncio.run(_serve(settings, listens))
    else:
        asyncio.run(_reset_admin(settings, options.name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaas-platform", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("server", "run the control plane"), ("admin", "make or recover the admin")):
        command = commands.add_parser(
            name, help=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.add_argument("--data", default=os.environ.get("GPUAAS_DATA", "gpuaas-data"), help="data folder")
        command.add_argument(
            "--database", default=os.environ.get("GPUAAS_DATABASE", ""), help="postgresql:// URL; empty: SQLite"
        )
        if name == "server":
            command.add_argument("--listen", action="append", help="HOST:PORT, repeatable; default 127.0.0.1:7070")
        else:
            command.add_argument("--name", default="admin", help="name of the admin")
    return parser


async def _serve(settings: Settings, listens: tuple[server.Listen, ...]) -> None:
    await _make_first_admin(settings, listens[0])
    await server.serve(settings, listens)


async def _make_first_admin(settings: Settings, listen: server.Listen) -> None:
    async with server.open_site(settings) as site:
        if await identity_store.user_by_name(site.database.reader, "admin") is not None:
            return
        password = ids.new_secret("admin")
        await identity.set_password(site, system_origin(clock.utc_now()), "admin", password, "platform_admin")
    scheme = "https" if listen.encrypted else "http"
    sys.stderr.write(
        "First start. Sign in as admin; this password is shown once and kept nowhere:\n"
        f"  {password}\n"
        f"Next: gpuaas login --server {scheme}://{listen.host}:{listen.port} --name admin\n"
    )
    sys.stderr.flush()


async def _reset_admin(settings: Settings, name: str) -> None:
    """Whoever may write the data folder may recover the admin; the act is in the audit trail."""
    async with server.open_site(settings) as site:
        password = ids.new_secret("admin")
        await identity.set_password(site, system_origin(clock.utc_now()), name, password, "platform_admin")
    sys.stdout.write(password + "\n")


def _listen(address: str) -> server.Listen:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise SystemExit(
            f"gpuaas-platform: --listen takes HOST:PORT, not {address!r}. Example: --listen 127.0.0.1:7070"
        )
    return server.Listen(host, int(port), encrypted=not _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _log_as_json() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


if __name__ == "__main__":
    main()
