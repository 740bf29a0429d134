"""The command `gpuaas-console`: run the console, or make a one-time sign-in link."""

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuaas_console import links

_EXAMPLES = """examples:
  gpuaas-console run --server http://127.0.0.1:7070
      the console on http://127.0.0.1:7071 for the platform on this host
  gpuaas-console run --server https://cloud.example:7443 --ca-file ca.pem --https
      behind a proxy that serves HTTPS to browsers
"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.command == "link":
        token = sys.stdin.read().strip()
        code = links.make(options.links, token, datetime.datetime.now(datetime.UTC))
        sys.stdout.write(f"{options.url.rstrip('/')}/sign-in/link/{code}\n")
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    # Half a second that a link does not need.
    import uvicorn  # noqa: PLC0415

    from gpuaas_console.app import make_app  # noqa: PLC0415
    from gpuaas_console.settings import Settings  # noqa: PLC0415

    host, _, port = options.listen.rpartition(":")
    settings = Settings(options.server, host, int(port), options.ca_file, options.links, options.https)
    # Paths of one-time links are secrets, so requests are not logged.
    uvicorn.run(
        make_app(settings),
        host=host,
        port=settings.port,
        http="h11",  # it refuses an endless header, of which the other parser stores all
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gpuaas-console", description=__doc__, epilog=_EXAMPLES, formatter_class=form)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the console")
    run.add_argument("--server", required=True, help="address of the platform")
    run.add_argument("--listen", default="127.0.0.1:7071", metavar="HOST:PORT", help="where browsers connect")
    run.add_argument("--ca-file", type=Path, help="certificate authority of the platform, in PEM form")
    run.add_argument("--links", type=Path, help="folder of the one-time sign-in links")
    run.add_argument("--https", action="store_true", help="a proxy in front of the console serves HTTPS")
    link = commands.add_parser("link", help="make a sign-in link that works once, for the token on stdin")
    link.add_argument("--links", type=Path, required=True, help="the same folder as of the running console")
    link.add_argument("--url", default="http://127.0.0.1:7071", help="address of the console")
    return parser


if __name__ == "__main__":
    sys.exit(main())
