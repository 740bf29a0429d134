"""The command `gpuaas-platform`: run or install the server, recover the admin, verify the audit trail, manage keys,
back up and restore."""

import argparse
import asyncio
import dataclasses
import functools
import ipaddress
import math
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import uvloop

from gpuaas_platform import server
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.commands import audit as audit_command
from gpuaas_platform.commands import backup as backup_command
from gpuaas_platform.commands import custody as custody_command
from gpuaas_platform.commands import doctor as doctor_command
from gpuaas_platform.commands import install as install_command
from gpuaas_platform.custody import key_files
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity.users import first_password
from gpuaas_platform.kit import addresses, clock, ids, links, logs, peers
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import signatures

_EXAMPLES = """examples:
  gpuaas-platform server --data ./cloud
      the control plane on http://127.0.0.1:7070, data in ./cloud (SQLite)
  gpuaas-platform server --data ./cloud --database postgresql://user@host/gpuaas --listen 10.0.0.5:7443
      the same on PostgreSQL; addresses other than loopback are served over TLS
  gpuaas-platform admin --data ./cloud
      a new password for the first admin, shown once
  gpuaas-platform audit verify --data ./cloud
      whether the audit trail is whole and as it was written
  gpuaas-platform backup --data ./cloud --to cloud.backup --recipient age1…
      the whole platform in one encrypted file, while the server runs
  gpuaas-platform doctor --data ./cloud
      what is wrong with this installation, and the next step for each problem
"""


_OIDC = {
    "issuer": "https:// URL of the provider; empty: people sign in with a password only",
    "client-id": "what the provider calls this platform",
    "client-secret-file": "file that holds the client's secret; none for a public client",
    "redirect-url": "where the provider sends the browser back to",
}
_TLS = {
    "certificate-file": "your own certificate with its chain, in PEM form; empty: the platform signs its own",
    "key-file": "private key of that certificate",
    "authority-file": "certificate of the authority that signed it, which agents pin",
}
_LINKS = (
    ("log", "correlation_id", "https://logs.example/search?q={correlation_id}&from={start_ms}&to={end_ms}"),
    ("trace", "trace_id", "https://traces.example/trace/{trace_id}"),
)
_VAULT = {
    "address": "https:// URL of a Vault or OpenBao that keeps the values; empty: the platform's own store",
    "token-file": "file with the token for it; read again when the token is refused",
    "mount": "where its KV version 2 engine is mounted",
    "prefix": "path below which this platform's secrets are stored",
    "ca-file": "authority of its certificate; empty: those the system trusts",
}
_SANITISE = {
    "url": "https:// URL of the provisioner that reinstalls released nodes; empty: operators declare nodes clean",
    "token-file": "file with the bearer token for it; read for each call",
    "ca-file": "authority of its certificate; empty: those the system trusts",
}

_PORT_MAX = 65535


