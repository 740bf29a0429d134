"""`gpuaas-platform backup`, `restore` and `verify`: the whole platform as one encrypted file. `main` calls them."""

import argparse
import asyncio
import sqlite3
import sys
from pathlib import Path

import asyncpg

from gpuaas_platform import server
from gpuaas_platform.backup import age, check, make, manifest, restore
from gpuaas_platform.backup.errors import BackupError, NotSound
from gpuaas_platform.commands.progress import Progress
from gpuaas_platform.kit import db, migrate
from gpuaas_platform.kit.settings import Settings

_EXAMPLES = """examples:
  gpuaas-platform backup --new-identity backup.identity
      a key pair: the file decrypts backups and belongs on another machine; the printed recipient encrypts them
  gpuaas-platform backup --data ./cloud --to cloud.backup --recipient age1…
      database, keys, signed heads and artifacts, while the server runs
  gpuaas-platform verify --from cloud.backup --identity backup.identity
      whether the file is complete and as it was made; exit 0: sound, 1: not, 2: could not be read
  gpuaas-platform restore --from cloud.backup --identity backup.identity --data ./new-cloud
      into an empty folder; with --database URL, into an empty PostgreSQL database
"""
_CUSTODY = {
    "plain": "The key of custody is in the backup. Anyone with the identity can read every secret.",
    "sealed": "The key of custody is in the backup under its passphrase. After a restore: gpuaas-platform unseal",
    "unused": "Custody has no values yet.",
    "outside": "The key of custody is NOT in the backup: systemd or Vault has it. Back it up separately.",
}


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> list[argparse.ArgumentParser]:
    """Return the parsers of `backup` and `restore`, to which the caller adds the options of the store."""
    helps = {
        "backup": "write the whole platform to an encrypted file",
        "restore": "restore a backup into an empty folder and database",
        "verify": "check a backup without restoring it",
    }
    style = argparse.RawDescriptionHelpFormatter
    made = {
        name: commands.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=style)
        for name, text in helps.items()
    }
    target = made["backup"].add_mutually_exclusive_group(required=True)
    target.add_argument("--to", type=Path, metavar="FILE", help="file to write the backup to; it must not exist")
    target.add_argument(
        "--new-identity",
        type=Path,
        metavar="FILE",
        help="make a key pair for backups and write its private key to this file; make no backup",
    )
    made["backup"].add_argument(
        "--recipient",
        action="append",
        default=[],
        help="public key that the backup is encrypted to: age1…, ssh-ed25519 … or a file with one per line; repeatable",
    )
    made["backup"].add_argument(
        "--without-artifacts", action="store_true", help="back up the records of artifacts without their content"
    )
    for name in ("restore", "verify"):
        made[name].add_argument("--from", dest="source", type=Path, metavar="FILE", required=True, help="the backup")
        made[name].add_argument(
            "--identity",
            type=Path,
            metavar="FILE",
            required=True,
            help="file with the private key (age identity) that decrypts the backup",
        )
        made[name].add_argument(
            "--signed-by",
            default="",
            metavar="KEY",
            help="public key of the platform that must have made the backup; a backup of another platform is refused",
        )
    made["verify"].set_defaults(data_dir=Path())  # it reads only the backup
    return [made["backup"], made["restore"]]


def _backup(settings: Settings, options: argparse.Namespace) -> int:
    if options.new_identity is not None:
        sys.stdout.write(f"{age.new_identity(options.new_identity)}\n")
        sys.stderr.write(f"{options.new_identity} decrypts backups: move it to another machine, and do not lose it.\n")
        return 0
    server.refuse_unfinished_restore(settings)
    server.refuse_missing_platform(settings)
    recipients = age.recipients(options.recipient)
    making = make.make(settings, options.to, recipients, Progress(), with_artifacts=not options.without_artifacts)
    made, signed_by = asyncio.run(making)
    sys.stdout.write(f"{options.to}: {_summary(made)}\n{_CUSTODY[made.custody]}\nSigned by {signed_by}\n")
    return 0


def _verify(_: Settings, options: argparse.Namespace) -> int:
    checked = check.check(options.source, age.identities(options.identity), options.signed_by, Progress())
    sys.stdout.write(_sound(options.source, checked))
    return 0


def _restore(settings: Settings, options: argparse.Namespace) -> int:
    identities, progress = age.identities(options.identity), Progress()
    asyncio.run(restore.check_empty(settings))
    checked = check.check(options.source, identities, options.signed_by, progress)
    sys.stdout.write(_sound(options.source, checked))
    restored = asyncio.run(restore.restore(settings, options.source, identities, checked, progress))
    sys.stdout.write(
        f"Restored into {settings.data_dir}. Every table equals the backup.\n"
        f"Changes after {restored.cut_at:%Y-%m-%d %H:%M:%S} UTC are lost. What was issued before is refused:\n"
        f"  {restored.sessions} sessions ended; people and controllers sign in again\n"
        f"  {restored.operations} open operations must be claimed again; controllers of before are refused\n"
        f"  {restored.grants} machine grants ended; machines get a new SSH authority when the server starts\n"
        f"  {restored.nodes_cordoned} nodes without allocation are cordoned; check each, then: gpuaas node uncordon\n"
        f"{_CUSTODY[checked.manifest.custody]}\n"
        "Revoke again what was revoked after the backup: roles, service account keys, SSH keys, trust keys.\n"
        f"Next: gpuaas-platform server --data {settings.data_dir}{' --database …' if settings.database_url else ''}\n"
    )
    return 0


def _guarded(settings: Settings, options: argparse.Namespace) -> int:
    """Run the command; turn what an operator can mend into a message and an exit code."""
    run = {"backup": _backup, "restore": _restore, "verify": _verify}[options.command]
    try:
        return run(settings, options)
    except BackupError as error:
        return _failed(error, error.fix, 1 if isinstance(error, NotSound) else 2)
    except migrate.NewerDatabase as error:
        return _failed(error, error.fix, 2)
    except (OSError, sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, db.Unavailable) as error:
        return _failed(error, f"Check the files, --data and --database: gpuaas-platform {options.command} --help", 2)


COMMANDS = dict.fromkeys(("backup", "restore", "verify"), _guarded)


def _failed(error: Exception, fix: str, code: int) -> int:
    sys.stderr.write(f"gpuaas-platform: {error}\n" + (f"  {fix}\n" if fix else ""))
    return code


def _sound(path: Path, checked: check.Checked) -> str:
    chains = f"{checked.audit_rows} audit rows of {checked.chains} chains match their signed heads"
    return f"{path}: sound. {_summary(checked.manifest)}\n{chains}\nSigned by {checked.signed_by}\n"


def _summary(made: manifest.Manifest) -> str:
    rows, header = sum(digest.count for digest in made.tables.values()), made.header
    size = sum(digest.count for digest in made.files.values())
    artifacts = "" if header.has_artifacts else "; WITHOUT the content of artifacts"
    return (
        f"{rows} rows of {len(made.tables)} tables and {len(made.files)} files ({size:,} bytes) "
        f"at {header.cut_at:%Y-%m-%d %H:%M:%S} UTC{artifacts}"
    )
