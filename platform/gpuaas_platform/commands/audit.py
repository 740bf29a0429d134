"""`gpuaas-platform audit …`: verify the audit chains, print their signed heads. `main` calls it with the options."""

import argparse
import asyncio
import sqlite3
import sys
import time
from pathlib import Path

import asyncpg
import msgspec

from gpuaas_platform.commands.progress import Progress
from gpuaas_platform.kit import clock, db, keys, migrate
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import chain, heads, verify

_EXAMPLES = """examples:
  gpuaas-platform audit verify --data ./cloud
      every chain against its rows' hashes and its signed heads; exit 0: sound, 1: not, 2: could not be read
  gpuaas-platform audit head --data ./cloud > heads-of-today.jsonl
      sign the present end of each chain; keep the file on another machine
  gpuaas-platform audit verify --data ./cloud --heads heads-of-today.jsonl
      also against heads kept elsewhere
"""


class CannotVerify(Exception):
    """A file of heads cannot be read. This does not mean that the audit trail is valid."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> list[argparse.ArgumentParser]:
    """Return the parsers of the subcommands of `audit`. The caller adds the options that all commands have."""
    style = argparse.RawDescriptionHelpFormatter
    audit = commands.add_parser(
        "audit",
        help="check that no row of the audit trail was changed or deleted",
        epilog=_EXAMPLES,
        formatter_class=style,
    )
    acts = audit.add_subparsers(dest="act", required=True)
    check = acts.add_parser("verify", help="check every chain", epilog=_EXAMPLES, formatter_class=style)
    check.add_argument(
        "--org",
        default="",
        help=f"verify only the audit chain of this organisation, or of the platform: {chain.PLATFORM}",
    )
    check.add_argument(
        "--heads",
        default="",
        help="file with signed heads of the audit trail that was stored elsewhere, one head per line",
    )
    head = acts.add_parser(
        "head", help="print the last row's hash of each audit chain, signed", epilog=_EXAMPLES, formatter_class=style
    )
    return [check, head]


def run(settings: Settings, options: argparse.Namespace) -> int:
    try:
        if options.act == "verify":
            return asyncio.run(_verify(settings, options.org, options.heads))
        return asyncio.run(_print_heads(settings))
    except migrate.NewerDatabase as error:
        sys.stderr.write(f"gpuaas-platform: the audit trail could not be read: {error}\n{error.fix}\n")
        return 2
    except (CannotVerify, OSError, ValueError, sqlite3.Error, asyncpg.PostgresError, db.Unavailable) as error:
        sys.stderr.write(f"gpuaas-platform: the audit trail could not be read: {error}\n")
        sys.stderr.write("Next: check --data and --database; gpuaas-platform audit verify --help\n")
        return 2


async def _verify(settings: Settings, org: str, heads_file: str) -> int:
    await migrate.check_not_newer(settings.sqlite_path, settings.database_url)
    key = keys.read(settings.data_dir / "keys" / keys.AUDIT_FILE).public_key()
    kept = _read_heads(Path(heads_file)) if heads_file else []
    evidence = verify.Evidence(heads.folder_in(settings.data_dir), key, kept)
    started = time.monotonic()
    async with verify.open_source(settings.data_dir, settings.database_url) as source:
        verdicts = await verify.verify(source, evidence, org, _progress())
    for verdict in verdicts:
        sys.stdout.write(_report(verdict))
    seconds = max(time.monotonic() - started, 1e-9)
    count = sum(verdict.count for verdict in verdicts)
    bad = sum(bool(verdict.findings) for verdict in verdicts)
    sys.stdout.write(
        f"{count} rows of {len(verdicts)} chains in {seconds:.1f} s ({count / seconds:,.0f} rows/s): "
        + (f"{bad} not sound\n" if bad else "all sound\n")
    )
    return 1 if bad else 0


def _report(verdict: verify.Verdict) -> str:
    if verdict.findings:
        lines = [f"{verdict.name}: NOT SOUND from position {verdict.findings[0].position}"]
        lines += [f"  {flaw.kind} at position {flaw.position}: {flaw.message}" for flaw in verdict.findings]
        return "\n".join(lines) + "\n"
    beyond = verdict.last_position - verdict.signed_position
    signed = f"signed up to {verdict.signed_position}" + (f", {beyond} rows not signed yet" if beyond else "")
    return f"{verdict.name}: ok, {verdict.count} rows, last position {verdict.last_position}, {signed}\n"


def _read_heads(path: Path) -> list[chain.Head]:
    heads_read: list[chain.Head] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            heads_read.append(msgspec.json.decode(line, type=chain.Head))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise CannotVerify(f"line {number} of {path} is not a signed head of the audit trail: {error}") from error
    return heads_read


async def _print_heads(settings: Settings) -> int:
    """Sign the audit chains that have new rows, then print the last signed head of each. The server may be running."""
    await migrate.check_not_newer(settings.sqlite_path, settings.database_url)
    key = keys.read(settings.data_dir / "keys" / keys.AUDIT_FILE)
    folder = heads.folder_in(settings.data_dir)
    async with verify.open_source(settings.data_dir, settings.database_url) as source:
        await heads.Signer(source.reader, folder, key, clock.utc_now).sign()
    for name in heads.names(folder):
        if (line := heads.last_line(folder, name)) is not None:
            sys.stdout.write(line.decode() + "\n")
    return 0


def _progress() -> verify.Progress:
    show = Progress()
    return lambda name, count: show(f"{name}: {count} rows checked")