def main() -> None:
    options = _parser().parse_args()
    try:
        sys.exit(_run(options))
    except server.CannotStart as error:
        sys.stderr.write(f"gpuaas-platform: {error}\n  {error.fix}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _run(options: argparse.Namespace) -> int:
    if options.command in ("install", "uninstall"):
        return install_command.run(options, _listens_of)
    settings = _settings(options)
    commands = {"audit": audit_command.run, "custody": custody_command.run, "unseal": custody_command.unseal}
    commands |= backup_command.COMMANDS
    if options.command == "doctor":
        return doctor_command.run(settings, _listens(options), options.output)
    if options.command in commands:
        return commands[options.command](settings, options)
    if options.command == "admin":
        asyncio.run(_reset_admin(settings, options.name))
        return 0
    logs.configure(options.log_level)
    listens = _listens(options)
    sockets = [server.bind(listen) for listen in listens]
    uvloop.run(server.serve(settings, listens, sockets, functools.partial(_make_first_admin, listens[0])))
    return 0


def _listens_of(arguments: Sequence[str]) -> Sequence[server.Listen]:
    return _listens(_parser().parse_args(["server", *arguments]))


def _listens(options: argparse.Namespace) -> Sequence[server.Listen]:
    return tuple(_listen(address) for address in options.listen or ["127.0.0.1:7070"])


def _settings(options: argparse.Namespace) -> Settings:
    """Build the settings from the options with the same names. A command need not have an option for each setting."""
    names = {field.name for field in dataclasses.fields(Settings)}
    given = {name: value for name, value in vars(options).items() if name in names and value is not None}
    if options.command == "server":
        given["artifact_internal_hosts"] = tuple(options.artifact_internal_hosts or ())
        given["trusted_proxies"] = tuple(options.trusted_proxies or ())
        given["agent_release_keys"] = tuple(options.agent_release_keys or ())
        given["rate_limit_burst"] = max(1, int(options.rate_limit_per_s * 2))
    settings = Settings(custody_key_file=_given_key(os.environ.get("CREDENTIALS_DIRECTORY", "")), **given)
    _refuse_incomplete(settings)
    return settings


def _refuse_incomplete(settings: Settings) -> None:
    """Raise `CannotStart` if an option needs another one, or a file that does not exist."""
    if settings.oidc_issuer and not (settings.oidc_client_id and settings.oidc_redirect_url):
        raise _incomplete("--oidc-issuer needs --oidc-client-id and --oidc-redirect-url too")
    if settings.vault_address and settings.vault_token_file is None:
        raise _incomplete("--vault-address needs --vault-token-file too")
    if settings.sanitise_url and settings.sanitise_token_file is None:
        raise _incomplete("--sanitise-url needs --sanitise-token-file too")
    tls = {f"--tls-{name}": getattr(settings, f"tls_{name}".replace("-", "_")) for name in _TLS}
    if any(tls.values()) and not all(tls.values()):
        raise _incomplete(f"{', '.join(tls)} belong together")
    files = {**tls}
    if settings.oidc_issuer:
        files["--oidc-client-secret-file"] = settings.oidc_client_secret_file
    if settings.sanitise_url:
        files["--sanitise-token-file"] = settings.sanitise_token_file
    for option, file in files.items():
        if file is not None and not file.is_file():
            raise server.CannotStart(f"there is no file {file}", f"Name a file that exists: {option} FILE")


def _incomplete(message: str) -> server.CannotStart:
    return server.CannotStart(message, "Name them all: gpuaas-platform server --help")


def _given_key(credentials_directory: str) -> Path | None:
    """Return the key file that systemd provides by LoadCredential or LoadCredentialEncrypted; None if there is none."""
    path = Path(credentials_directory) / key_files.PLAIN
    return path if credentials_directory and path.is_file() else None


def _parser() -> argparse.ArgumentParser:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="gpuaas-platform", epilog=_EXAMPLES, formatter_class=style)
    release = f"%(prog)s {metadata.version('gpuaas-platform')}"
    parser.add_argument("--version", action="version", version=release, help="show the release and exit")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("server", help="run the control plane", epilog=_EXAMPLES, formatter_class=style)
    admin = commands.add_parser("admin", help="make or recover the admin", epilog=_EXAMPLES, formatter_class=style)
    _add_store_options(run)
    _add_store_options(admin)
    admin.add_argument("--name", default="admin", help="name of the admin")
    _add_server_options(run)
    _add_options(run, "encryption of addresses other than loopback", "tls", _TLS)
    _add_options(run, "sign-in through an identity provider (OpenID Connect)", "oidc", _OIDC)
    _add_options(run, "nodes between projects", "sanitise", _SANITISE)
    run.add_argument_group("custody of secrets").add_argument(
        "--sealed", action="store_true", help="start with secrets closed until `unseal` gives the passphrase"
    )
    custody, doctor = custody_command.add_parser(commands), doctor_command.add_parser(commands)
    for command in (run, custody["status"], doctor):
        _add_options(command, "secrets in Vault or OpenBao", "vault", _VAULT)
    install_command.add_parsers(commands)
    audit, unseal = audit_command.add_parser(commands), custody_command.add_unseal_parser(commands)
    backup, restore = backup_command.add_parsers(commands)
    for command in (*audit, *custody.values(), unseal, doctor, backup, restore):
        _add_store_options(command)
    return parser


def _add_store_options(command: argparse.ArgumentParser) -> None:
    data, database = os.environ.get("GPUAAS_DATA", "gpuaas-data"), os.environ.get("GPUAAS_DATABASE", "")
    command.add_argument("--data", dest="data_dir", metavar="DATA", type=_folder, default=data, help="data folder")
    text = "postgresql:// URL; empty: SQLite"
    command.add_argument("--database", dest="database_url", metavar="DATABASE", default=database, help=text)


def _add_options(command: argparse.ArgumentParser, title: str, prefix: str, texts: Mapping[str, str]) -> None:
    """Add a group of options. The default is the environment variable, else the default of the setting."""
    group = command.add_argument_group(title)
    for name, text in texts.items():
        setting = f"{prefix}_{name}".replace("-", "_")
        variable = f"GPUAAS_{setting.upper()}"
        default = os.environ.get(variable, getattr(Settings, setting) or "")
        kind = _file if name.endswith("-file") else str
        group.add_argument(f"--{prefix}-{name}", type=kind, default=default, help=f"{text} ({variable})")


