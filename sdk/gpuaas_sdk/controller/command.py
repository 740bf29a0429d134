"""The command line of an app: `run` or `install` its controller, print its `manifest` or `packages`. See `App.main`."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import msgspec
import structlog
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.errors import ApiError, CredentialsInvalid
from gpuaas_contract.identity import ME

from gpuaas_sdk import traces
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import logs, metrics, service
from gpuaas_sdk.controller.gauges import Gauges
from gpuaas_sdk.controller.projects import ProjectRunners
from gpuaas_sdk.controller.runner import Runner
from gpuaas_sdk.outcomes import NoAnswer
from gpuaas_sdk.traces import Spans

EXIT_USAGE = 64
EXIT_REFUSED = 77
_EXAMPLE = (
    "--server http://127.0.0.1:7070 --project proj_1 --credentials key.json. "
    "GPUAAS_SERVER, GPUAAS_PROJECT and GPUAAS_CREDENTIALS replace missing flags. Without a project, the controller "
    "serves every project that the service account can see."
)
START_ATTEMPT_S = 3.0
START_PAUSE_S = 1.0

log = structlog.get_logger()


class MakeRunner(Protocol):
    """Takes a client, a project id, the controller's name, a span exporter and the gauges, and returns a runner of the
    app."""

    def __call__(
        self, client: Client, project_id: str, name: str, *, spans: Spans | None, gauges: Gauges | None
    ) -> Runner: ...


class AppCommand(NamedTuple):
    """A command that only this app has.

    check = AppCommand("check the settings", lambda words: 0)
    app = App("hello", manifest=Path("manifest.yaml"), commands={"check": check})"""

    help: str
    run: Callable[[Sequence[str]], int]
    """Takes the arguments after the command's name and returns the exit status."""


class Credentials(msgspec.Struct, frozen=True):
    """Content of a credentials file."""

    key_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"Credentials(key_id={self.key_id!r}, client_secret=…)"


class UsageError(Exception):
    """A wrong command line or unusable file. The message is one line: what is wrong, why, and the next command."""


def main(
    manifest: Manifest,
    packages: Sequence[str],
    make_runner: MakeRunner,
    argv: Sequence[str] | None = None,
    own: Mapping[str, AppCommand] | None = None,
    unkept: Sequence[str] = (),
) -> int:
    """Run the command line of an app and return the exit status. `own`: the commands that only this app has. `unkept`:
    what the manifest promises without a handler; then the controller does not start."""
    given, own = list(sys.argv[1:] if argv is None else argv), own or {}
    if given and given[0] in own:
        return own[given[0]].run(given[1:])
    try:
        options = _parse(manifest.slug, given, own)
        if options.command == "manifest":
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
        elif options.command == "packages":
            text = "\n".join(packages)
        elif options.command == "install":
            text = _install(manifest.slug, options, unkept)
        elif options.command == "uninstall":
            text = service.uninstall(f"gpuaas-app-{manifest.slug}.service")
        else:
            return _run(manifest.slug, options, make_runner, unkept)
    except (UsageError, service.CannotInstall) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    sys.stdout.write(f"{text}\n")
    return 0


def _run(app_slug: str, options: argparse.Namespace, make_runner: MakeRunner, unkept: Sequence[str]) -> int:
    client = _client(options, _credentials(options.credentials))
    _refuse_unkept(app_slug, unkept)
    logs.configure()
    structlog.contextvars.bind_contextvars(app=app_slug)
    spans, gauges = _open_spans(app_slug), Gauges() if options.metrics else None

    def make(project_id: str) -> Runner:
        return make_runner(client, project_id, options.name, spans=spans, gauges=gauges)

    runner = make(options.project) if options.project else ProjectRunners(client, make)
    try:
        return asyncio.run(_serve(client, runner, gauges, options.metrics or ""))
    finally:
        if spans is not None:
            spans.close()


def _refuse_unkept(app_slug: str, unkept: Sequence[str]) -> None:
    """People would request what the manifest promises, and each request would fail."""
    if unkept:
        raise UsageError(
            f"The controller of {app_slug} does not start: its manifest promises {', '.join(unkept)}, and no handler "
            "is registered for it. Register a handler, or remove it from the manifest."
        )


def _install(app_slug: str, options: argparse.Namespace, unkept: Sequence[str]) -> str:
    _client(options, _credentials(options.credentials))  # refuses what the service would refuse at its start
    _refuse_unkept(app_slug, unkept)
    controller = service.Controller(
        slug=app_slug,
        command=service.own_command(),
        server=options.server,
        project=options.project,
        name=options.name,
        credentials=Path(options.credentials),
        ca_file=options.ca_file,
        metrics=options.metrics or "",
        final_exits=(EXIT_USAGE, EXIT_REFUSED),
    )
    return service.unit(controller) if options.print else service.install(controller)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")