def _add_server_options(command: argparse.ArgumentParser) -> None:
    environment = os.environ.get
    command.add_argument("--listen", action="append", help="HOST:PORT, repeatable; default 127.0.0.1:7070")
    command.add_argument(
        "--log-level",
        default=environment("GPUAAS_LOG_LEVEL", "info"),
        choices=("debug", "info", "warning", "error"),
        help="lowest level of the log lines on stderr, which are JSON objects, one per line",
    )
    command.add_argument(
        "--rate-limit-per-s",
        type=_rate,
        default=environment("GPUAAS_RATE_LIMIT_PER_S", str(Settings.rate_limit_per_s)),
        help="requests per second to the API for each caller (user, service account, or address without a valid"
        " token) and each server process, twice as many at once; 0: no limit; nodes have a limit of their own;"
        " default %(default)s",
    )
    command.add_argument(
        "--streams-per-caller",
        dest="streams_per_caller_max",
        metavar="COUNT",
        type=_count,
        default=Settings.streams_per_caller_max,
        help="streams and downloads that one caller may have open on this server at the same time; 0: no limit;"
        " default %(default)s",
    )
    command.add_argument(
        "--trusted-proxy",
        dest="trusted_proxies",
        metavar="CIDR",
        type=_network,
        action="append",
        help="network of reverse proxies that state the address of the caller, repeatable; default none",
    )
    command.add_argument(
        "--forwarded-header",
        default=Settings.forwarded_header,
        choices=peers.FORWARDED_HEADERS,
        help="header in which they state it; the other one is ignored; default %(default)s",
    )
    command.add_argument(
        "--metrics-open",
        action="store_true",
        help="let anyone read /metrics; default: this machine, and callers with record.platform_event.read",
    )
    command.add_argument(
        "--heartbeat-interval-s",
        type=_interval,
        default=environment("GPUAAS_HEARTBEAT_INTERVAL_S", str(Settings.heartbeat_interval_s)),
        help="seconds between two heartbeats of a node, 1 to 25; a node is lost after four missing ones",
    )
    command.add_argument(
        "--task-ttl-s",
        type=_task_ttl,
        default=environment("GPUAAS_TASK_TTL_S", str(Settings.task_ttl_s)),
        help="seconds until a task that a node did not answer fails, such as preparing or cleaning it for a project;"
        " 10 or more; default %(default)s",
    )
    command.add_argument(
        "--otlp-endpoint",
        default=environment("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
        help="OpenTelemetry collector that takes spans over HTTP, such as http://127.0.0.1:4318",
    )
    for kind, needed, example in _LINKS:
        command.add_argument(
            f"--{kind}-url-template",
            metavar="URL",
            type=functools.partial(_template, needed),
            default=environment(f"GPUAAS_{kind.upper()}_URL_TEMPLATE", ""),
            help=f"page of your {kind} system that `gpuaas triage` links to, such as {example}",
        )
    command.add_argument(
        "--artifact-internal-host",
        dest="artifact_internal_hosts",
        metavar="ARTIFACT_INTERNAL_HOST",
        action="append",
        help="host on a private or loopback address that artifacts may be fetched from, repeatable; default none",
    )
    command.add_argument(
        "--artifact-kept-s",
        type=_whole_number,
        default=environment("GPUAAS_ARTIFACT_KEPT_S", str(Settings.artifact_kept_s)),
        help="seconds that the content of retired and revoked artifacts is kept; default %(default)s",
    )
    command.add_argument(
        "--artifact-quota-bytes",
        type=_whole_number,
        default=environment("GPUAAS_ARTIFACT_QUOTA_BYTES", str(Settings.artifact_quota_bytes)),
        help="bytes of artifacts that an organisation may store; 0 sets no limit; default %(default)s",
    )
    command.add_argument(
        "--app-artifact-quota-bytes",
        type=_whole_number,
        default=environment("GPUAAS_APP_ARTIFACT_QUOTA_BYTES", str(Settings.app_artifact_quota_bytes)),
        help="bytes of shared artifacts that an app may store; 0 sets no limit; default %(default)s",
    )
    command.add_argument(
        "--disk-reserve-bytes",
        type=_whole_number,
        default=environment("GPUAAS_DISK_RESERVE_BYTES"),
        help="free bytes of the disk that artifacts must leave; default 1 GiB, or 5 %% of a small disk",
    )
    command.add_argument(
        "--no-node-reuse",
        dest="node_reuse",
        action="store_false",
        help="sanitise nodes between allocations of the same project too",
    )
    command.add_argument(
        "--sanitise-after-s",
        type=_whole_number,
        default=environment("GPUAAS_SANITISE_AFTER_S", str(Settings.sanitise_after_s)),
        help="seconds that a released node waits for its last project before it is reinstalled; default %(default)s",
    )
    command.add_argument(
        "--sanitise-timeout-s",
        type=_whole_number,
        default=environment("GPUAAS_SANITISE_TIMEOUT_S", str(Settings.sanitise_timeout_s)),
        help="seconds until a node that is not reinstalled is quarantined; default %(default)s",
    )
    command.add_argument(
        "--accept-clock",
        action="store_true",
        help="start although the clock is behind the newest audit row, or differs from the clock of PostgreSQL",
    )
    command.add_argument(
        "--accept-data-loss", action="store_true", help="start although the database lacks rows that were signed"
    )

    command.add_argument(
        "--agent-release-key",
        dest="agent_release_keys",
        metavar="FILE",
        type=_release_key,
        action="append",
        help="public key of agent releases, PEM, repeatable; without one, no release can be registered",
    )
    command.add_argument(
        "--agent-release-approvals",
        type=int,
        choices=(0, 1),
        default=environment("GPUAAS_AGENT_RELEASE_APPROVALS", str(Settings.agent_release_approvals)),
        help="other people who must approve an agent release before it can be installed; default %(default)s",
    )


async def _make_first_admin(listen: server.Listen, site: Site) -> None:
    password = ids.new_secret("admin")
    if not await identity.make_first_admin(site, system_origin(clock.utc_now()), first_password.ADMIN, password):
        return
    engine = "PostgreSQL" if site.settings.database_url else "SQLite"
    sys.stderr.write(
        f"First start: a GPU cloud of your own at {listen.url} ({engine}; data in {site.settings.data_dir}).\n"
        f"{_sign_in_hint(site.settings, password)}"
        "Next, in another terminal:\n"
        f"  gpuaas login --server {listen.url} --name admin\n"
        "  gpuaas get nodes\n"
        f"Ctrl-C stops the server. Password lost: gpuaas-platform admin --data {site.settings.data_dir}\n"
    )
    sys.stderr.flush()


def _sign_in_hint(settings: Settings, password: str) -> str:
    """Show the password only in a terminal: a log file lives long and has many readers."""
    if sys.stderr.isatty():
        return f"Sign in as admin; this password is shown once and kept nowhere:\n  {password}\n"
    try:
        path = first_password.write(settings.data_dir, password)
    except OSError as error:
        fix = f"Free some space, then set a password: gpuaas-platform admin --data {settings.data_dir}"
        raise server.CannotStart(f"cannot store the admin's first password: {error}", fix) from error
    return f"Sign in as admin. The password is in a file, which the first sign-in deletes:\n  {path}\n"


async def _reset_admin(settings: Settings, name: str) -> None:
    """Set a new password for the admin and print it. Needs write access to the data folder; writes an audit row."""
    async with server.open_site(settings) as site:
        password = ids.new_secret("admin")
        await identity.set_password(site, system_origin(clock.utc_now()), name, password, "platform_admin")
        await server.heads_signer(site).sweep()
        if name == first_password.ADMIN:
            first_password.forget(settings.data_dir)
    sys.stdout.write(password + "\n")


def _listen(address: str) -> server.Listen:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise server.CannotStart(
            f"--listen takes HOST:PORT with a port up to {_PORT_MAX}, not {address!r}",
            "Example: --listen 127.0.0.1:7070",
        )
    return server.Listen(host, int(port), encrypted=not addresses.is_loopback(host))


def _folder(text: str) -> Path:
    return Path(text).absolute()


def _file(text: str) -> Path | None:
    return Path(text) if text else None


def _release_key(text: str) -> str:
    """Read a public key. It is checked at the start, because its first use may be months later."""
    try:
        pem = Path(text).read_text()
        signatures.public_key(pem)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text} is not an Ed25519 public key in PEM form: {error}") from error
    return pem


def _template(needed: str, text: str) -> str:
    """Check the template of a link. It is checked at the start, because people need the link when something fails."""
    problem = links.check(text, needed) if text else ""
    if problem:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {problem}")
    return text


def _rate(text: str) -> float:
    rate = float(text)
    if not (math.isfinite(rate) and rate >= 0):
        raise argparse.ArgumentTypeError("a number of requests per second, or 0 for no limit")
    return rate


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("a number, or 0 for no limit")
    return count


def _interval(text: str) -> float:
    interval_s = float(text)
    if not 1 <= interval_s <= 25:
        raise argparse.ArgumentTypeError("a number of seconds from 1 to 25")
    return interval_s


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise argparse.ArgumentTypeError("write an IP address or a network, such as 10.0.0.0/24") from error


def _task_ttl(text: str) -> int:
    # To create a user or to remove one with its files takes seconds on a busy machine.
    if not text.isdecimal() or int(text) < 10:
        raise argparse.ArgumentTypeError("a whole number of seconds, 10 or more")
    return int(text)


def _whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("a whole number, 0 or more")
    return int(text)


if __name__ == "__main__":
    main()