def _parse(app_slug: str, argv: Sequence[str], own: Mapping[str, AppCommand]) -> argparse.Namespace:
    root = _Parser(description=f"The app {app_slug}: run its controller, or print what it declares.")
    commands = root.add_subparsers(dest="command", required=True, parser_class=_Parser)
    commands.add_parser("manifest", help="print the manifest as JSON, ready to register")
    commands.add_parser("packages", help="print the Debian packages the app's machines need, one per line")
    run = commands.add_parser(
        "run",
        help="run the controller",
        description=f"Run the operations of {app_slug} instances in one project, or in all that accept the account.",
        epilog=f"Example: %(prog)s {_EXAMPLE}",
    )
    install = commands.add_parser(
        "install",
        help="run the controller as a service of this machine (systemd, root)",
        description="Write a systemd unit that runs the controller, and start it. It is safe to repeat.",
        epilog=f"Example: %(prog)s {_EXAMPLE}",
    )
    install.add_argument("--print", action="store_true", help="show the unit; change nothing")
    commands.add_parser("uninstall", help="remove that service")
    for name, command in own.items():
        commands.add_parser(name, help=command.help)
    for parser in (run, install):
        _add_options(parser, app_slug)
    options = root.parse_args(argv)
    if options.command not in ("run", "install"):
        return options
    for flag in ("server", "credentials"):
        if not getattr(options, flag):
            {"run": run, "install": install}[options.command].error(
                f"--{flag} is missing and GPUAAS_{flag.upper()} is not set"
            )
    return options


def _add_options(parser: argparse.ArgumentParser, app_slug: str) -> None:
    parser.add_argument("--server", metavar="URL", default=os.environ.get("GPUAAS_SERVER", ""))
    parser.add_argument(
        "--project",
        metavar="ID",
        default=os.environ.get("GPUAAS_PROJECT", ""),
        help="the only project to serve; default: every project that the service account can see",
    )
    parser.add_argument(
        "--credentials",
        metavar="FILE",
        default=os.environ.get("GPUAAS_CREDENTIALS", ""),
        help="JSON file with key_id and client_secret of a service account",
    )
    parser.add_argument("--name", default=f"{app_slug}@{socket.gethostname()}", help="default: %(default)s")
    parser.add_argument("--ca-file", metavar="FILE", type=Path, help="certificate authority of the server")
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=_address,
        help="serve /metrics for Prometheus at this address, without TLS and login; default: not at all",
    )


def _address(text: str) -> str:
    try:
        metrics.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _credentials(file: str) -> Credentials:
    advice = "Create a key: gpuaas service-account create NAME --app APP --key-file FILE"
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=Credentials)
    except OSError as error:
        raise UsageError(f"Credentials file {file} cannot be read: {error.strerror}. {advice}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"Credentials file {file} is not valid: {error}. {advice}") from error


def _client(options: argparse.Namespace, credentials: Credentials) -> Client:
    auth = ServiceAccount(credentials.key_id, credentials.client_secret)
    try:
        return Client(options.server, auth, ca_file=options.ca_file)
    except ssl.SSLError as error:
        raise UsageError(f"--ca-file {options.ca_file} contains no certificate: {error}") from error
    except OSError as error:
        raise UsageError(f"--ca-file {options.ca_file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--server: {error}") from error


def _open_spans(app_slug: str) -> Spans | None:
    try:
        return traces.open_spans(f"gpuaas-app-{app_slug}")
    except ModuleNotFoundError as error:
        log.warning("spans.packages_missing", error=str(error), fix="pip install 'gpuaas-sdk[otlp]'")
        return None


async def _serve(client: Client, runner: Runner | ProjectRunners, gauges: Gauges | None, address: str) -> int:
    async with client, contextlib.AsyncExitStack() as services:
        if gauges is not None:
            try:
                served = await services.enter_async_context(metrics.serve(gauges, metrics.parse(address)))
            except OSError as refused:
                sys.stderr.write(
                    f"--metrics {address}: cannot listen there: {refused.strerror}. Choose another port.\n"
                )
                return EXIT_USAGE
            log.info("metrics.listening", host=served.host, port=served.port)
        work = asyncio.create_task(_work(client, runner))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        await asyncio.wait({work})
    if work.cancelled():
        log.info("controller.stopped")
        return 0
    if isinstance(error := work.exception(), CredentialsInvalid):
        log.error("controller.credentials_refused", error=error.message, fix="Create a new service-account key.")
        return EXIT_REFUSED
    work.result()
    return 0


async def _work(client: Client, runner: Runner | ProjectRunners) -> None:
    await _until_reachable(client)
    log.info("controller.started", server=client.server)
    await runner.run()


async def _until_reachable(client: Client) -> None:
    while True:
        try:
            await client.call(ME, timeout_s=START_ATTEMPT_S)
            return
        except CredentialsInvalid:
            raise
        except (ApiError, NoAnswer) as error:
            log.warning("controller.platform_unreachable", server=client.server, error=error.message, fix=error.fix)
            await asyncio.sleep(START_PAUSE_S)
